"""Compilation of functions that call a model, on TensorFlow and JAX."""

import keras

# JAX compiles a function once for each shape. Lengths are therefore padded to
# multiples of this step. TensorFlow compiles a function for many shapes.
_STEP = 32


def compiled(function, model, relaxes=True):
    """Compile a function that calls a model.

    Args:
        function: function whose arguments are nested structures of tensors.
        model: keras.Model. Each call of the compiled function uses the current
            values of the model's variables.
        relaxes: bool. If True (default), TensorFlow compiles one function for
            all sizes as soon as the sizes of two calls differ.

    Returns:
        function with the arguments of `function`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # The functions have no Python control flow that depends on tensors.
        return tf.function(function, autograph=False, reduce_retracing=relaxes)
    import jax

    @jax.jit
    def of_weights(weights, *args, **kwargs):
        mapping = list(zip(model.variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*args, **kwargs)

    def call(*args, **kwargs):
        # Weights are arguments, because JAX would copy constants into the
        # compiled program.
        weights = [variable.value for variable in model.variables]
        return of_weights(weights, *args, **kwargs)

    return call


def common_length(length):
    """Round a length up, so that JAX compiles for few different lengths.

    Args:
        length: int.

    Returns:
        int, the length to pad to. On TensorFlow `length` itself.
    """
    if keras.backend.backend() == "tensorflow":
        return length
    return -(-length // _STEP) * _STEP
