"""Memory: hidden states of a segment, for the next segment of the same text.

The inputs of each layer are kept, without gradient. In the next segment of the
same text these inputs are additional keys and values. The Transformer-XL paper
calls them SG(h) (https://arxiv.org/abs/1901.02860, section 3.2). The backbone
reads memories as a feature and returns new memories. `StatefulMemory` holds
memories between steps.

Shapes: B batch, T tokens, M memory length, D model dim, L layers.
"""

import keras
from keras import ops

from xlnet_tf.model.sizes import sizes_of


def next_memory(content_stream, memory, memory_length, reuse_length=0):
    """Make the memory of one layer for the next segment.

    In pretraining with a positive `reuse_length`, each segment starts
    `reuse_length` tokens after the start of the previous segment. Only the
    first `reuse_length` tokens of a segment therefore enter the memory.

    Args:
        content_stream: float tensor of shape [B, T, D], the layer's input.
        memory: float tensor of shape [B, M, D], the layer's memory of earlier
            segments, or None.
        memory_length: int, M, the largest number of tokens in the memory.
        reuse_length: int, number of leading tokens that enter the memory. 0
            (default) means all T tokens.

    Returns:
        float tensor of shape [B, M, D], without gradient. The memory has fewer
        than M tokens if the old memory and the segment together have fewer than
        M tokens.

    Source: `_cache_mem` of the released code.
    """
    if reuse_length:
        content_stream = content_stream[:, :reuse_length]
    if memory is not None:
        memory = ops.cast(memory, content_stream.dtype)
        content_stream = ops.concatenate([memory, content_stream], axis=1)
    return ops.stop_gradient(content_stream[:, -memory_length:])


def next_memory_mask(features, memory_length, reuse_length=0):
    """Make the mask of real tokens in the memory for the next segment.

    Args:
        features: dict of the backbone's features. `padding_mask` and
            `memory_mask` are optional.
        memory_length: int, M.
        reuse_length: int, see `next_memory`. Default 0.

    Returns:
        bool tensor of shape [B, length of the new memory], True = a real
        remembered token.
    """
    padding_mask = features.get("padding_mask")
    if padding_mask is None:
        padding_mask = ops.ones_like(features["token_ids"])
    real = ops.cast(padding_mask, "bool")
    if reuse_length:
        real = real[:, :reuse_length]
    memories = features.get("memories")
    if memories is not None:
        before = features.get("memory_mask")
        if before is None:
            before = ops.ones(sizes_of(memories[0])[:2], "bool")
        real = ops.concatenate([ops.cast(before, "bool"), real], axis=1)
    return real[:, -memory_length:]


