"""Compiled functions of a model, for predictions, on each backend."""

import keras

# JAX compiles a function for each shape, TensorFlow for many shapes at once.
_STEP = 32


def compiled(function, model, relaxes=True):
    """Compile a function that calls a model.

    Args:
        function: of trees of tensors.
        model: keras.Model, whose current variable values each call uses.
        relaxes: bool, whether TensorFlow compiles for unknown sizes after it
            has met several. Default True.

    Returns:
        function of the same arguments.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Nothing here needs AutoGraph.
        return tf.function(function, autograph=False, reduce_retracing=relaxes)
    import jax

    @jax.jit
    def of_weights(weights, *args, **kwargs):
        mapping = list(zip(model.variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*args, **kwargs)

    def call(*args, **kwargs):
        # Weights are arguments: constants would be copied into the program.
        weights = [variable.value for variable in model.variables]
        return of_weights(weights, *args, **kwargs)

    return call


def common_length(length):
    """Length to pad to: one of a few if each length is compiled.

    Args:
        length: int.

    Returns:
        int, `length` itself on TensorFlow.
    """
    if keras.backend.backend() == "tensorflow":
        return length
    return -(-length // _STEP) * _STEP
