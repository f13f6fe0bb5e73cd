"""Base class of the backbones: construction and the loop over the layers.

Shapes: B batch, T tokens, K keys, P targets, Q = T + P rows, L layers,
D model dim, V vocabulary.
"""

import functools
from typing import Any

import keras
from keras import ops

from xlnet_tf.config import BertConfig
from xlnet_tf.config import XLNetConfig
from xlnet_tf.model.base_model import BaseModel
from xlnet_tf.model.dropout import seed_of_replica
from xlnet_tf.model.dropout import seeds_of_layers
from xlnet_tf.model.equal_layers import traced_once
from xlnet_tf.model.fusion import is_without_products
from xlnet_tf.model.kernels import check_kernel
from xlnet_tf.model.recomputation import rematerialized
from xlnet_tf.weights.preset import Preset
from xlnet_tf.weights.preset import split_overrides


class Backbone(Preset, BaseModel):
    """Base class of the models without a head: embeddings and L blocks.

    A subclass makes its blocks in `make_block`. It makes its other layers in
    `make_layers` and builds these other layers in `build_layers`. The equations
    are in the subclass's `call`.

    Attributes:
        config_class: class of the config.
        has_query_stream: bool, whether the model has a query stream, with a row
            for each target.
        takes_position_ids: bool, whether the features may contain
            `position_ids`. With `position_ids`, several tokens may have the
            same position.
        kind: str, name of the model in messages.
        attention_kernels: tuple of str, accepted values of `attention_kernel`
            besides "auto".
        kept_widths: two ints, (hidden, inner). For the gradient, a layer keeps
            `hidden` vectors of width `hidden_dim` and `inner` vectors of width
            `intermediate_dim` for each row.
        config: config of the model, an instance of `config_class`.
        seed: int or None, seed of `seed_generator`.
        rematerialize: bool, whether layers are recomputed for the gradient.
        attention_kernel: str, name of the attention kernel.
        num_bias_heads: int, number of heads in the position bias that all
            layers share (0 without such a bias).
    """

    config_class: Any = None
    has_query_stream = False
    takes_position_ids = False
    kind: str | None = None
    attention_kernels: tuple[str, ...] = ("plain",)
    kept_widths = (0, 0)
    num_bias_heads = 0

    def __init__(
        self,
        config: XLNetConfig | BertConfig | None = None,
        seed: int | None = None,
        rematerialize: bool = False,
        attention_kernel: str = "auto",
        **kwargs,
    ):
        name = type(self).__name__
        check_kernel(attention_kernel, self.attention_kernels, name)
        config, kwargs = self.config_of(config, kwargs)
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed
        self.rematerialize = rematerialize
        self.attention_kernel = attention_kernel

        # === Layers ===
        self.token_embedding = self.make_embedding(
            "token", config.vocabulary_size
        )
        self.make_layers()
        self.blocks = [
            self.make_block(f"block_{layer}")
            for layer in range(config.num_layers)
        ]
        for block in self.blocks:
            # Also as attributes, because TensorFlow's checkpoints skip layers
            # in Keras' lists.
            setattr(self, block.name, block)
        self.seed_generator = keras.random.SeedGenerator(seed)

        # === Weights ===
        self.token_embedding.build((None, None))
        self.build_layers()
        for block in self.blocks:
            block.build((None, None, config.hidden_dim))
        self.build((None, None))
        self.built = True
        if self.finish_layers():
            self.rematerialize = True

    def make_layers(self):
        """Make the layers besides the token embedding and the blocks."""

    def make_block(self, name):
        """Make one block, a Transformer layer with the given name."""
        raise NotImplementedError

    def build_layers(self):
        """Build the layers that `make_layers` made, and add other weights."""

    def make_embedding(self, kind, length):
        """Make an Embedding layer that holds `length` vectors of width D."""
        return keras.layers.Embedding(
            length,
            self.config.hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=self.config.initializer_range
            ),
            dtype=self.dtype_policy,
            name=f"{kind}_embedding",
        )

    @classmethod
    def for_source(cls, source, head, **overrides):
        config, arguments = split_overrides(source, overrides)
        if not isinstance(config, cls.config_class):
            raise ValueError(
                f"`{cls.__name__}.from_preset` needs a model with a "
                f"{cls.config_class.__name__}. Received: {source.path}, with a "
                f"{type(config).__name__}. Use the backbone class of that "
                "config, or a task, which makes the right backbone."
            )
        return cls(config, **arguments), None

    @classmethod
    def config_of(cls, config, kwargs):
        """Separate the config from a constructor's other arguments.

        Args:
            config: instance of `config_class`, or None if `kwargs` has the
                fields of the config.
            kwargs: dict, the constructor's remaining keyword arguments.

        Returns:
            (the config, dict of the other arguments).

        Raises:
            TypeError: if the config is missing, is given twice, or belongs to
                another model.
        """
        names = cls.config_class.field_names()
        fields = {k: v for k, v in kwargs.items() if k in names}
        others = {k: v for k, v in kwargs.items() if k not in names}
        if config is None and fields:
            return cls.config_class(**fields), others
        if fields or not isinstance(config, cls.config_class):
            kind = cls.config_class.__name__
            raise TypeError(
                f"`{cls.__name__}` takes a config ({kind}), or its fields by "
                "name, such as hidden_dim=128. Received: "
                f"{type(config).__name__}, {', '.join(fields) or 'no fields'}."
            )
        return config, others

    def computation(self):
        way = self.rematerialize, self.attention_kernel
        return (*way, *super().computation())

    def predict(self, x, *args, **kwargs):
        """Check the features and predict, see `keras.Model.predict`."""
        return super().predict(self.checked(x), *args, **kwargs)

    def predict_on_batch(self, x):
        """Check features and predict, see `keras.Model.predict_on_batch`."""
        return super().predict_on_batch(self.checked(x))

    @property
    def output_shape(self):
        """Shape of the output `content`; Keras' `summary` prints it."""
        return None, None, self.config.hidden_dim

    def token_table(self):
        """Return the embeddings of all tokens, float tensor [V, D]."""
        embedding = self.token_embedding
        if embedding.quantization_mode is not None:
            # A quantized table holds integers. The layer's call scales them.
            return embedding(ops.arange(self.config.vocabulary_size))
        return embedding.embeddings

    def dropout_seed(self, features):
        """Return the dropout seed of a step: the given seed or a new seed.

        Without the feature `dropout_seed`, `seed_generator` makes the seed.

        Args:
            features: dict, see the call arguments of the backbone.

        Returns:
            int tensor of shape [2].
        """
        if features.get("dropout_seed") is not None:
            return features["dropout_seed"]
        # The generator's state is the same on all replicas of a strategy.
        return seed_of_replica(self.seed_generator.next())

    def run_blocks(self, run, rows, seed, others, keep=None, observed=False):
        """Run all blocks in order.

        If `rematerialize` is True, the backward pass computes the blocks again.

        Args:
            run: function of (block, seeds of the block, rows, *other inputs of
                the block) that returns the block's output rows.
            rows: float tensor of shape [B, Q, D], the embeddings.
            seed: int tensor of shape [2], or None for no dropout.
            others: L lists of tensors, the inputs of each block besides its
                rows. Gradients flow to these tensors.
            keep: function of (rows, *other inputs), called once for each block
                with the block's inputs; or None (default).
            observed: bool, whether `run` reports inner results, such as
                attention weights, to the caller. The blocks are then not
                recomputed. Default False.

        Returns:
            (float tensor of shape [B, Q, D], list of the L results of `keep`).
            The list is empty if `keep` is None.
        """
        # Only training has a gradient and a seed. A function that is recomputed
        # or traced once cannot pass inner results on.
        trains = seed is not None and not observed

        def call(block, seeds, *inputs):
            function = functools.partial(run, block, seeds)
            if trains and self.rematerialize:
                return rematerialized(function, block, inputs)
            return function(*inputs)

        calls = [call] * len(self.blocks)
        if trains and is_without_products():
            # `run` may treat the last block differently.
            calls = [traced_once(call)] * (len(self.blocks) - 1) + [call]
        all_seeds = seeds_of_layers(seed, len(self.blocks))
        kept = []
        for block_call, block, seeds, more in zip(
            calls, self.blocks, all_seeds, others, strict=True
        ):
            inputs = [rows, *more]
            if keep is not None:
                kept.append(keep(*inputs))
            rows = block_call(block, seeds, *inputs)
        return rows, kept

    def expected_bytes(
        self, batch_size: int, num_tokens: int, num_targets: int = 0
    ) -> int:
        """Estimate the bytes of activations that a training step keeps.

        The estimate covers the activations of all layers, and the attention
        scores and probabilities of one layer. With recomputation it covers the
        inputs of all layers and the activations of one layer. The estimate does
        not cover weights, gradients of weights, the optimizer or logits.

        Args:
            batch_size, num_tokens, num_targets: ints, B, T and P. A model
                without a query stream ignores `num_targets` (default 0).

        Returns:
            int, number of bytes.
        """
        config = self.config
        rows = num_tokens + (num_targets if self.has_query_stream else 0)
        num_keys = num_tokens + config.memory_length
        scores_of_head = rows * num_keys
        hidden, inner = self.kept_widths
        activations = rows * (
            hidden * config.hidden_dim + inner * config.intermediate_dim
        )
        heads = self.heads_at_a_time(batch_size, rows, num_tokens, num_keys)
        if heads is None:
            heads = batch_size * config.num_heads
            activations += config.num_heads * scores_of_head
        kept = config.num_layers * activations
        if self.rematerialize:
            kept = activations + config.num_layers * rows * config.hidden_dim
        kept += self.num_bias_heads * scores_of_head
        width = {"float64": 8, "float32": 4}.get(self.compute_dtype, 2)
        return (4 * heads * scores_of_head + batch_size * kept) * width

    def heads_at_a_time(self, batch_size, rows, num_tokens, num_keys):
        """Number of heads whose scores are in memory at once; None means all.

        Args:
            batch_size, rows, num_tokens, num_keys: ints, B, Q, T and K.
        """
        return None

    def get_config(self):
        return {
            **self.config.to_dict(),
            "seed": self.seed,
            **super().get_config(),
        }

    @classmethod
    def from_arguments(cls, arguments):
        fields = dict(arguments)
        kwargs = {
            key: fields.pop(key)
            for key in ("seed", "name", "trainable", "dtype")
            if key in fields
        }
        return cls(cls.config_class.from_dict(fields), **kwargs)
