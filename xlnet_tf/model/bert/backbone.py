"""BertBackbone, the BERT model without a head.

Shapes: B batch, T tokens, L layers, N heads, D model dim, V vocabulary.
"""

import keras

from xlnet_tf.config import BertConfig
from xlnet_tf.model.base_backbone import Backbone
from xlnet_tf.model.bert.block import BertBlock
from xlnet_tf.model.bert.inputs import check_features
from xlnet_tf.model.bert.position_bias import RelativePositionBias
from xlnet_tf.model.dropout import EMBEDDING_MASK
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.masks import attention_mask


@keras.saving.register_keras_serializable(package="xlnet_tf")
class BertBackbone(Backbone):
    """BERT without a head: a Transformer with absolute positions.

    The model is described in https://arxiv.org/abs/1810.04805. If the config
    has `relative_position_buckets`, the model is UniLMv2
    (https://arxiv.org/abs/2002.12804), which adds a relative position bias to
    the scores. `rematerialize` changes speed and memory, not the results. This
    argument is also an attribute of the backbone. Saved files do not contain
    this attribute.

    Args:
        config: BertConfig. Instead of a config, its fields may be given by
            name.
        seed: int or None, seed of dropout for calls without the feature
            `dropout_seed`.
        rematerialize: bool, whether the backward pass recomputes the layers
            instead of keeping their inner results. Recomputation needs less
            memory and more time. Default False.
        attention_kernel: str, "auto" (default) or "plain". BERT has only one
            attention kernel, and both values mean this kernel.

    Call arguments:
        features: dict. All features except `token_ids` are optional. The
            backbone ignores `target_positions` and `target_mapping`, which are
            labels for objectives.
            token_ids: int32 [B, T].
            segment_ids: int32 [B, T]. Default 0. A value of `num_segments` or
                more means the last segment. XLNet's layouts use such values for
                the class token and for padding.
            padding_mask: [B, T], 1 = a real token.
            position_ids: int32 [B, T], below `max_positions`. Several tokens
                may have the same position. Default: the number of real tokens
                before each token, so that padding on the left does not shift
                positions.
            perm_mask: [B, T, T], 1 = may NOT attend. A token always attends to
                itself.
            factorization_rank: int32 [B, T], the step at which each token is
                revealed (-1 for context tokens). This feature is the compact
                form of `perm_mask`.
            is_pseudo: bool [B, T], True = a pseudo token. A pseudo token is
                visible only to the pseudo tokens with the same
                `factorization_rank`, see `masks.pseudo_masks`.
            dropout_seed: int32 [2]. Calls with equal seeds draw equal dropout
                masks.
        training: bool, whether dropout is applied.
        streams: "both" (default), the only accepted value, because BERT has no
            query stream.
        layer_inputs: bool, whether to return the input of each layer.
            Generation needs these inputs. Default False.
        attention_weights: bool, whether to return the attention probabilities.
            `rematerialize` then has no effect. Default False.

    Returns:
        dict: the outputs.
            content: float [B, T, D].
            layer_inputs: tuple of L tensors of shape [B, T, D], if requested.
            attention_weights: tuple of L tensors of shape [B, N, T, T], before
                dropout, if requested.

    Raises:
        ValueError: if features are missing or inconsistent, or if the call asks
            for memory, reversed examples or the query stream, which BERT does
            not have. Also if there are more positions than position embeddings,
            or if an argument has an unknown value.

    Source: `BertModel` of https://github.com/google-research/bert.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    config = xlnet_tf.BertConfig.from_size("tiny")
    backbone = xlnet_tf.BertBackbone(config)
    outputs = backbone({"token_ids": np.array([[17, 23, 4, 3]])})
    outputs["content"].shape  # (1, 4, config.hidden_dim)
    ```
    """

    config_class = BertConfig
    takes_position_ids = True
    kind = "BERT"
    kept_widths = 10, 2

    def make_layers(self):
        config = self.config
        self.position_embedding = self.make_embedding(
            "position", config.max_positions
        )
        self.segment_embedding = None
        if config.num_segments:
            self.segment_embedding = self.make_embedding(
                "segment", config.num_segments
            )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name="embedding_norm",
        )
        self.relative_position_bias = None
        if config.relative_position_buckets:
            self.num_bias_heads = config.num_heads
            self.relative_position_bias = RelativePositionBias(
                config.relative_position_buckets,
                config.relative_position_max_distance,
                config.num_heads,
                config.initializer_range,
                dtype=self.dtype_policy,
                name="relative_position_bias",
            )

    def make_block(self, name):
        return BertBlock(self.config, dtype=self.dtype_policy, name=name)

    def build_layers(self):
        self.position_embedding.build((None, None))
        if self.segment_embedding is not None:
            self.segment_embedding.build((None, None))
        self.embedding_norm.build((None, None, self.config.hidden_dim))
        if self.relative_position_bias is not None:
            self.relative_position_bias.build()

    def call(
        self,
        features,
        training=None,
        streams="both",
        layer_inputs=False,
        attention_weights=False,
    ):
        config = self.config
        features = check_features(features, config, streams)
        seed = self.dropout_seed(features) if training else None

        # === Embeddings ===
        rows = self.embed(
            features["token_ids"],
            features["position_ids"],
            features.get("segment_ids"),
        )
        rows = dropout(rows, config.dropout, fold_in(seed, EMBEDDING_MASK))

        # === Masks and bias ===
        mask = attention_mask(features, None, config, memory_length=0)
        biases = []
        if self.relative_position_bias is not None:
            biases = [self.relative_position_bias(features["position_ids"])]

        # === Layers ===
        weights = []  # attention probabilities of each layer

        def run(block, seeds, rows, position_bias=None):
            return block(
                rows,
                attention_mask=mask,
                position_bias=position_bias,
                seeds=seeds,
                observe=weights.append if attention_weights else None,
            )

        rows, inputs = self.run_blocks(
            run,
            rows,
            seed,
            [biases] * config.num_layers,
            (lambda rows, *_: rows) if layer_inputs else None,
            observed=attention_weights,
        )
        outputs = {"content": rows}
        if layer_inputs:
            outputs["layer_inputs"] = tuple(inputs)
        if attention_weights:
            outputs["attention_weights"] = tuple(weights)
        return outputs

    def embed(self, token_ids, position_ids, segment_ids=None):
        """Sum the embeddings of each token, and normalize the sum.

        Args:
            token_ids: int tensor of shape [B, T].
            position_ids: int tensor of shape [B or 1, T].
            segment_ids: int tensor of shape [B or 1, T], values below
                `num_segments`, or None (default) if the config has no segments.

        Returns:
            float tensor of shape [B, T, D], before dropout.
        """
        rows = self.token_embedding(token_ids)
        rows = rows + self.position_embedding(position_ids)
        if self.segment_embedding is not None:
            rows = rows + self.segment_embedding(segment_ids)
        return self.embedding_norm(rows)
