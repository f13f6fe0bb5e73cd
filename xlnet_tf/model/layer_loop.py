"""Layers of one shape as one program that runs again and again.

A compiler then sees one layer, not all of them: the program is as large, and
compiles as long, as that of a model of one layer. The numbers are the same.
The weights of all layers are copied into one array first, at every call.
"""

import keras
from keras import ops

from xlnet_tf.model.rematerialization import variable_values


def scan_layers(run, layers, carry, inputs, num_outputs=0):
    """Calls a function of each layer in turn.

    Args:
        run: callable of (layer, carry, list of tensors) to (tensor, of the
            shape and type of `carry`; list of tensors of its type), that uses
            variables of the layer and of no other. Gradients flow to all.
        layers: list of keras.Layer, built alike.
        carry: tensor, what the first layer gets.
        inputs: list of tensors, whose first axis has an entry for each layer.
        num_outputs: int, tensors in the list that `run` gives. Default 0.

    Returns:
        (tensor of the last layer; list of tensors, whose first axis has an
        entry for each layer).

    Raises:
        RuntimeError: on a backend other than TensorFlow. JAX refuses in a loop
            a gradient of our own that uses what the layer computed before.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            "`scan_layers` works on TensorFlow alone. "
            f"Received: KERAS_BACKEND={backend}."
        )
    first = layers[0]
    variables = first.variables
    of_layers = [variable_values(layer.variables) for layer in layers]
    weights = [ops.stack(values) for values in zip(*of_layers, strict=True)]

    def step(carry, arrays):
        weights, inputs = arrays[: len(variables)], arrays[len(variables) :]
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return run(first, carry, inputs)

    return _scan(step, carry, [*weights, *inputs], len(layers), num_outputs)


def _scan(step, carry, arrays, length, num_outputs):
    import tensorflow as tf

    # Lists of tensors: the gradient writes each entry once, where that of a
    # slice of an array would be a whole array for every layer.
    lists = [
        tf.TensorArray(x.dtype, length, element_shape=x.shape[1:]).unstack(x)
        for x in arrays
    ]
    written = [tf.TensorArray(carry.dtype, length) for _ in range(num_outputs)]

    def body(index, carry, written):
        carry, outputs = step(carry, [x.read(index) for x in lists])
        written = [
            x.write(index, y) for x, y in zip(written, outputs, strict=True)
        ]
        return index + 1, carry, written

    _, carry, written = tf.while_loop(
        lambda index, *_: index < length,
        body,
        (0, carry, written),
        maximum_iterations=length,  # which XLA needs for the gradient
    )
    return carry, [x.stack() for x in written]
