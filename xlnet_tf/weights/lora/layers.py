"""Dense layers with LoRA: kernel + alpha / rank * a @ b.

https://arxiv.org/abs/2106.09685. `enable_lora` adds adapters to Keras' layers.
The layers here differ from Keras' in three points:

- Keras adds a @ b to the kernel in every step and computes the gradient of the
  whole kernel. Here the inputs are multiplied by a and by b: the product with
  the frozen kernel needs only the gradient of the inputs.
- Keras merges adapters into the kernel when it writes weights. Here files store
  the adapters, unless `writes_merged` is set.
- The gradient of a bias is summed in an order that is fast in XLA on a CPU.

COMPATIBILITY: `_kernel` of these layers of Keras 3 is undocumented.
"""

import contextlib
import math
import numbers

import keras
import numpy as np
from keras import ops

# XLA sums this many numbers at once and is slow for this many columns.
_WINDOW, _WIDE = 32, 1024

# Names in a file of weights; Keras' own names are numbers.
KERNEL_A, KERNEL_B, _SCALE = "lora_kernel_a", "lora_kernel_b", "lora_scale"
_KERNEL = "0"  # Keras' name


class Adaptable:
    """Mixin of both layer classes; see the module.

    Attributes:
        writes_merged: bool, whether files get the merged kernel. Default False.
    """

    writes_merged = False

    @property
    def lora_scale(self):
        """float, alpha / rank."""
        return self.lora_alpha / self.lora_rank

    @property
    def trainable(self):
        """bool; a kernel with adapters always stays frozen."""
        return keras.layers.Layer.trainable.fget(self)

    @trainable.setter
    def trainable(self, value):
        keras.layers.Layer.trainable.fset(self, value)
        if getattr(self, "lora_enabled", False):
            self._kernel.trainable = False

    def check_adapters(self, rank, alpha=None):
        """Refuse an invalid `rank` or `alpha` for `enable_lora`.

        Raises:
            ValueError: if `rank` is not an integer or is beyond the kernel's
                longest axis, or `alpha` is not a positive number.
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
        # Keras' own product with adapters fails if the last axis of the kernel
        # is summed. These layers have no activation.
        with self._without_adapters():
            outputs = super().quantized_call(inputs, *args, **kwargs)
        return outputs + self._adapted(inputs, outputs.dtype)

    def _adapted(self, inputs, dtype):
        # Adapters are float32, even in a model of half precision.
        return ops.cast(self.lora_scale * self.adapted(inputs), dtype)

    @contextlib.contextmanager
    def _without_adapters(self):
        is_adapted, self.lora_enabled = self.lora_enabled, False
        try:
            yield
        finally:
            self.lora_enabled = is_adapted

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras refuses subclasses of its layers, because their `call` may
        # differ. These layers, once quantized, compute the same as Keras'.
        super().quantize(mode, type_check=False, config=config)

    def save_own_variables(self, store):
        if self.writes_merged and self.quantization_mode is not None:
            super().save_own_variables(store)  # Keras merges into integers
            return
        values = {}
        with self._without_adapters():
            super().save_own_variables(values)
        if self.lora_enabled and self.writes_merged:
            # Keras would round it to the computation's precision.
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
        super().load_own_variables(values)  # sets both adapters to zeros
        # With both at zero, neither would ever get a gradient.
        self.lora_kernel_a.assign(a if has_adapters else initial)
        if has_adapters:
            self.lora_kernel_b.assign(b)


def _merged(kernel, a, b, scale):
    """kernel + scale * a @ b, in the precision of the kernel."""
    delta = scale * ops.matmul(
        ops.convert_to_tensor(a), ops.convert_to_tensor(b)
    )
    return ops.cast(ops.add(kernel, delta), kernel.dtype)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AdaptableDense(Adaptable, keras.layers.Dense):
    """`keras.layers.Dense`, with adapters in files."""

    def product(self, inputs, kernel):
        """Inputs times a kernel, without bias and activation."""
        return ops.matmul(inputs, kernel)

    def adapted(self, inputs):
        """Inputs times a @ b."""
        inner = ops.matmul(inputs, self.lora_kernel_a)
        return ops.matmul(inner, self.lora_kernel_b)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AdaptableEinsumDense(Adaptable, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense`, with adapters in files.

    The kernel's last axis belongs to b, all others to a.
    """

    def product(self, inputs, kernel):
        """Inputs times a kernel, without bias and activation."""
        return ops.einsum(self.equation, inputs, kernel)

    def adapted(self, inputs):
        """Inputs times a @ b.

        For "bkd,dnh->bnkh" and r for the rank: "bkd,dnr->bnkr" by a, then
        "bnkr,rh->bnkh" by b. For "bnqh,dnh->bqd", with a sum over the last
        axis: "bnqh,rh->bnqr" by b, then "bnqr,dnr->bqd" by a.
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


@ops.custom_gradient
def _add_bias(outputs, bias):
    """[..., rows, W] + [W], with `_sum_rows` for the bias gradient."""

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream
        return upstream, _sum_rows(upstream)

    return outputs + bias, gradient


def _sum_rows(tensor):
    """Sum [..., rows, W] to [W], one axis at a time.

    If W is large, XLA on a CPU takes five times as long for a sum over two
    axes. It would also merge a sum of sums into one; the addition in between
    prevents that.
    """
    *others, num_rows, width = tensor.shape
    outer = list(range(len(others)))
    is_long = isinstance(num_rows, int) and num_rows > _WINDOW
    if not others or not is_long or width < _WIDE:
        return ops.sum(tensor, axis=[*outer, len(others)])
    num_first = (num_rows - 1) // _WINDOW * _WINDOW
    first, last = ops.split(tensor, [num_first], axis=-2)
    total = ops.sum(first, axis=-2) + ops.sum(last, axis=-2)
    return ops.sum(total, axis=outer)