@keras.saving.register_keras_serializable(package="xlnet_tf")
class StatefulMemory(keras.layers.Layer):
    """Layer that holds the memories of all layers from one step to the next.

    Under a distribution strategy every replica has memories of its own texts,
    and the memories are not synchronised. At the start, and after `reset`, the
    memories are zeros. If `mask_unwritten` is False, rows attend to these
    zeros, as in the released code.

    The memories are non-trainable weights, so a model's `count_params` counts
    them.

    Args:
        num_layers: int, L.
        memory_length: int, M.
        hidden_dim: int, D.
        batch_size: int, B, number of rows of one replica's batch.
        mask_unwritten: bool. True masks unwritten memory. True also masks an
            example's whole memory if the example's feature `is_continuation` is
            False: the example does not continue the text in the same row of the
            previous batch. Default False: as in the released code, no memory is
            masked.

    Raises:
        ValueError: if `memory_length` is 0.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    config = xlnet_tf.XLNetConfig.from_size("tiny", memory_length=8)
    memory = xlnet_tf.StatefulMemory.for_config(config, batch_size=1)
    features = memory.read({"token_ids": np.ones((1, 8), "int32")})
    memory.write(xlnet_tf.XLNetBackbone(config)(features))
    ```
    """

    def __init__(
        self,
        num_layers: int,
        memory_length: int,
        hidden_dim: int,
        batch_size: int,
        mask_unwritten: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if memory_length < 1:
            raise ValueError(
                "a stateful memory needs `memory_length` in the config. "
                f"Received: memory_length={memory_length}."
            )
        self.num_layers = num_layers
        self.memory_length = memory_length
        self.hidden_dim = hidden_dim
        self.batch_size = batch_size
        self.mask_unwritten = mask_unwritten
        shape = (batch_size, memory_length, hidden_dim)
        self.memories = [
            _variable_per_replica(f"memory_{layer}", shape, self.compute_dtype)
            for layer in range(num_layers)
        ]
        # 1 = a remembered token, 0 = a place that is not written yet
        self.is_real = _variable_per_replica("is_real", shape[:2], "float32")
        for layer, variable in enumerate(self.memories):
            # Also as attributes, because TensorFlow's checkpoints skip
            # variables in Keras' lists.
            setattr(self, f"memory_{layer}", variable)
        self.built = True

    @classmethod
    def for_config(cls, config, batch_size, **kwargs):
        """Make a memory for a backbone with this config.

        Args:
            config: XLNetConfig.
            batch_size: int, B, number of rows of one replica's batch.
            **kwargs: `mask_unwritten`, `name` and `dtype`. The memories have
                the compute type of `dtype`.
        """
        return cls(
            config.num_layers,
            config.memory_length,
            config.hidden_dim,
            batch_size,
            **kwargs,
        )

    def read(self, features):
        """Add the memories to the features of a backbone.

        Args:
            features: dict of the backbone's features, with B rows.

        Returns:
            dict of the features with `memories` and, if `mask_unwritten` is
            set, `memory_mask`.

        Raises:
            ValueError: if the number of rows is not B.
        """
        rows = features["token_ids"].shape[0]
        if rows is not None and rows != self.batch_size:
            raise ValueError(
                f"the memory holds {self.batch_size} rows and the batch has "
                f"{rows}. Make batches of one size (drop_remainder=True), or "
                "a memory of that batch size."
            )
        memories = tuple(
            ops.convert_to_tensor(variable.value) for variable in self.memories
        )
        features = {**features, "memories": memories}
        if self.mask_unwritten:
            real = ops.convert_to_tensor(self.is_real.value) > 0
            if "is_continuation" in features:
                continues = ops.cast(features["is_continuation"], "bool")
                real = ops.logical_and(real, continues[:, None])
            features["memory_mask"] = real
        return features

    def write(self, outputs):
        """Store the new memories from a backbone's outputs in this layer.

        Args:
            outputs: dict with `memories`, L tensors of shape [B, M, D]. If
                `mask_unwritten` is set, the dict also has `memory_mask`.
        """
        for variable, memory in zip(
            self.memories, outputs["memories"], strict=True
        ):
            variable.assign(ops.cast(memory, variable.dtype))
        if self.mask_unwritten:
            self.is_real.assign(ops.cast(outputs["memory_mask"], "float32"))

    def reset(self) -> None:
        """Set all memories to zeros, and mark them as unwritten."""
        for variable in [*self.memories, self.is_real]:
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    def load_own_variables(self, store):
        # Keras calls this method a second time, then with an empty store.
        if "0" not in store or store["0"].shape[0] != self.batch_size:
            raise ValueError(
                f"the weights hold no memory of {self.batch_size} rows. Load "
                "them before `attach_memory`, or after it with the batch size "
                "that they were saved with."
            )
        super().load_own_variables(store)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "memory_length": self.memory_length,
            "hidden_dim": self.hidden_dim,
            "batch_size": self.batch_size,
            "mask_unwritten": self.mask_unwritten,
        }


def _variable_per_replica(name, shape, dtype):
    return keras.Variable(
        "zeros",
        shape=shape,
        dtype=dtype,
        trainable=False,
        autocast=False,
        # Checkpoints, and code outside a replica, then read the first replica's
        # value. With "none" TensorFlow could not save the model.
        aggregation="only_first_replica",
        synchronization="on_read",
        name=name,
    )
