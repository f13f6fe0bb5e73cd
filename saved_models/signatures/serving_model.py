"""Model in an export, with the export's precision and static shapes.

Shapes: N rows, T tokens.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from keras.backend import is_float_dtype

from xlnet_tf.model.fusion import without_products
from xlnet_tf.weights.lora.model import config_without_lora
from xlnet_tf.weights.lora.model import copy_merged

# Memory length above any segment length. So the backbone returns the states of
# all tokens, from which `embedding.last_real` selects some.
_ALL_STATES = 2**30
_LARGEST = 127  # largest int8; without -128, the range is symmetric
# Maximum number of tokens computed at once. In the base size, the attention
# scores of a sequence of 512 tokens take 145 MB.
_TOKENS_AT_ONCE = 4096


class ServedModel:
    """Copy of a model outside any distribution strategy, for an export.

    The copy has no memory between calls. This class is not a `tf.Module`, so
    that a SavedModel stores only `variables`. In int8, `variables` has
    quantized kernels and embeddings, and their float values are not stored.

    Args:
        model: a backbone or a task.
        precision: see `ExportSettings`.

    Attributes:
        model: the copy; call it inside `weights()`.
        backbone: the backbone of the copy.
        config: XLNetConfig or BertConfig of the original model.
        num_parameters: int, number of parameters of the original model.
        variables: list of all tf.Variables that the graph reads.
    """

    def __init__(self, model, precision="float32"):
        self.config = getattr(model, "backbone", model).config
        self.model = _copy(model, precision)
        self.backbone = getattr(self.model, "backbone", self.model)
        weights = _weights(self.model)
        self.num_parameters = sum(int(np.prod(w.shape)) for w in weights)
        self._quantized = []
        if precision == "int8":
            self._quantized = [
                (weight, *_quantized(weight))
                for weight in weights
                # Weights that `quantize` has converted to integers stay
                # unchanged.
                if _summed_axes(weight) and is_float_dtype(weight.dtype)
            ]
        replaced = {id(weight) for weight, *_ in self._quantized}
        self.variables = [
            weight.value for weight in weights if id(weight) not in replaced
        ]
        for _, values, scale in self._quantized:
            self.variables += [values, scale]

    def run(self, function, features):
        """Compute `function(features)` with `variables` as the weights."""
        with self.weights():
            return function(features)

    def weights(self):
        """Context in which the copy uses `variables` as its weights."""
        if not self._quantized:
            return contextlib.nullcontext()
        return keras.StatelessScope(
            [
                (
                    weight,
                    tf.cast(values, weight.dtype)
                    * tf.cast(scale, weight.dtype),
                )
                for weight, values, scale in self._quantized
            ]
        )


def _copy(model, precision):
    config = model.get_config()
    nested = config.get("backbone")
    backbone_config = config if nested is None else nested["config"]
    if "memory_length" in backbone_config:
        # The answer for a row must not depend on the row's place in the batch.
        backbone_config.update(reuse_length=0, reverse_half_batch=False)
        # A task with `segment_length` keeps the memory length of its training.
        if not config.get("segment_length"):
            backbone_config["memory_length"] = _ALL_STATES
    if "memory" in config:
        config["memory"] = None
    if precision == "bfloat16":
        config["dtype"] = backbone_config["dtype"] = "bfloat16"
    copy = type(model).from_config(config_without_lora(config))
    copy_merged(model, copy)
    return copy


def _weights(model):
    """List the weights of the backbone and of the head, without the memory."""
    if not hasattr(model, "backbone"):
        return _without_seeds(model)
    return _without_seeds(model.backbone) + _without_seeds(model.head)


def _without_seeds(layer):
    return [w for w in layer.weights if "seed_generator" not in w.path]


def _summed_axes(weight):
    """Axes along which int8 values share a scale; () if not quantized."""
    name = weight.path.split("/")[-1]
    if name == "embeddings":
        return (1,)  # one row per token, which is also an output channel
    if name != "kernel":
        return ()
    if "output_projection" in weight.path and len(weight.shape) == 3:
        return (1, 2)  # XLNet's output projection [D, N, H]
    return (0,)


def _quantized(weight):
    """Quantize a weight to two variables: int8 values and float32 scales."""
    value = np.asarray(keras.ops.cast(weight.value, "float32"))
    axes = _summed_axes(weight)
    scale = np.abs(value).max(axis=axes, keepdims=True) / _LARGEST
    scale = np.maximum(scale, np.finfo("float32").tiny).astype("float32")
    values = np.rint(value / scale).astype("int8")
    return (
        tf.Variable(values, trainable=False, name=f"{weight.name}_int8"),
        tf.Variable(scale, trainable=False, name=f"{weight.name}_scale"),
    )


class ForwardPass:
    """Forward pass on features that are padded to static shapes.

    Answers do not depend on the padding: added tokens have `padding_mask` 0,
    and added rows are removed at the end. This is an example with buckets
    (64, 128), `max_batch` 2 and 5 rows of 100 tokens:

        features [5, 100]
            pad to the smallest bucket that fits        [5, 128]
            pad the rows, cut into batches of max_batch [3, 2, 128]
                for each batch (`tf.map_fn`), [2, 128]:
                    tf.switch_case: one branch for each bucket, in
                    which T is static                   64 | 128
                        `function`, compiled if jit_compile
            join the batches, cut off rows and padding
        outputs [5, ...], outputs of tokens [5, 100, ...]

    Without buckets, T is the length of the longest row. Without `max_batch`,
    the maximum number of rows in a batch is the largest power of two with which
    the batch has at most 4096 tokens. If T is above 4096, a batch has one row.

    Args:
        settings: ExportSettings, whose `seq_length_buckets`, `max_batch`,
            `jit_compile` and `precision` are read.
        fillers: dict from the name of each feature [N, T] to the feature's
            value in padding.
        pad_side: "left" or "right" (default).
    """

    def __init__(self, settings, fillers, pad_side="right"):
        self._buckets = settings.seq_length_buckets
        self._max_batch = settings.max_batch
        self._jit_compile = settings.jit_compile
        self._is_narrow = settings.precision == "bfloat16"
        self._fillers = fillers
        self._pad_side = pad_side

    def __call__(self, function, features, of_tokens=(), minimum=1):
        """Run `function` on padded features.

        Args:
            function: callable from a dict of features to a dict of tensors
                [N, ...].
            features: dict of tensors [N, ...], with `token_ids`.
            of_tokens: names of the outputs with shape [N, T, ...].
            minimum: int, minimum number of tokens that the function needs.
                Default 1, because a reshape needs a size above 0.

        Returns:
            dict of tensors without padding: N rows, and T tokens in the outputs
            `of_tokens`.
        """
        shape = tf.shape(features["token_ids"])
        features = self._padded(features, shape[1], minimum)
        step = function
        if self._jit_compile:
            step = self._compiled(function)
        if self._buckets:
            step = self._in_bucket(step)
        width = tf.shape(features["token_ids"])[1]
        limit = self._max_batch or _rows_at_once(width)
        if tf.executing_eagerly() and shape[0] <= limit:
            outputs = step(features)  # no loop, which is slow to trace
        else:
            outputs = self._in_batches(step, features, shape[0], limit)
        return {
            name: value[:, : shape[1]] if name in of_tokens else value
            for name, value in outputs.items()
        }

    def _compiled(self, function):
        """Compile `function` with XLA.

        If the export's precision is bfloat16, XLA compiles all operations
        except the matrix products.
        """
        if self._is_narrow:  # see `fusion`
            return tf.function(without_products(function), autograph=False)
        return tf.function(function, jit_compile=True)

    def _padded(self, features, num_tokens, minimum):
        """Pad features to the smallest bucket that fits.

        Without buckets, features are padded only to `minimum` tokens.
        """
        length = tf.maximum(num_tokens, minimum)
        if self._buckets:
            check = tf.debugging.assert_less_equal(
                num_tokens,
                self._buckets[-1],
                "there are more tokens in a row than the longest bucket of "
                "this export holds",
            )
            with tf.control_dependencies([check]):
                length = tf.gather(self._buckets, self._bucket(length))
        missing = length - num_tokens
        columns = [0, missing] if self._pad_side == "right" else [missing, 0]
        return {
            name: tf.pad(
                value, [[0, 0], columns], constant_values=self._fillers[name]
            )
            if name in self._fillers
            else value
            for name, value in features.items()
        }

    def _bucket(self, num_tokens):
        """Index of the smallest bucket with at least `num_tokens` tokens."""
        is_smaller = tf.constant(self._buckets) < num_tokens
        index = tf.reduce_sum(tf.cast(is_smaller, tf.int32))
        return tf.minimum(index, len(self._buckets) - 1)

    def _in_bucket(self, step):
        """Wrap `step` in one branch per bucket; T is static in a branch."""

        def branch(features, length):
            def run():  # all ops inside run in this branch only
                fixed = {
                    name: tf.ensure_shape(value, [value.shape[0], length])
                    if name in self._fillers
                    else value
                    for name, value in features.items()
                }
                return step(fixed)

            return run

        def choose(features):
            if features["token_ids"].shape[1] is not None:
                return step(features)
            branches = [branch(features, length) for length in self._buckets]
            if len(branches) == 1:
                return branches[0]()
            width = tf.shape(features["token_ids"])[1]
            return tf.switch_case(self._bucket(width), branches)

        return choose

    def _in_batches(self, step, features, count, limit):
        """Run `step` on batches of at most `limit` rows, one after another."""
        size = tf.maximum(tf.minimum(count, limit), 1)
        if self._jit_compile:
            # XLA compiles each number of rows separately, so use powers of two.
            size = tf.minimum(next_power_of_two(size), limit)
        num_batches = tf.maximum((count + size - 1) // size, 1)
        batches = {}
        for name, value in features.items():
            missing = num_batches * size - count
            value = tf.pad(value, [[0, missing], *[[0, 0]] * (value.ndim - 1)])
            inner = tf.shape(value)[1:]
            batch = tf.reshape(
                value, tf.concat([[num_batches, size], inner], 0)
            )
            batch.set_shape([None, None, *features[name].shape[1:]])
            batches[name] = batch
        specs = {
            name: tf.TensorSpec(batch.shape[1:], batch.dtype)
            for name, batch in batches.items()
        }
        step = tf.function(step).get_concrete_function(specs)
        outputs = step.structured_outputs
        results = tf.map_fn(
            step,
            batches,
            fn_output_signature={
                name: tf.TensorSpec(spec.shape, spec.dtype)
                for name, spec in outputs.items()
            },
            parallel_iterations=1,
        )
        joined = {}
        for name, result in results.items():
            inner = tf.shape(result)[2:]
            rows = tf.reshape(result, tf.concat([[-1], inner], 0))
            joined[name] = tf.ensure_shape(
                rows[:count], [None, *outputs[name].shape[1:]]
            )
        return joined


def _rows_at_once(num_tokens):
    """Number of rows in a batch of up to 4096 tokens: a power of two."""
    rows = _TOKENS_AT_ONCE // tf.maximum(num_tokens, 1)
    return next_power_of_two(rows // 2 + 1)


def next_power_of_two(number):
    """Smallest power of two that is at least `number`, int32 []."""
    powers = tf.constant([2**i for i in range(31)])
    index = tf.reduce_sum(tf.cast(powers < number, tf.int32))
    return tf.gather(powers, index)
