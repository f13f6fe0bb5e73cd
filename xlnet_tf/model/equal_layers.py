"""One TensorFlow function for all equal layers of a model.

`without_products` divides a training step into hundreds of clusters, and XLA
compiles each of them. If equal layers are calls of one function, XLA compiles
the clusters of one layer. TensorFlow also traces and optimizes one layer.
"""

import keras

from xlnet_tf.model.fusion import marks
from xlnet_tf.model.recomputation import variable_values
from xlnet_tf.weights.layer_paths import layers_by_path


def traced_once(function):
    """Make TensorFlow trace a function once for all equal layers.

    Two layers are equal if their inner layers have equal configs, and the same
    weights are frozen. Call the returned function only in functions returned by
    `without_products`.

    Args:
        function: function of (layer, seeds, *tensors) that returns one tensor.
            It may use the variables of the layer, but no other variables.
            Gradients flow to the tensors, but not to other tensors that the
            function uses.

    Returns:
        function with the arguments of `function`.
    """
    import tensorflow as tf

    functions = {}

    def call(layer, seeds, *tensors):
        inner = layers_by_path(layer).items()
        configs = [(path, x.get_config()) for path, x in inner]
        key = repr((configs, [v.trainable for v in layer.variables]))
        if key not in functions:
            functions[key] = tf.function(
                _of_weights(function, layer),
                autograph=False,
                # TensorFlow would otherwise replace each call by a copy of the
                # function, and XLA would compile each copy.
                experimental_attributes={"_noinline": True},
            )
        return functions[key](seeds, tensors, variable_values(layer.variables))

    return call


def _of_weights(function, layer):
    """Make a function of (seeds, tensors, weights of the layer)."""
    import tensorflow as tf

    variables = layer.variables

    def of_weights(seeds, tensors, weights):
        @tf.custom_gradient
        def with_gradient(*arguments):
            tensors, weights = arguments[:count], arguments[count:]
            mapping = list(zip(variables, weights, strict=True))
            trained = [x for v, x in mapping if v.trainable]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*tensors, *trained])
                with keras.StatelessScope(state_mapping=mapping):
                    rows = function(layer, seeds, *tensors)

            def gradient(upstream):
                # The backward pass is another graph.
                with marks():
                    return tape.gradient(rows, arguments, upstream)

            return rows, gradient

        count = len(tensors)
        with marks():  # of the graph inside the caller's graph
            return with_gradient(*tensors, *weights)

    return of_weights
