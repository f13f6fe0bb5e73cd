"""Attention with relative positions and relative segments, for both streams.

The score of query row i for key j is the sum of (a) content - content, (c) key
content bias u, (b) content - distance, (d) distance bias v
(https://arxiv.org/abs/1901.02860, section 3.3), and a score for whether i and j
belong to the same segment (https://arxiv.org/abs/1906.08237, section 2.5).

The two streams of XLNet share every weight. Their rows, T of content and P of
queries, are laid one after the other on one axis and computed together; keys,
values and positions are projected once.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, D model dim.
"""

import keras
from keras import ops

from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.kernels.memory_efficient import AttentionRules
from xlnet_tf.model.kernels.memory_efficient import attend
from xlnet_tf.model.relative_position import both_signs


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AttentionBiases(keras.layers.Layer):
    """The vectors u, v and b that stand in for a query without content.

    One layer of the model owns them, or all layers share them (`untie_biases`).

    Args:
        num_heads: int, N.
        head_dim: int, H.
        initializer_range: float.

    Source: `r_w_bias` (u), `r_r_bias` (v), `r_s_bias` (b).
    """

    def __init__(self, num_heads, head_dim, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.initializer_range = initializer_range

    def build(self, input_shape=None):
        for name in ("content_bias", "position_bias", "segment_bias"):
            weight = self.add_weight(
                name=name,
                shape=(self.num_heads, self.head_dim),
                initializer=keras.initializers.RandomNormal(
                    stddev=self.initializer_range
                ),
            )
            setattr(self, name, weight)
        self.built = True

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class RelativeAttention(keras.layers.Layer):
    """Multi-head attention over tokens and memory, by content and distance.

    Args:
        num_heads: int, N.
        head_dim: int, H.
        hidden_dim: int, D.
        dropout: float, on the attention probabilities, default 0.
        initializer_range: float, default 0.02.
        biases: AttentionBiases shared with other layers, or None (default) to
            own one.

    Call arguments:
        rows: float tensor of shape [B, Q, D]: T rows of the content stream,
            then P of the query stream.
        keys: float tensor of shape [B, K - M, D], content.
        context: AttentionContext.
        seed: int tensor of shape [2], or None for no dropout.
        memory: float tensor of shape [B, M, D], further keys, before the
            others, or None. It is a constant to the gradient.
        has_content: bool, whether the rows are those of both streams, or of
            the targets alone: Q = P. Default True.

    Returns:
        float tensor of shape [B, Q, D], before dropout and the residual. A row
        that may attend to nothing gets zeros, where the released code averages
        over what is hidden.

    Source: `rel_attn_core`, `rel_multihead_attn` and `two_stream_rel_attn`.
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        hidden_dim,
        dropout=0.0,
        initializer_range=0.02,
        biases=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.biases = biases or AttentionBiases(
            num_heads,
            head_dim,
            initializer_range,
            dtype=self.dtype_policy,
            name="biases",
        )
        self.query_projection = self._projection("query")
        self.key_projection = self._projection("key")
        self.value_projection = self._projection("value")
        self.position_projection = self._projection("position")
        self.output_projection = keras.layers.EinsumDense(
            "bnqh,dnh->bqd",
            output_shape=(None, hidden_dim),
            kernel_initializer=self._initializer(),
            dtype=self.dtype_policy,
            name="output_projection",
        )

    def _initializer(self):
        return keras.initializers.RandomNormal(stddev=self.initializer_range)

    def _projection(self, name):
        return keras.layers.EinsumDense(
            "bkd,dnh->bnkh",
            output_shape=(self.num_heads, None, self.head_dim),
            kernel_initializer=self._initializer(),
            dtype=self.dtype_policy,
            name=f"{name}_projection",
        )

    def build(self, input_shape=None):
        for projection in (
            self.query_projection,
            self.key_projection,
            self.value_projection,
            self.position_projection,
        ):
            projection.build((None, None, self.hidden_dim))
        self.output_projection.build(
            (None, self.num_heads, None, self.head_dim)
        )
        if not self.biases.built:
            self.biases.build()
        # index 0: same segment, 1: different segment
        self.segment_encoding = self.add_weight(
            name="segment_encoding",
            shape=(2, self.num_heads, self.head_dim),
            initializer=self._initializer(),
        )
        self.built = True

    def call(
        self, rows, keys, context, seed=None, memory=None, has_content=True
    ):
        def of_keys(projection):
            projected = projection(keys)
            if memory is None:
                return projected
            # By itself, for the gradient of what is remembered is not needed:
            # behind one product of all keys it would be made all the same.
            remembered = projection(ops.stop_gradient(memory))
            return ops.concatenate([remembered, projected], axis=2)

        query = self.query_projection(rows)  # [B, N, Q, H]
        key = of_keys(self.key_projection)  # [B, N, K, H]
        value = of_keys(self.value_projection)
        position = self._project_distances(context, ops.shape(keys)[1])

        def bias(name):
            return ops.cast(getattr(self.biases, name), query.dtype)

        # The score of a key in another segment, above one in the same: a
        # softmax does not see what is common to a row.
        encoding = ops.cast(self.segment_encoding, query.dtype)
        difference = ops.einsum(
            "bnqh,nh->bnq",
            query + bias("segment_bias")[:, None],
            (encoding[1] - encoding[0]) * self.head_dim**-0.5,
        )
        attended = attend(
            query,
            bias("content_bias"),
            bias("position_bias"),
            difference,
            key,
            value,
            position,
            AttentionRules(
                mask=context.mask,
                other_segment=context.other_segment,
                is_reversed=context.is_reversed,
                target_positions=context.target_positions,
                dropout=self.dropout,
                seed=None if seed is None else fold_in(seed, 0),
                has_content=has_content,
            ),
        )
        return self.output_projection(attended)

    def _project_distances(self, context, num_tokens):
        """What scores are made of by distance, [1 or 2, N, K + T, H]."""
        encoding = context.position_encoding
        if len(encoding.shape) == 3:
            return self.position_projection(encoding)
        # The sines' product and the cosines', for distances of one sign.
        kernel = ops.cast(self.position_projection.kernel, encoding.dtype)
        width = self.hidden_dim // 2
        odd, even = ops.unstack(
            ops.einsum(
                "kpd,pdnh->pnkh",
                ops.reshape(encoding, [-1, 2, width]),
                ops.reshape(kernel, [2, width, self.num_heads, self.head_dim]),
            )
        )
        directions = [both_signs(even, odd, num_tokens)]
        if context.is_reversed is not None:
            directions.append(both_signs(even, -odd, num_tokens))
        return ops.stack(directions)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
        }
