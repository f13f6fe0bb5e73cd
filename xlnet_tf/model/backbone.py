"""XLNet without a head: embeddings, blocks, memories.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
L layers, D model dim, V vocabulary.
"""

import functools

import keras
from keras import ops

from xlnet_tf.config import XLNetConfig
from xlnet_tf.model.attention import AttentionBiases
from xlnet_tf.model.attention_context import attention_context
from xlnet_tf.model.block import XLNetBlock
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.layer_loop import scan_layers
from xlnet_tf.model.memory import next_memory
from xlnet_tf.model.memory import next_memory_mask
from xlnet_tf.model.rematerialization import rematerialized
from xlnet_tf.weights.preset import Preset
from xlnet_tf.weights.preset import split_overrides

# Draws of dropout that one block takes from its seed, and the three outside.
_DRAWS_PER_BLOCK = 4
_DRAW_EMBEDDING, _DRAW_POSITION, _DRAW_OUTPUT = -1, -2, -3


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetBackbone(Preset, keras.Model):
    """Two-stream Transformer-XL (https://arxiv.org/abs/1906.08237).

    Args:
        config: XLNetConfig.
        seed: int or None, for dropout where no `dropout_seed` is given.
        rematerialize: bool, compute the layers again for the gradient instead
            of keeping their inner results: less memory, more time, the same
            numbers. An attribute too; files do not keep it. Default False.
        scan_layers: bool, run the layers as one program that is as large as
            that of one layer: less code, sooner compiled, more memory. The same
            numbers; an attribute too; files do not keep it. TensorFlow alone.
            Default False.

    Call arguments:
        features: dict; all optional but `token_ids`.
            token_ids: int32 [B, T].
            segment_ids: int32 [B, T]; only equality matters. Memory counts as
                segment 0.
            padding_mask: [B, T], 1 = a real token.
            perm_mask: [B, T, T], 1 = may NOT attend.
            factorization_rank: int32 [B, T], step of each token, -1 for
                context: the compact form of `perm_mask`.
            target_mapping: [B, P, T], one-hot rows.
            target_positions: int32 [B, P]: the compact form.
            is_reversed: bool [B], this row reads backwards.
            memories: tuple of L tensors of shape [B, M, D].
            memory_mask: bool [B, M], 1 = a real remembered token.
            dropout_seed: int32 [2]; equal seeds drop equal values.
        training: bool, whether dropout is applied.
        with_content: bool, whether `content` is wanted. Without it the last
            layer computes the rows of the targets alone. Default True.

    Returns:
        dict: `content` [B, T, D]; `query` [B, P, D] where targets are given;
        `memories`, L tensors of shape [B, M, D], and `memory_mask` bool [B, M]
        (where the inputs had a mask) if `memory_length` is positive.

    Raises:
        ValueError: if features are missing or do not fit together, or
            neither content nor targets are wanted.

    Source: `transformer_xl` of the released code.
    """

    def __init__(
        self,
        config,
        seed=None,
        rematerialize=False,
        scan_layers=False,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.config = config
        self.seed = seed
        self.rematerialize = rematerialize
        self.scan_layers = scan_layers
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=config.initializer_range
            ),
            dtype=self.dtype_policy,
            name="token_embedding",
        )
        self.shared_biases = None
        if not config.untie_biases:
            self.shared_biases = AttentionBiases(
                config.num_heads,
                config.head_dim,
                config.initializer_range,
                dtype=self.dtype_policy,
                name="shared_biases",
            )
        self.blocks = [
            XLNetBlock(
                config,
                biases=self.shared_biases,
                dtype=self.dtype_policy,
                name=f"block_{layer}",
            )
            for layer in range(config.num_layers)
        ]
        for block in self.blocks:
            # By name too: TensorFlow's checkpoints skip Keras' lists.
            setattr(self, block.name, block)
        self.seed_generator = keras.random.SeedGenerator(seed)
        self._build_weights()

    @classmethod
    def from_source(
        cls,
        source,
        load_weights=True,
        dtype=None,
        head=None,
        strict=True,
        **overrides,
    ):
        config, arguments = split_overrides(source, overrides)
        model = cls(config, dtype=dtype, **arguments)
        if load_weights:
            source.fill(model, strict=strict)
        return model

    def _build_weights(self):
        self.token_embedding.build((None, None))
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(self.config.hidden_dim,),
            initializer=keras.initializers.RandomNormal(
                stddev=self.config.initializer_range
            ),
        )
        for block in self.blocks:
            block.build()
        self.built = True

    def build(self, input_shape=None):
        """Does nothing: the config alone decides every shape."""

    def call(self, features, training=None, with_content=True):
        config = self.config
        features = _checked(features, config)
        token_ids = features["token_ids"]
        num_tokens = ops.shape(token_ids)[1]
        memories = features.get("memories")
        memory_length = 0 if memories is None else ops.shape(memories[0])[1]
        positions = _target_positions(features)
        if positions is None and not with_content:
            raise ValueError(
                "without content, `target_positions` or `target_mapping` must "
                f"say what is wanted. Received: {', '.join(features)}."
            )
        seed = self.dropout_seed(features) if training else None

        rows = self._embed(token_ids, positions)
        rows = dropout(rows, config.dropout, seed, _DRAW_EMBEDDING)
        drop = None
        if seed is not None and config.dropout:
            drop = functools.partial(
                dropout, rate=config.dropout, seed=seed, number=_DRAW_POSITION
            )
        context = attention_context(
            features,
            positions,
            config,
            memory_length,
            self.compute_dtype,
            drop,
            one_sign=self._distances_of_one_sign_will_do(),
        )
        rows, new_memories = self._run_blocks(
            rows, memories, num_tokens, context, seed, with_content
        )
        rows = dropout(rows, config.dropout, seed, _DRAW_OUTPUT)
        outputs = {}
        if with_content:
            outputs["content"] = rows[:, :num_tokens]
            rows = rows[:, num_tokens:]
        if positions is not None:
            outputs["query"] = rows
        return outputs | self._memory_outputs(new_memories, features)

    def _run_blocks(
        self, rows, memories, num_tokens, context, seed, with_content
    ):
        """All blocks: (rows, list of what the layers remember)."""
        inputs = []
        if memories is not None:
            inputs = [[ops.cast(memory, rows.dtype) for memory in memories]]
        if seed is not None:
            inputs.append(
                [
                    fold_in(seed, layer * _DRAWS_PER_BLOCK)
                    for layer in range(len(self.blocks))
                ]
            )
        has_memory = bool(self.config.memory_length)

        def run(block, rows, inputs, targets_alone=False):
            memory = None if memories is None else inputs[0]
            block_seed = None if seed is None else inputs[-1]
            remembered = []
            if has_memory:
                remembered = [
                    next_memory(
                        rows[:, :num_tokens],
                        memory,
                        self.config.memory_length,
                        self.config.reuse_length,
                    )
                ]
            call = functools.partial(
                _run_block,
                block,
                num_tokens,
                context,
                block_seed,
                targets_alone=targets_alone,
            )
            tensors = [rows] if memory is None else [rows, memory]
            # Seeds are given in training alone.
            if seed is not None and self.rematerialize:
                return rematerialized(call, block, tensors), remembered
            return call(*tensors), remembered

        # Of what the last layer computes nothing but the targets' rows may be
        # wanted; all other rows are the keys of the layer above.
        count = len(self.blocks) - (not with_content)
        new_memories = []
        if self.scan_layers and count > 1:
            rows, remembered = scan_layers(
                run,
                self.blocks[:count],
                rows,
                [ops.stack(values[:count]) for values in inputs],
                num_outputs=int(has_memory),
            )
            new_memories += [
                x for values in remembered for x in ops.unstack(values)
            ]
        else:
            for layer in range(count):
                some = [values[layer] for values in inputs]
                rows, remembered = run(self.blocks[layer], rows, some)
                new_memories += remembered
        if not with_content:
            some = [values[-1] for values in inputs]
            rows, remembered = run(self.blocks[-1], rows, some, True)
            new_memories += remembered
        return rows, new_memories

    def dropout_seed(self, features):
        """The seed of a step: that of the features, or the next of our own.

        Args:
            features: dict as the call takes.

        Returns:
            int tensor of shape [2].
        """
        if features.get("dropout_seed") is not None:
            return features["dropout_seed"]
        return self.seed_generator.next()

    def _embed(self, token_ids, target_positions):
        """Content rows e(x), then query rows w: [B, T + P, D]."""
        content = self.token_embedding(token_ids)
        if target_positions is None:
            return content
        shape = [
            *ops.shape(target_positions),
            self.config.hidden_dim,
        ]
        query = ops.cast(self.mask_embedding, content.dtype)
        query = ops.broadcast_to(query, shape)
        return ops.concatenate([content, query], axis=1)

    def _distances_of_one_sign_will_do(self):
        # The sum of two narrow products would be rounded once more than one
        # product is, and a quantized layer computes its product itself.
        return self.compute_dtype == "float32" and all(
            block.attention.position_projection.quantization_mode is None
            for block in self.blocks
        )

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

    def get_config(self):
        return {
            **self.config.to_dict(),
            "seed": self.seed,
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config):
        fields = dict(config)
        kwargs = {
            key: fields.pop(key)
            for key in ("seed", "name", "trainable", "dtype")
            if key in fields
        }
        if isinstance(kwargs.get("dtype"), dict):
            kwargs["dtype"] = keras.dtype_policies.deserialize(kwargs["dtype"])
        return cls(XLNetConfig.from_dict(fields), **kwargs)


