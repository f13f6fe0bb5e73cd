"""Dense layers with LoRA: the kernel becomes kernel + alpha / rank * a @ b.

LoRA is described in https://arxiv.org/abs/2106.09685. The method `enable_lora`
of Keras' dense layers adds adapters. The layers here differ from Keras' layers
in four points:

- Keras adds a @ b to the kernel in every step, and computes the gradient of the
  whole kernel. Here the inputs are multiplied by one adapter and then by the
  other, so the frozen kernel needs no gradient.
- Keras merges adapters into the kernel when it writes weights. Here weight
  files contain the adapters, or merged kernels if `writes_merged` is set.
- The gradient of a long bias is summed axis by axis, which is faster in XLA on
  a CPU.
- Inputs are multiplied as one matrix of rows, which is also faster in XLA on a
  CPU. `AdaptableEinsumDense` does this only on JAX, because TensorFlow's einsum
  itself multiplies matrices of rows.

COMPATIBILITY: `_kernel` of Keras 3's dense layers is undocumented.
"""

import contextlib
import math
import numbers

import keras
import numpy as np
from keras import ops

# XLA sums windows of 32 numbers, and is slow with 1024 or more columns.
_WINDOW, _WIDE = 32, 1024

# Equations of the projections in attention, with kernels [D, N, H].
SPLIT_HEADS, JOIN_HEADS = "bkd,dnh->bnkh", "bnqh,dnh->bqd"

# Names of arrays in a weight file; Keras' own names are numbers.
KERNEL_A, KERNEL_B, _SCALE = "lora_kernel_a", "lora_kernel_b", "lora_scale"
_KERNEL = "0"  # Keras' name of the kernel


