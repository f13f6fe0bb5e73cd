"""Running the stack of layers: in turn, recomputed, or as one loop.

- In turn: the default.
- `rematerialize` (gradient checkpointing): only the inputs of each layer are
  kept for the backward pass, which recomputes the layer. Memory is that of the
  layers' inputs and of one layer at work, for about a third more time. Dropout
  draws the same values again, because they follow from the seed.
- `scan`: the layers are one program that runs L times. A compiler then sees
  one layer: the program is as large, and compiles as long, as that of a model
  of one layer. The weights of all layers are first copied into one array.

All three compute the same numbers, and they combine.

Shapes: B batch, M memory length, Q rows, D model dim, L layers.
"""

import functools

import keras
from keras import ops

from xlnet_tf.model.dropout import seeds_of_layers
from xlnet_tf.weights.layer_state import layers_by_path


def run_layers(
    layers,
    rows,
    memories,
    seed,
    run,
    run_last=None,
    remember=None,
    rematerialize=False,
    scan=False,
    shared=(),
):
    """Run layers of one shape, each on the rows of the one before.

    Args:
        layers: list of L keras.Layer, built alike.
        rows: float tensor of shape [B, Q, D], the input of the first layer.
        memories: L float tensors of shape [B, M, D], one per layer, or None.
        seed: int tensor of shape [2], or None without dropout. Every layer
            gets its own, by its number.
        run: callable of (layer, rows, memory or None, seeds or None, *shared)
            to float tensor of shape [B, Q, D], with the `seeds_of_layers` of
            that layer. It uses variables of that layer and of no other.
        run_last: the same for the last layer, which may return fewer rows.
            Default `run`.
        remember: callable of (rows, memory or None) to a tensor, the memory
            that a layer leaves to the next segment, or None (default).
        rematerialize: bool, recompute the layers for the gradient.
        scan: bool, one program for all layers, but for a `run_last`.
        shared: sequence of float tensors, computed from variables, that every
            layer reads. Gradients flow to them. Default none.

    Returns:
        (rows of the last layer; list of L tensors of `remember`, or an empty
        list).

    Raises:
        RuntimeError: if the backend does not support `rematerialize` or
            `scan`.
    """
    per_layer = {}  # inputs of each layer beside the rows, lists of length L
    if memories is not None:
        per_layer["memory"] = [ops.cast(x, rows.dtype) for x in memories]
    if seed is not None:
        seeds = seeds_of_layers(seed, len(layers))
        per_layer["seeds"] = ops.unstack(seeds, len(layers))
    step = functools.partial(_step, remember, rematerialize, shared)
    done, new_memories = 0, []
    if scan and len(layers) > 1:
        # A last layer of another kind is not part of the loop.
        done = len(layers) - (run_last is not None)
        rows, new_memories = scan_layers(
            functools.partial(step, run),
            layers[:done],
            rows,
            {name: ops.stack(x[:done]) for name, x in per_layer.items()},
            num_outputs=0 if remember is None else 1,
        )
        new_memories = [y for x in new_memories for y in ops.unstack(x)]
    for index in range(done, len(layers)):
        is_last = index == len(layers) - 1
        inputs = {name: values[index] for name, values in per_layer.items()}
        rows, left = step(
            run_last if is_last and run_last else run,
            layers[index],
            rows,
            inputs,
        )
        new_memories += left
    return rows, new_memories


def _step(remember, rematerialize, shared, run, layer, rows, inputs):
    """One layer: (its rows, list of the memory that it leaves)."""
    memory = inputs.get("memory")
    left = [] if remember is None else [remember(rows, memory)]

    def call(rows, *others):
        memory = others[len(shared)] if others[len(shared) :] else None
        seeds = inputs.get("seeds")
        return run(layer, rows, memory, seeds, *others[: len(shared)])

    tensors = [rows, *shared, *([] if memory is None else [memory])]
    if rematerialize:
        return rematerialized(call, layer, tensors), left
    return call(*tensors), left


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


def scan_layers(step, layers, carry, inputs, num_outputs=0):
    """Call a function of each layer in turn, as one loop.

    Args:
        step: callable of (layer, carry, dict of tensors) to (tensor of the
            shape and type of `carry`; list of tensors of its type). It uses
            variables of the layer and of no other. Gradients flow to all.
        layers: list of keras.Layer, built alike.
        carry: tensor, the input of the first layer.
        inputs: dict of str to tensor, whose first axis has one entry per
            layer.
        num_outputs: int, length of the list that `step` returns. Default 0.

    Returns:
        (tensor of the last layer; list of tensors, whose first axis has one
        entry per layer).

    Raises:
        ValueError: if the layers are not alike.
        RuntimeError: on a backend other than TensorFlow. JAX refuses, in a
            loop, a custom gradient that closes over values computed before.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            "`scan_layers` works on TensorFlow alone. "
            f"Received: KERAS_BACKEND={backend}."
        )
    kinds = [_kind(layer) for layer in layers]
    for layer, kind in zip(layers, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                "`scan_layers` needs layers that are built alike: quantize, or "
                "adapt by LoRA, all of them or none, or set it to False. "
                f"Received: {layer.name} differs from {layers[0].name}."
            )
    first = layers[0]
    variables = first.variables
    of_layers = [_variable_values(layer.variables) for layer in layers]
    weights = [ops.stack(values) for values in zip(*of_layers, strict=True)]

    def loop_step(carry, arrays):
        weights, values = arrays[: len(variables)], arrays[len(variables) :]
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return step(first, carry, dict(zip(inputs, values, strict=True)))

    arrays = [*weights, *inputs.values()]
    return _scan(loop_step, carry, arrays, len(layers), num_outputs)


def _kind(layer):
    """Return the shapes, types and precisions that layers of a loop share."""
    variables = [(tuple(v.shape), v.dtype) for v in layer.variables]
    precisions = [
        (path, part.compute_dtype, part.quantization_mode)
        for path, part in layers_by_path(layer).items()
    ]
    return variables, precisions


def _scan(step, carry, arrays, length, num_outputs):
    import tensorflow as tf

    # Lists of tensors: the gradient writes each entry once; the gradient of a
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
