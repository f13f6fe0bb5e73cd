"""Runs a model in chosen shapes: lengths of buckets, batches of a limit.

Shapes: N rows, T tokens.
"""

import tensorflow as tf

# Features with one value a token, padded together.
_OF_TOKENS = (
    "token_ids",
    "segment_ids",
    "padding_mask",
    "factorization_rank",
)


class ForwardPass:
    """Pads features to a shape, runs a function on them, and cuts its outputs.

    The answers do not depend on it: what is added is padding, for which
    `padding_mask` is 0.

    Args:
        settings: ExportSettings, whose `seq_length_buckets`, `max_batch` and
            `jit_compile` are read.
    """

    def __init__(self, settings):
        self._buckets = settings.seq_length_buckets
        self._max_batch = settings.max_batch
        self._jit_compile = settings.jit_compile

    def __call__(self, function, features, of_tokens=()):
        """Runs `function` on padded features.

        Args:
            function: callable from a dict of features to a dict of tensors
                [N, ...].
            features: dict of tensors [N, ...], `token_ids` among them.
            of_tokens: names of outputs [N, T, ...].

        Returns:
            dict of tensors, of the N rows and T tokens of `features`.
        """
        shape = tf.shape(features["token_ids"])
        features = self._padded(features, shape[1])
        step = self._compiled(function)
        if self._buckets:
            step = self._in_bucket(step)
        if self._max_batch or self._jit_compile:
            outputs = self._in_pieces(step, features, shape[0])
        else:
            outputs = step(features)
        return {
            name: value[:, : shape[1]] if name in of_tokens else value
            for name, value in outputs.items()
        }

    def _compiled(self, function):
        if not self._jit_compile:
            return function
        return tf.function(function, jit_compile=True)

    def _padded(self, features, num_tokens):
        """Pads to the smallest bucket that holds T."""
        if not self._buckets:
            return features
        check = tf.debugging.assert_less_equal(
            num_tokens,
            self._buckets[-1],
            "there are more tokens in a row than the longest bucket of this "
            "export holds",
        )
        with tf.control_dependencies([check]):
            num_tokens = tf.identity(num_tokens)
        length = tf.gather(self._buckets, self._bucket(num_tokens))
        return {
            name: (
                tf.pad(value, [[0, 0], [0, length - num_tokens]])
                if name in _OF_TOKENS
                else value
            )
            for name, value in features.items()
        }

    def _bucket(self, num_tokens):
        """Index of the smallest bucket that holds `num_tokens`."""
        is_smaller = tf.constant(self._buckets) < num_tokens
        index = tf.reduce_sum(tf.cast(is_smaller, tf.int32))
        return tf.minimum(index, len(self._buckets) - 1)

    def _in_bucket(self, step):
        """One branch of the graph for each length, which is static there."""

        def choose(features):
            if features["token_ids"].shape[1] is not None:
                return step(features)

            def branch(length):
                def run():
                    fixed = dict(features)
                    for name in set(_OF_TOKENS) & set(features):
                        rows = features[name].shape[0]
                        fixed[name] = tf.ensure_shape(
                            features[name], [rows, length]
                        )
                    return step(fixed)

                return run

            branches = [branch(length) for length in self._buckets]
            if len(branches) == 1:
                return branches[0]()
            width = tf.shape(features["token_ids"])[1]
            return tf.switch_case(self._bucket(width), branches)

        return choose

    def _in_pieces(self, step, features, count):
        """Runs at most `max_batch` rows at once, one piece after another."""
        limit = self._max_batch or count
        size = tf.maximum(tf.minimum(count, limit), 1)
        if self._jit_compile:
            # XLA compiles every number of rows anew.
            size = next_power_of_two(size)
            if self._max_batch:
                size = tf.minimum(size, self._max_batch)
        num_pieces = tf.maximum((count + size - 1) // size, 1)
        pieces = {}
        for name, value in features.items():
            missing = num_pieces * size - count
            value = tf.pad(value, [[0, missing], *[[0, 0]] * (value.ndim - 1)])
            inner = tf.shape(value)[1:]
            piece = tf.reshape(value, tf.concat([[num_pieces, size], inner], 0))
            piece.set_shape([None, None, *features[name].shape[1:]])
            pieces[name] = piece
        specs = {
            name: tf.TensorSpec(piece.shape[1:], piece.dtype)
            for name, piece in pieces.items()
        }
        outputs = tf.function(step).get_concrete_function(specs)
        outputs = outputs.structured_outputs
        results = tf.map_fn(
            step,
            pieces,
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


def next_power_of_two(number):
    """The smallest power of two that is at least `number`, int32 []."""
    powers = tf.constant([2**i for i in range(31)])
    index = tf.reduce_sum(tf.cast(powers < number, tf.int32))
    return tf.gather(powers, index)
