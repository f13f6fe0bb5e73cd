"""What all tasks share: a backbone, a head, and how both are described."""

import keras

from xlnet_tf.presets import Preset

# The backbone folds numbers from 0 up, and -1 to -3, into its seed.
DRAW_HEAD = -4


class Task(Preset, keras.Model):
    """A backbone with a head on it.

    Args:
        backbone: XLNetBackbone.
        head: layer with the weights that the task has beyond the backbone.

    Attributes:
        new_head_arguments: names of constructor arguments that change the
            shapes of the head; given another value, `from_preset` leaves the
            head at its initial weights.
    """

    new_head_arguments = ()

    def __init__(self, backbone, head, **kwargs):
        kwargs.setdefault("dtype", backbone.dtype_policy)
        super().__init__(autocast=False, **kwargs)
        self.backbone = backbone
        self.head = head
        self.head.build()
        self.built = True

    def build(self, input_shape=None):
        """Does nothing: the config alone decides every shape."""

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras would average a batch over the replicas to learn its shapes,
        # which bool features do not allow; here every shape is known.
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is not None and self.optimizer:
            with strategy.scope():
                self.optimizer.build(self.trainable_variables)

    @property
    def config(self):
        """XLNetConfig of the backbone."""
        return self.backbone.config

    def encode(self, features, training=None):
        """Runs the backbone, and gives the seed of the head's own dropout.

        Args:
            features: dict as `XLNetBackbone` takes.
            training: bool, whether dropout is applied.

        Returns:
            (dict of outputs of the backbone, int tensor of shape [2] or None
            for no dropout).
        """
        if not training:
            return self.backbone(features, training=False), None
        if not isinstance(features, dict):
            features = {"token_ids": features}
        seed = self.backbone.dropout_seed(features)
        features = {**features, "dropout_seed": seed}
        return self.backbone(features, training=True), seed

    def get_config(self):
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["backbone"] = keras.saving.deserialize_keras_object(
            config["backbone"]
        )
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)