def _run_block(
    block, num_tokens, context, seed, rows, memory=None, targets_alone=False
):
    """A block on content and query rows, with what it remembers."""
    keys = rows[:, :num_tokens]
    if targets_alone:
        rows, context = rows[:, num_tokens:], context.of_targets(num_tokens)
    return block(
        rows,
        keys,
        context=context,
        seed=seed,
        memory=memory,
        has_content=not targets_alone,
    )


def _checked(features, config):
    """The features that are given, in the types that the layers expect."""
    if not isinstance(features, dict):
        features = {"token_ids": features}
    features = {k: v for k, v in features.items() if v is not None}
    if "token_ids" not in features:
        raise ValueError(
            "the features need `token_ids` of shape [B, T]. "
            f"Received: {', '.join(sorted(features)) or 'none'}."
        )
    features["token_ids"] = ops.cast(features["token_ids"], "int32")
    if len(features["token_ids"].shape) != 2:
        raise ValueError(
            "`token_ids` must have the shape [B, T]. Received: shape="
            f"{tuple(features['token_ids'].shape)}."
        )
    memories = features.get("memories")
    if memories is not None and len(memories) != config.num_layers:
        raise ValueError(
            "`memories` must hold one tensor a layer, "
            f"{config.num_layers} in all. Received: {len(memories)}."
        )
    if "is_reversed" in features:
        features["is_reversed"] = ops.cast(features["is_reversed"], "bool")
    elif config.reverse_half_batch:
        batch_size = ops.shape(features["token_ids"])[0]
        row = ops.arange(batch_size, dtype="int32")
        features["is_reversed"] = row >= batch_size // 2
    return features


def _target_positions(features):
    """int32 [B, P], or None without targets."""
    if "target_positions" in features:
        return ops.cast(features["target_positions"], "int32")
    if "target_mapping" in features:
        return ops.cast(
            ops.argmax(features["target_mapping"], axis=-1), "int32"
        )
    return None