class Adaptable:
    """Mixin that adds adapters to `Dense` or `EinsumDense`; see the module.

    Attributes:
        writes_merged: bool, whether weight files get the merged kernel instead
            of adapters. Default False.
    """

    writes_merged = False

    @property
    def lora_scale(self):
        """Factor of the adapters' product: alpha / rank."""
        return self.lora_alpha / self.lora_rank

    @property
    def trainable(self):
        """Whether the layer is trainable; an adapted kernel stays frozen."""
        return keras.layers.Layer.trainable.fget(self)

    @trainable.setter
    def trainable(self, value):
        keras.layers.Layer.trainable.fset(self, value)
        if getattr(self, "lora_enabled", False):
            self._kernel.trainable = False

    def check_adapters(self, rank, alpha=None):
        """Refuse an invalid `rank` or `alpha` for `enable_lora`.

        Raises:
            ValueError: if `rank` is not an integer from 1 to the length of the
                kernel's longest axis, or `alpha` is not a positive number.
        """
        most = max(self.kernel.shape)
        is_integer = isinstance(rank, numbers.Integral)
        if not is_integer or isinstance(rank, bool) or not 1 <= rank <= most:
            raise ValueError(
                f"`rank` must be an integer from 1 to {most}, the width of "
                f"{self.name}. Received: rank={rank!r}."
            )
        is_number = isinstance(alpha, numbers.Real)
        if alpha is not None and not (is_number and 0 < alpha < math.inf):
            raise ValueError(
                "`alpha` must be a number above 0, or None for the rank. "
                f"Received: alpha={alpha!r}."
            )

    def call(self, inputs, training=None):
        if self.lora_enabled:
            outputs = self.product(inputs, self._kernel)
            outputs = outputs + self._adapted(inputs, outputs.dtype)
        else:
            outputs = self.product(inputs, self.kernel)
        if self.bias is not None:
            outputs = _add_bias(outputs, ops.cast(self.bias, outputs.dtype))
        return outputs if self.activation is None else self.activation(outputs)

    def quantized_call(self, inputs, *args, **kwargs):
        if not self.lora_enabled:
            return super().quantized_call(inputs, *args, **kwargs)
        # Call Keras' layer without adapters: its product with adapters fails if
        # the product sums over the kernel's last axis. Adding the adapters'
        # part afterwards is right, because layers with adapters have no
        # activation.
        with self._without_adapters():
            outputs = super().quantized_call(inputs, *args, **kwargs)
        return outputs + self._adapted(inputs, outputs.dtype)

    def _adapted(self, inputs, dtype):
        # Adapters are float32 even in a model of half precision.
        return ops.cast(self.lora_scale * self.adapted(inputs), dtype)

    @contextlib.contextmanager
    def _without_adapters(self):
        is_adapted, self.lora_enabled = self.lora_enabled, False
        try:
            yield
        finally:
            self.lora_enabled = is_adapted

    def quantize(self, mode=None, type_check=True, config=None):
        # By default, Keras refuses to quantize subclasses of its layers,
        # because their `call` may differ. Once quantized, these layers compute
        # the same as Keras' layers.
        super().quantize(mode, type_check=False, config=config)

    def save_own_variables(self, store):
        if self.writes_merged and self.quantization_mode is not None:
            super().save_own_variables(store)  # Keras merges into integers
            return
        values = {}
        with self._without_adapters():
            super().save_own_variables(values)
        if self.lora_enabled and self.writes_merged:
            # Keras would round the kernel to the computation's precision.
            adapters = self.lora_kernel_a, self.lora_kernel_b
            values[_KERNEL] = _merged(self._kernel, *adapters, self.lora_scale)
        elif self.lora_enabled:
            values[KERNEL_A] = self.lora_kernel_a
            values[KERNEL_B] = self.lora_kernel_b
            values[_SCALE] = np.array([self.lora_scale])
        for name, value in values.items():
            store[name] = value

    def load_own_variables(self, store):
        values = {name: store[name] for name in store.keys()}
        names = KERNEL_A, KERNEL_B, _SCALE
        a, b, scale = (values.pop(name, None) for name in names)
        has_adapters = a is not None and b is not None and scale is not None
        if not self.lora_enabled:
            if has_adapters and self.quantization_mode is not None:
                raise ValueError(
                    f"the weights of {self.name} are quantized and have "
                    "adapters, and the layer has none. Enable LoRA with the "
                    "same rank first."
                )
            if has_adapters:
                kernel = ops.convert_to_tensor(values[_KERNEL])
                values[_KERNEL] = _merged(kernel, a, b, float(scale[0]))
            super().load_own_variables(values)
            return
        if has_adapters and not np.isclose(scale[0], self.lora_scale):
            raise ValueError(
                f"the weights of {self.name} were saved with alpha / rank = "
                f"{float(scale[0]):g}, and the layer has {self.lora_scale:g}. "
                "Enable LoRA with the same rank and alpha."
            )
        initial = ops.convert_to_numpy(self.lora_kernel_a)
        super().load_own_variables(values)  # Keras sets both adapters to zeros
        # If both adapters were zero, their gradients would stay zero.
        self.lora_kernel_a.assign(a if has_adapters else initial)
        if has_adapters:
            self.lora_kernel_b.assign(b)


