"""XLNetBackbone, the XLNet model without a head.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
L layers, N heads, D model dim, V vocabulary.
"""

import functools

import keras
from keras import ops

from xlnet_tf.config import XLNetConfig
from xlnet_tf.model import kernels
from xlnet_tf.model.attention import AttentionBiases
from xlnet_tf.model.attention import attention_context
from xlnet_tf.model.base_backbone import Backbone
from xlnet_tf.model.block import XLNetBlock
from xlnet_tf.model.dropout import EMBEDDING_MASK
from xlnet_tf.model.dropout import OUTPUT_MASK
from xlnet_tf.model.dropout import POSITION_MASK
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.inputs import check_features
from xlnet_tf.model.inputs import check_first_half
from xlnet_tf.model.inputs import check_streams
from xlnet_tf.model.inputs import find_target_positions
from xlnet_tf.model.memory import next_memory
from xlnet_tf.model.memory import next_memory_mask
from xlnet_tf.model.sizes import sizes_of


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetBackbone(Backbone):
    """XLNet without a head: a Transformer-XL with a content and a query stream.

    The model is described in https://arxiv.org/abs/1906.08237. `rematerialize`
    and `attention_kernel` change speed and memory, not the results. Both
    arguments are also attributes of the backbone. Saved files do not contain
    these attributes.

    Args:
        config: XLNetConfig. Instead of a config, its fields may be given by
            name.
        seed: int or None, seed of dropout for calls without the feature
            `dropout_seed`.
        rematerialize: bool, whether the backward pass recomputes the layers
            instead of keeping their inner results. Recomputation needs less
            memory and more time. Default False.
        attention_kernel: str, how attention is computed. "plain" is readable
            code with automatic differentiation. "memory_efficient" keeps one
            tensor of scores for the gradient. "fused", for TPUs and for GPUs on
            JAX, does not store a score for each row and key. "auto" (default)
            means "fused" on these chips and "memory_efficient" elsewhere.

    Call arguments:
        features: dict. All features except `token_ids` are optional.
            token_ids: int32 [B, T].
            segment_ids: int32 [B, T]. Attention only tests whether two
                tokens have the same segment. All tokens in memory have the
                segment 0.
            padding_mask: [B, T], 1 = a real token.
            perm_mask: [B, T, T], 1 = may NOT attend.
            factorization_rank: int32 [B, T], the step at which each token is
                revealed (-1 for context tokens). This feature is the compact
                form of `perm_mask`.
            target_mapping: [B, P, T], the position of each target as a one-hot
                row.
            target_positions: int32 [B, P], positions of the targets, below T.
                This feature is the compact form of `target_mapping`.
            is_reversed: bool [B], True = the model reads this example
                backwards.
            memories: tuple of L tensors of shape [B, M, D].
            memory_mask: bool [B, M], 1 = a real remembered token.
            dropout_seed: int32 [2]. Calls with equal seeds draw equal dropout
                masks.
        training: bool, whether dropout is applied.
        streams: "both" (default), or "query" to omit `content` from the
            outputs. With "query" the last layer computes only the rows of the
            targets.
        layer_inputs: bool, whether to return the input of each layer instead of
            the memories. Generation needs these inputs. Default False.
        attention_weights: bool, whether to return the attention probabilities.
            `rematerialize` then has no effect. Default False.
        first_half_length: int, length of a prefix of the tokens. The attention
            mask must hide the tokens after the prefix from the prefix's content
            rows and targets, as in pretraining with `reuse_length`. Otherwise
            the outputs may be wrong. The kernel "memory_efficient" (and "fused"
            on a GPU) skips the scores of the prefix's content rows for the
            tokens after the prefix. Default 0: there is no such prefix.

    Returns:
        dict: the outputs.
            content: float [B, T, D], unless `streams` is "query".
            query: float [B, P, D], if targets are given.
            memories: tuple of L tensors of shape [B, M, D], if the config's
                `memory_length` is positive.
            memory_mask: bool [B, M], returned with `memories` if the features
                contain `padding_mask` or `memory_mask`.
            layer_inputs: tuple of L tensors of shape [B, T, D], if requested,
                instead of the memories.
            attention_weights: tuple of L tensors of shape
                [B, N, T + P, M + T], before dropout, if requested. Rows of the
                content stream precede the rows of the query stream. If
                `streams` is "query", the last layer has only the rows of the
                query stream.

    Raises:
        ValueError: if features are missing or do not fit each other, if the
            query stream is requested without targets, or if an argument has an
            invalid value.

    Source: `transformer_xl` of the released code.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    backbone = xlnet_tf.XLNetBackbone(config)
    outputs = backbone({"token_ids": np.array([[17, 23, 4, 3]])})
    outputs["content"].shape  # (1, 4, config.hidden_dim)
    ```
    """

    config_class = XLNetConfig
    has_query_stream = True
    kind = "XLNet"
    attention_kernels = tuple(kernels.KERNELS)
    kept_widths = 12, 3

    def make_layers(self):
        config = self.config
        self.shared_biases = None
        if not config.untie_biases:
            self.shared_biases = AttentionBiases(
                config.num_heads,
                config.head_dim,
                config.initializer_range,
                dtype=self.dtype_policy,
                name="shared_biases",
            )

    def make_block(self, name):
        return XLNetBlock(
            self.config,
            biases=self.shared_biases,
            dtype=self.dtype_policy,
            name=name,
        )

    def build_layers(self):
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(self.config.hidden_dim,),
            initializer=keras.initializers.RandomNormal(
                stddev=self.config.initializer_range
            ),
        )

    def call(
        self,
        features,
        training=None,
        streams="both",
        layer_inputs=False,
        attention_weights=False,
        first_half_length=0,
    ):
        config = self.config
        features = check_features(features, config)
        num_tokens = sizes_of(features["token_ids"])[1]
        check_first_half(first_half_length, num_tokens)
        positions = find_target_positions(features)
        check_streams(streams, positions, features)
        seed = self.dropout_seed(features) if training else None
        weights = []  # attention probabilities of each layer

        # === Embeddings, positions and masks ===
        rows = self._embed(features["token_ids"], positions)  # [B, T + P, D]
        rows = dropout(rows, config.dropout, fold_in(seed, EMBEDDING_MASK))
        drop = None
        if seed is not None and config.dropout:
            drop = functools.partial(
                dropout, rate=config.dropout, seed=fold_in(seed, POSITION_MASK)
            )
        context = attention_context(
            features,
            positions,
            config,
            self.compute_dtype,
            [block.attention.position_projection for block in self.blocks],
            drop,
            kernel=self.attention_kernel,
            observe=weights.append if attention_weights else None,
            first_half_length=first_half_length,
        )

        # === Layers ===
        rows, kept = self._run_layers(
            rows, features, context, seed, streams, layer_inputs
        )

        # === Outputs ===
        rows = dropout(rows, config.dropout, fold_in(seed, OUTPUT_MASK))
        outputs = {}
        if streams == "both":
            outputs["content"] = rows[:, :num_tokens]
            rows = rows[:, num_tokens:]
        if positions is not None:
            outputs["query"] = rows
        if attention_weights:
            outputs["attention_weights"] = tuple(weights)
        if layer_inputs:
            return {**outputs, "layer_inputs": tuple(kept)}
        return outputs | self._memory_outputs(kept, features)

    def _run_layers(self, rows, features, context, seed, streams, layer_inputs):
        """Run all layers; return (rows, L new memories or layer inputs)."""
        config = self.config
        num_tokens = sizes_of(features["token_ids"])[1]

        def run(block, seeds, rows, memory=None):
            keys = rows[:, :num_tokens]
            row_context = context
            # Only the last layer may skip content rows, because every other
            # layer's content rows are the keys of the next layer.
            if streams == "query" and block is self.blocks[-1]:
                rows = rows[:, num_tokens:]
                row_context = context.of_targets(num_tokens)
            return block(
                rows, keys, context=row_context, seeds=seeds, memory=memory
            )

        def keep(rows, memory=None):
            content = rows[:, :num_tokens]
            if layer_inputs:
                return content
            lengths = config.memory_length, config.reuse_length
            return next_memory(content, memory, *lengths)

        memories = [[] for _ in self.blocks]
        if "memories" in features:
            memories = [[ops.cast(x, rows.dtype)] for x in features["memories"]]
        return self.run_blocks(
            run,
            rows,
            seed,
            memories,
            keep if layer_inputs or config.memory_length else None,
            observed=context.observe is not None,
        )

    def _embed(self, token_ids, target_positions):
        """Embed the tokens, and append targets: [B, T + P, D].

        A token gets its embedding from the table. Every target gets
        `mask_embedding`, the paper's vector w.
        """
        content = self.token_embedding(token_ids)
        if target_positions is None:
            return content
        shape = [*sizes_of(target_positions), self.config.hidden_dim]
        query = ops.cast(self.mask_embedding, content.dtype)
        query = ops.broadcast_to(query, shape)
        return ops.concatenate([content, query], axis=1)

    def _memory_outputs(self, new_memories, features):
        if not new_memories:
            return {}
        outputs = {"memories": tuple(new_memories)}
        if "padding_mask" in features or "memory_mask" in features:
            outputs["memory_mask"] = next_memory_mask(
                features,
                self.config.memory_length,
                self.config.reuse_length,
            )
        return outputs

    def heads_at_a_time(self, batch_size, rows, num_tokens, num_keys):
        shape = batch_size, self.config.num_heads, rows, self.config.head_dim
        return kernels.heads_at_a_time(
            self.attention_kernel,
            shape,
            num_tokens,
            num_keys,
            self.compute_dtype,
        )
