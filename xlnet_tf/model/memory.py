"""Memory: the hidden states of one segment, cached for the next.

The inputs of each layer are kept, without gradient, as extra keys and values
for the next segment of the same text: SG(h) in the paper
(https://arxiv.org/abs/1901.02860, section 3.2). Memory is an argument and a
return value of the backbone; `StatefulMemory` holds it between steps.

Shapes: B batch, T tokens, M memory length, D model dim, L layers.
"""

import keras
from keras import ops

from xlnet_tf.model.sizes import sizes_of


def next_memory(content_stream, memory, memory_length, reuse_length=0):
    """Memory of one layer after this segment.

    Only the first `reuse_length` tokens are remembered: the rest of a
    pretraining segment is read again at the start of the next one.

    Args:
        content_stream: float tensor of shape [B, T, D], the layer's input.
        memory: float tensor of shape [B, M, D] or None, from the last segment.
        memory_length: int, M, largest number of tokens kept.
        reuse_length: int, 0 means all T.

    Returns:
        float tensor of shape [B, at most M, D], no gradient: fewer than M if
        memory and segment together are shorter.

    Source: `_cache_mem` of the released code.
    """
    if reuse_length:
        content_stream = content_stream[:, :reuse_length]
    if memory is not None:
        memory = ops.cast(memory, content_stream.dtype)
        content_stream = ops.concatenate([memory, content_stream], axis=1)
    return ops.stop_gradient(content_stream[:, -memory_length:])


def next_memory_mask(features, memory_length, reuse_length=0):
    """Mask of the new memory, True for real tokens.

    Args:
        features: dict of the backbone's inputs; `padding_mask` and
            `memory_mask` are optional.
        memory_length: int, M.
        reuse_length: int, 0 means all T.

    Returns:
        bool tensor [B, length of the new memory], True = a real remembered
        token.
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
    """Memories of all layers between steps, one set per replica.

    The variables are not synchronised: under a distribution strategy every
    replica remembers its own texts. At the start, and after `reset`, the memory
    is zeros. As released, rows attend to these zeros unless `mask_unwritten` is
    set.

    The variables are non-trainable weights, so `count_params` of a model with a
    memory counts them.

    Args:
        num_layers: int, L.
        memory_length: int, M.
        hidden_dim: int, D.
        batch_size: int, B, rows of one replica.
        mask_unwritten: bool, mask unwritten memory, and all memory of a row
            with the feature `is_continuation` False. Default False: as
            released, memory is never reset.

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
        # 1 = a remembered token, 0 = not written yet
        self.is_real = _variable_per_replica("is_real", shape[:2], "float32")
        for layer, variable in enumerate(self.memories):
            # By name too: TensorFlow's checkpoints skip Keras' lists.
            setattr(self, f"memory_{layer}", variable)
        self.built = True

    @classmethod
    def for_config(cls, config, batch_size, **kwargs):
        """Make a memory for a backbone with this config.

        Args:
            config: XLNetConfig.
            batch_size: int, B, rows of one replica.
            **kwargs: `mask_unwritten`, `name`, `dtype` (its compute type).
        """
        return cls(
            config.num_layers,
            config.memory_length,
            config.hidden_dim,
            batch_size,
            **kwargs,
        )

    def read(self, features):
        """Add `memories`, and `memory_mask` if masked, to the features.

        Args:
            features: dict of the backbone's inputs with B rows.

        Returns:
            dict, the features and the memory.

        Raises:
            ValueError: if the batch has another number of rows.
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
        """Store the memories in the backbone's outputs.

        Args:
            outputs: dict with `memories`, L tensors of shape [B, M, D], and
                with `memory_mask` if `mask_unwritten` is set.
        """
        for variable, memory in zip(
            self.memories, outputs["memories"], strict=True
        ):
            variable.assign(ops.cast(memory, variable.dtype))
        if self.mask_unwritten:
            self.is_real.assign(ops.cast(outputs["memory_mask"], "float32"))

    def reset(self) -> None:
        """Set all memory to zeros, unwritten."""
        for variable in [*self.memories, self.is_real]:
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    def load_own_variables(self, store):
        # Keras calls this twice, the second time without a value.
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
        # Checkpoints, and code outside a replica, read the first replica's
        # value; with "none", TensorFlow cannot save the model.
        aggregation="only_first_replica",
        synchronization="on_read",
        name=name,
    )