def _merged(kernel, a, b, scale):
    """Compute kernel + scale * a @ b, in the precision of the kernel."""
    delta = scale * ops.matmul(
        ops.convert_to_tensor(a), ops.convert_to_tensor(b)
    )
    return ops.cast(ops.add(kernel, delta), kernel.dtype)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AdaptableDense(Adaptable, keras.layers.Dense):
    """Version of `keras.layers.Dense` with adapters, see the module."""

    def product(self, inputs, kernel):
        """Multiply inputs by a kernel, without bias and activation."""
        return _multiply_rows(inputs, kernel)

    def adapted(self, inputs):
        """Multiply inputs by the adapters, a @ b."""
        inner = ops.matmul(inputs, self.lora_kernel_a)
        return ops.matmul(inner, self.lora_kernel_b)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AdaptableEinsumDense(Adaptable, keras.layers.EinsumDense):
    """Version of `keras.layers.EinsumDense` with adapters, see the module.

    The equation is SPLIT_HEADS or JOIN_HEADS. Adapter a has all axes of the
    kernel except the last axis, followed by the axis of the rank. Adapter b has
    the axis of the rank, followed by the kernel's last axis.
    """

    def product(self, inputs, kernel):
        """Multiply inputs by a kernel, without bias and activation."""
        if keras.backend.backend() != "jax":
            # TensorFlow's einsum itself multiplies matrices of rows.
            return ops.einsum(self.equation, inputs, kernel)
        hidden_dim, num_heads, head_dim = kernel.shape
        kernel = ops.reshape(kernel, [hidden_dim, num_heads * head_dim])
        if self.equation == SPLIT_HEADS:
            outputs = _multiply_rows(inputs, kernel)
            shape = [*ops.shape(inputs)[:-1], num_heads, head_dim]
            return ops.transpose(ops.reshape(outputs, shape), [0, 2, 1, 3])
        rows = ops.transpose(inputs, [0, 2, 1, 3])
        shape = [*ops.shape(rows)[:-2], num_heads * head_dim]
        rows = ops.reshape(rows, shape)
        return _multiply_rows(rows, ops.transpose(kernel))

    def adapted(self, inputs):
        """Multiply inputs by the adapters, a @ b.

        The letter r is the axis of the rank. The product "bkd,dnh->bnkh"
        becomes "bkd,dnr->bnkr" with a, then "bnkr,rh->bnkh" with b. If the
        product sums over the kernel's last axis, as in "bnqh,dnh->bqd", b comes
        first: "bnqh,rh->bnqr" with b, then "bnqr,dnr->bqd" with a.
        """
        operands, outputs = self.equation.split("->")
        rows, kernel = operands.split(",")
        others, last = kernel[:-1], kernel[-1]
        if last in outputs:
            between = outputs.replace(last, "r")
            first = f"{rows},{others}r->{between}"
            second = f"{between},r{last}->{outputs}"
            weights = self.lora_kernel_a, self.lora_kernel_b
        else:
            between = rows.replace(last, "r")
            first = f"{rows},r{last}->{between}"
            second = f"{between},{others}r->{outputs}"
            weights = self.lora_kernel_b, self.lora_kernel_a
        inner = ops.einsum(first, inputs, weights[0])
        return ops.einsum(second, inner, weights[1])


def _multiply_rows(inputs, kernel):
    """Multiply inputs [..., V] by a kernel [V, W], as one matrix of rows.

    Inputs with more than two axes are first reshaped to a matrix. Otherwise XLA
    on a CPU would copy and transpose the inputs for the gradient.
    """
    if len(inputs.shape) == 2:
        return ops.matmul(inputs, kernel)
    shape = [*ops.shape(inputs)[:-1], kernel.shape[-1]]
    rows = ops.reshape(inputs, [-1, inputs.shape[-1]])
    return ops.reshape(ops.matmul(rows, kernel), shape)


def _add_bias(outputs, bias):
    """Add a bias [W] to [..., W].

    With TensorFlow, a bias is added to a matrix by `BiasAdd`, because
    TensorFlow on a CPU merges this operation with the matrix product.
    """
    if len(outputs.shape) == 2 and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.bias_add(outputs, bias)
    return _add_bias_to_rows(outputs, bias)


@ops.custom_gradient
def _add_bias_to_rows(outputs, bias):
    """Add a bias [W] to [..., rows, W]; `_sum_rows` makes the gradient."""

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream
        return upstream, _sum_rows(upstream)

    return outputs + bias, gradient


def _sum_rows(tensor):
    """Sum [..., rows, W] to [W].

    For bfloat16 with TensorFlow, a matrix product with ones replaces the sum.
    XLA would compile the sum, and compute `tensor` a second time for it. In
    functions made by `without_products` (`model/fusion.py`), XLA compiles no
    matrix products.

    If W and the number of rows are large, the rows are summed before the other
    axes. XLA on a CPU takes five times as long for one sum over two axes. XLA
    would also merge two successive sums into one. To prevent this merge, the
    first sum is computed in two parts, which are then added.
    """
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if dtype == "bfloat16" and keras.backend.backend() == "tensorflow":
        rows = ops.reshape(tensor, [-1, tensor.shape[-1]])
        ones = ops.ones([1, ops.shape(rows)[0]], dtype)
        return ops.matmul(ones, rows)[0]
    *others, num_rows, width = tensor.shape
    outer = list(range(len(others)))
    is_long = isinstance(num_rows, int) and num_rows > _WINDOW
    if not others or not is_long or width < _WIDE:
        return ops.sum(tensor, axis=[*outer, len(others)])
    num_first = (num_rows - 1) // _WINDOW * _WINDOW
    first, last = ops.split(tensor, [num_first], axis=-2)
    total = ops.sum(first, axis=-2) + ops.sum(last, axis=-2)
    return ops.sum(total, axis=outer)
