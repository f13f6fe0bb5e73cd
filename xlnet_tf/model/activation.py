"""GELU with a gradient that needs only the inputs.

Automatic differentiation of the GELU would keep several tensors of the size of
the inputs. For bfloat16 inputs, automatic differentiation would also round each
factor of the gradient to bfloat16. On a CPU this rounding takes longer than
the whole computation in float32.
"""

import math

import keras
from keras import ops

_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def gelu(inputs, form):
    """Compute the GELU in float32, or in float64 for inputs of float64.

    Args:
        inputs: float tensor.
        form: "erf" for the exact GELU, or "tanh" for its approximation.

    Returns:
        float tensor of the shape and type of `inputs`.

    Source: https://arxiv.org/abs/1606.08415
    """
    is_tanh = form == "tanh"
    narrow = keras.backend.standardize_dtype(inputs.dtype)
    wide = keras.backend.result_type(narrow, "float32")

    @ops.custom_gradient
    def computed(inputs):
        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            slope = (_slope_of_tanh if is_tanh else _slope_of_erf)(
                ops.cast(inputs, wide)
            )
            return ops.cast(ops.cast(upstream, wide) * slope, narrow)

        outputs = gelu_of_keras(ops.cast(inputs, wide), form)
        return ops.cast(outputs, narrow), gradient

    return computed(inputs)


def gelu_of_keras(inputs, form):
    """Compute the GELU in the type of the inputs, without a custom gradient."""
    return keras.activations.gelu(inputs, approximate=form == "tanh")


def _slope_of_erf(x):
    """Derivative of x * CDF(x), for the CDF of a normal distribution."""
    cumulative = 0.5 + 0.5 * ops.erf(x * math.sqrt(0.5))
    density = ops.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return cumulative + x * density


def _slope_of_tanh(x):
    """Derivative of x * (1 + tanh(u)) / 2, for u = scale * (x + cube * x^3)."""
    square = x * x
    tanh = ops.tanh(_TANH_SCALE * x * (1 + _TANH_CUBE * square))
    slope_of_argument = _TANH_SCALE * (1 + 3 * _TANH_CUBE * square)
    return 0.5 * (1 + tanh + x * (1 - tanh * tanh) * slope_of_argument)
