"""Recomputation of layers in the backward pass (`rematerialize`).

Recomputation is also called gradient checkpointing. The forward pass keeps only
the inputs of each layer, and the backward pass computes the layer again. The
device then holds the inputs of all layers and the inner results of one layer. A
step takes about a third more time. Both computations of a layer draw the same
dropout masks, because the masks depend only on the seed.
"""

import keras
from keras import ops

from xlnet_tf.weights.layer_paths import layers_by_path


def leave_scope(model):
    """Take the layers of a model out of the `keras.RematScope` around them.

    In that scope Keras would recompute each layer separately, on TensorFlow by
    `tf.recompute_grad`. In a graph, `tf.recompute_grad` accepts no keyword
    arguments. Inside a call of `rematerialized`, `tf.recompute_grad` computes
    no gradients of weights.

    COMPATIBILITY: the attribute `_remat_mode` of Keras 3's layers is
    undocumented.

    Args:
        model: keras.Model.

    Returns:
        bool, whether the scope asks to recompute the model. False in the mode
        "activations". In the mode "list_of_layers", True if the list names the
        model or a layer of the model.
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
    """Call a function of a layer; call it again in the backward pass.

    Only the inputs of the call are kept for the backward pass. `keras.remat`
    cannot be used here. On JAX it refuses a layer, such as attention, whose
    custom gradient closes over earlier values.

    Args:
        function: function of tensors that returns one tensor. It may use the
            variables of `layer`, but no other variables.
        layer: keras.Layer, built.
        inputs: list of float tensors, with gradients.

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
    # All variables are arguments, even frozen ones: a variable that `function`
    # itself reads would get no gradient.
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
    """Return the values of Keras variables as tensors with gradients."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras treats a tf.Variable as a tensor and would not read its value.
        return [tf.convert_to_tensor(v.value) for v in variables]
    return [v.value for v in variables]


def _gradient_on_tensorflow(function, arguments, upstream):
    import tensorflow as tf

    # Adding a zero that depends on `upstream` keeps XLA from merging the
    # recomputation with the forward pass (common subexpression elimination).
    # The slice has at most one element, and the sum is defined even if a
    # replica's batch has no rows.
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
