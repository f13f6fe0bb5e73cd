"""Attention with relative positions and relative segments, for both streams.

The score of row i for key j is the sum of five terms. Four of them are products
(https://arxiv.org/abs/1901.02860, section 3.3):

- (a) the row's query and the key;
- (b) the row's query and the encoded distance;
- (c) the content bias u and the key;
- (d) the position bias v and the encoded distance.

The fifth term depends on whether i and j belong to the same segment
(https://arxiv.org/abs/1906.08237, section 2.5). `kernels/plain.py` has the
equations.

The two streams of XLNet share every weight. The T rows of the content stream
and the P rows of the query stream are concatenated on one axis and computed
together. Keys, values and positions are projected once for both streams.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, D model dim.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from xlnet_tf.model.kernels import find_kernel
from xlnet_tf.model.kernels.contract import AttentionInputs
from xlnet_tf.model.kernels.contract import AttentionRules
from xlnet_tf.model.kernels.distances import EncodedDistances
from xlnet_tf.model.kernels.distances import encode_distances
from xlnet_tf.model.kernels.plain import attention_weights
from xlnet_tf.model.kernels.projections import project_distances
from xlnet_tf.model.kernels.projections import project_keys
from xlnet_tf.model.masks import attention_mask
from xlnet_tf.model.masks import other_segment
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.weights.lora.layers import JOIN_HEADS
from xlnet_tf.weights.lora.layers import SPLIT_HEADS
from xlnet_tf.weights.lora.layers import AdaptableEinsumDense


@dataclasses.dataclass(frozen=True)
class AttentionContext:
    """Positions, masks and segments, shared by all layers of a forward pass.

    The class is a dataclass and not a tuple, because Keras refuses a tuple with
    both tensors and other values as an argument of a layer.

    Attributes:
        distances: EncodedDistances.
        rules: AttentionRules. Each layer adds `dropout` and `seed`.
        kernel: str, name of the attention kernel. Default "auto".
        observe: function, called with each layer's attention weights
            [B, N, Q, K]; or None (default).
    """

    distances: EncodedDistances
    rules: AttentionRules
    kernel: str = "auto"
    observe: Any = None

    def of_targets(self, num_tokens):
        """Return the context for the rows of the query stream alone.

        Args:
            num_tokens: int or scalar tensor, T.

        Returns:
            AttentionContext, for Q = P rows.
        """

        def of_rows(tensor):
            return None if tensor is None else tensor[:, num_tokens:]

        rules = self.rules._replace(
            mask=of_rows(self.rules.mask),
            other_segment=of_rows(self.rules.other_segment),
            streams="query",
        )
        return dataclasses.replace(self, rules=rules)


def attention_context(
    features,
    target_positions,
    config,
    dtype,
    position_projections,
    drop=None,
    kernel="auto",
    observe=None,
    first_half_length=0,
):
    """Make the AttentionContext of a forward pass.

    Args:
        features: dict, see `XLNetBackbone`.
        target_positions: int32 tensor of shape [B, P], or None.
        config: XLNetConfig.
        dtype: str, type of the relative position encoding.
        position_projections: list of the dense layers that project the
            encoding, one for each block.
        drop: function that applies dropout to the encoding, or None (default).
            All examples share one dropout mask. The released code draws one
            mask per example.
        kernel: str, name of the attention kernel. Default "auto".
        observe: function, see `AttentionContext`, or None (default).
        first_half_length: int, see `AttentionRules`. Default 0.

    Returns:
        AttentionContext.
    """
    num_tokens = sizes_of(features["token_ids"])[1]
    memories = features.get("memories")
    memory_length = 0 if memories is None else sizes_of(memories[0])[1]
    is_reversed = features.get("is_reversed")
    return AttentionContext(
        distances=encode_distances(
            num_tokens,
            memory_length + num_tokens,
            config,
            dtype,
            position_projections,
            drop,
            has_reversed=is_reversed is not None,
            first_half_length=first_half_length,
        ),
        rules=AttentionRules(
            mask=attention_mask(
                features, target_positions, config, memory_length
            ),
            other_segment=other_segment(
                features, target_positions, memory_length
            ),
            is_reversed=is_reversed,
            target_positions=target_positions,
            first_half_length=first_half_length,
        ),
        kernel=kernel,
        observe=observe,
    )


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AttentionBiases(keras.layers.Layer):
    """Bias vectors u, v and b of the content, position and segment scores.

    The query plus u is multiplied by the keys, the query plus v by the encoded
    distances, and the query plus b by the segment encodings. If the config's
    `untie_biases` is True, every layer has its own biases. Otherwise all layers
    share their biases.

    Args:
        num_heads: int, N.
        head_dim: int, H.
        initializer_range: float, standard deviation of the initial biases.
            Default 0.02.

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
        dropout: float, dropout rate of the attention probabilities. Default 0.
        initializer_range: float, standard deviation of the initial weights.
            Default 0.02.
        biases: AttentionBiases shared with other layers, or None (default) to
            create biases for this layer. `get_config` does not return shared
            biases. To rebuild a layer with shared biases, add `biases` to the
            config for `from_config`.

    Call arguments:
        rows: float tensor of shape [B, Q, D], the T rows of the content stream,
            then the P rows of the query stream. Only the P rows if
            `context.rules.streams` is "query".
        keys: float tensor of shape [B, T, D], the content stream.
        context: AttentionContext.
        seed: int tensor of shape [2], seed of the dropout mask, or None for no
            dropout.
        memory: float tensor of shape [B, M, D], the states of the tokens before
            `keys`, or None. No gradient flows to the memory.

    Returns:
        float tensor of shape [B, Q, D], before dropout and the residual. A row
        that may attend to no key gets zeros. In the released code such a row
        gets the average of the values of all keys.

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
        self._shares_biases = biases is not None
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
        self.output_projection = AdaptableEinsumDense(
            JOIN_HEADS,
            output_shape=(None, hidden_dim),
            kernel_initializer=self._initializer(),
            dtype=self.dtype_policy,
            name="output_projection",
        )

    def _initializer(self):
        return keras.initializers.RandomNormal(stddev=self.initializer_range)

    def _projection(self, name):
        return AdaptableEinsumDense(
            SPLIT_HEADS,
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

    def call(self, rows, keys, context, seed=None, memory=None):
        query = self.query_projection(rows)  # [B, N, Q, H]
        key = project_keys(self.key_projection, keys, memory)  # [B, N, K, H]
        value = project_keys(self.value_projection, keys, memory)
        position = project_distances(
            self.position_projection,
            context.distances,
            sizes_of(keys)[1],
            has_reversed=context.rules.is_reversed is not None,
        )

        def bias(name):
            return ops.cast(getattr(self.biases, name), query.dtype)

        same, other = ops.unstack(
            ops.cast(self.segment_encoding, query.dtype), 2
        )
        inputs = AttentionInputs(
            query=query,
            content_bias=bias("content_bias"),
            position_bias=bias("position_bias"),
            segment_bias=bias("segment_bias"),
            segment_direction=other - same,
            key=key,
            value=value,
            position=position,
        )
        rules = context.rules._replace(dropout=self.dropout, seed=seed)
        if context.observe is not None:
            context.observe(attention_weights(inputs, rules))
        attended = find_kernel(context.kernel)(inputs, rules)
        return self.output_projection(attended)

    def get_config(self):
        config = {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
        }
        if self._shares_biases:
            config["shares_biases"] = True
        return config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if config.pop("shares_biases", False) and not config.get("biases"):
            raise ValueError(
                "the config is of a layer that shares its biases: add `biases`."
            )
        return super().from_config(config)
