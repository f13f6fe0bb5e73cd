"""Layers whose inner results are computed again for the gradient, not kept.

Memory is then that of the layers' inputs and of one layer at work, for about a
third more time. Dropout draws the same values again, because they follow from
the seed.

Keras' own `keras.remat` does not do: on JAX it refuses a layer with a gradient
of its own that uses what the layer computed before, as attention has.
"""

import keras
from keras import ops


def rematerialized(function, layer, inputs):
    """Calls a function of a layer and keeps nothing but its inputs.

    Args:
        function: callable of tensors to one tensor, that uses variables of
            `layer` and no others.
        layer: keras.Layer, built.
        inputs: list of float tensors, that gradients flow to.

    Returns:
        float tensor, `function(*inputs)`.

    Raises:
        RuntimeError: on a backend other than TensorFlow and JAX.
    """
    backend = keras.backend.backend()
    if backend not in _GRADIENTS:
        raise RuntimeError(
            "`rematerialize` works on TensorFlow and JAX. "
            f"Received: KERAS_BACKEND={backend}."
        )
    # Frozen ones too: what reads a variable has no gradient of its own.
    variables = layer.variables

    def of_arguments(*arguments):
        weights = arguments[len(inputs) :]
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*arguments[: len(inputs)])

    @ops.custom_gradient
    def forward(*arguments):
        def gradient(upstream):
            return _GRADIENTS[backend](of_arguments, arguments, upstream)

        return of_arguments(*arguments), gradient

    return forward(*inputs, *variable_values(variables))


def variable_values(variables):
    """list of tensors, what Keras variables hold, for gradients to flow to."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras takes a tf.Variable for a tensor and would not read it.
        return [tf.convert_to_tensor(v.value) for v in variables]
    return [v.value for v in variables]


def _gradient_on_tensorflow(function, arguments, upstream):
    import tensorflow as tf

    # Zero, for all that a compiler knows: what follows waits for `upstream`
    # and is not merged with the way forward.
    zero = tf.minimum(tf.abs(tf.reshape(upstream, [-1])[0]), 0)
    arguments = [x + tf.cast(zero, x.dtype) for x in arguments]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs = function(*arguments)
    return tape.gradient(
        outputs,
        arguments,
        upstream,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def _gradient_on_jax(function, arguments, upstream):
    import jax

    arguments, upstream = jax.lax.optimization_barrier((arguments, upstream))
    _, pull_back = jax.vjp(function, *arguments)
    return pull_back(upstream)


_GRADIENTS = {"tensorflow": _gradient_on_tensorflow, "jax": _gradient_on_jax}
