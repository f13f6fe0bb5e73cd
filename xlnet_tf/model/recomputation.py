"""Recomputation of layers for the gradient (`rematerialize`).

It is also called gradient checkpointing. Only the inputs of each layer are kept
for the backward pass, which computes the layer again. Memory then holds the
inputs of all layers and one layer at work, for about a third more time. Dropout
draws the same values again, because they follow from the seed.
"""

import keras
from keras import ops

from xlnet_tf.weights.layer_paths import layers_by_path


def leave_scope(model):
    """Take the layers of a model out of the `keras.RematScope` around them.

    In that scope Keras recomputes every layer by itself, by a function of
    TensorFlow that takes no keyword arguments in a graph, and that finds no
    gradient of weights inside of `rematerialized`.

    COMPATIBILITY: `_remat_mode` of a layer of Keras 3 is undocumented.

    Args:
        model: keras.Model.

    Returns:
        bool, whether the scope recomputes the model: not in the mode
        "activations", and in "list_of_layers" if it names the model or a
        layer of it.
    """
    layers = {model.name: model, **layers_by_path(model)}
    scope = model._remat_mode
    for layer in layers.values():
        layer._remat_mode = None
    if scope is None or scope.mode != "list_of_layers":
        return scope is not None and scope.mode in ("full", "larger_than")
    names = {layer.name for layer in layers.values()}
    return not names.isdisjoint(scope.layer_names)


def rematerialized(function, layer, inputs):
    """Call a function of a layer and keep nothing but its inputs.

    Keras' own `keras.remat` does not do: on JAX it refuses a layer with a
    custom gradient that closes over values computed before, such as
    attention's.

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
    # Frozen ones too: reading a variable in `function` gives no gradient.
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

    return forward(*inputs, *_variable_values(variables))


def _variable_values(variables):
    """list of tensors, the values of Keras variables; gradients reach them."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras takes a tf.Variable for a tensor and would not read it.
        return [tf.convert_to_tensor(v.value) for v in variables]
    return [v.value for v in variables]


def _gradient_on_tensorflow(function, arguments, upstream):
    import tensorflow as tf

    # An opaque zero that depends on `upstream`, so that XLA cannot merge (CSE)
    # the recomputation with the forward pass.
    # A sum of at most one element: the batch of a replica may have no rows.
    first = tf.reduce_sum(tf.reshape(upstream, [-1])[:1])
    zero = tf.minimum(tf.abs(first), 0)
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
