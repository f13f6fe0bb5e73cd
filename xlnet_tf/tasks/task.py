"""What all tasks share: a backbone, a head, a preprocessor, and their files."""

import contextlib
import warnings

import keras

from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.preprocessing import strings as raw_data
from xlnet_tf.preprocessing.preprocessor import can_preprocess
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.weights.heads import choose_head
from xlnet_tf.weights.preset import Preset
from xlnet_tf.weights.preset import split_overrides

# The backbone folds numbers from 0 up, and -1 to -3, into its seed.
DRAW_HEAD = -4


class Task(Preset, keras.Model):
    """A backbone with a head on it.

    With a preprocessor, `fit`, `evaluate` and `predict` take raw strings:
    lists, arrays, or a tf.data.Dataset of batches. Ready features, dicts with
    `token_ids`, go past it.

    Args:
        backbone: XLNetBackbone.
        head: layer with the weights that the task has beyond the backbone.
        preprocessor: Preprocessor, or None for features alone.

    Attributes:
        preprocessor: Preprocessor or None; may be set at any time.
        preprocessor_cls: class of it, for `from_preset`, or None.
        new_head_arguments: names of constructor arguments that change the
            shapes of the head; given another value, `from_preset` leaves the
            head at its initial weights.
        head_has_dropout: bool, whether the constructor takes a `dropout` of
            the head, which `from_preset` then sets with the backbone's.
        reads_query: bool, whether the task has targets; else the mask
            embedding takes no part in it and is not trained.

    Raises:
        ValueError: if the tokenizer has more pieces than the model tokens.
    """

    new_head_arguments = ()
    head_has_dropout = False
    reads_query = False
    preprocessor_cls = XLNetTextClassifierPreprocessor

    def __init__(self, backbone, head, preprocessor=None, **kwargs):
        kwargs.setdefault("dtype", backbone.dtype_policy)
        super().__init__(autocast=False, **kwargs)
        self.backbone = backbone
        self.head = head
        self.head.build()
        self.preprocessor = preprocessor
        self.built = True

    @classmethod
    def from_preset(
        cls,
        path,
        load_weights=True,
        dtype=None,
        head=None,
        strict=True,
        preprocessor="auto",
        **overrides,
    ):
        """Makes a task from a directory; see `Preset.from_preset`.

        Args:
            path, load_weights, dtype, head, strict, overrides: see there.
            preprocessor: Preprocessor, or None for features alone. By default
                that of the directory if there is a tokenizer, and TensorFlow
                Text and SentencePiece are installed.
        """
        model = super().from_preset(
            path,
            load_weights=load_weights,
            dtype=dtype,
            head=head,
            strict=strict,
            **overrides,
        )
        if not isinstance(preprocessor, str):
            model.preprocessor = preprocessor
        elif cls.preprocessor_cls is not None:
            model._find_preprocessor(path)
        return model

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
        if cls.head_has_dropout and "dropout" in overrides:
            arguments["dropout"] = overrides["dropout"]
        found, arguments = choose_head(cls, source, head, arguments)
        model = cls(XLNetBackbone(config, dtype=dtype), **arguments)
        if load_weights:
            source.fill(model, found, strict=strict)
        return model

    def _find_preprocessor(self, path):
        found = self.preprocessor_cls.find(path)
        try:
            self.preprocessor = found
        except ValueError as error:
            # Features can still be given, and another preprocessor.
            warnings.warn(
                f"{path} gives no preprocessor: {error}", stacklevel=3
            )

    @property
    def preprocessor(self):
        return self._preprocessor

    @preprocessor.setter
    def preprocessor(self, value):
        if value is not None:
            pieces = value.tokenizer.vocabulary_size
            if pieces > self.config.vocabulary_size:
                raise ValueError(
                    f"the tokenizer has {pieces} pieces and the model "
                    f"{self.config.vocabulary_size} tokens. Give the "
                    "tokenizer that the model was trained with."
                )
        self._preprocessor = value

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        loss_weights=None,
        metrics="auto",
        weighted_metrics=None,
        **kwargs,
    ):
        """Configures training, by default as the task is usually trained.

        A task that was not compiled does so itself at the first `fit` or
        `evaluate`.

        Args:
            optimizer: default AdamW at a learning rate of 2e-5, gradients
                clipped at a norm of 1.
            loss: default the task's own.
            metrics: default, with the default loss, the task's own, by weight.
            loss_weights, weighted_metrics, kwargs: of `keras.Model.compile`.
        """
        is_auto = isinstance(metrics, str) and metrics == "auto"
        if is_auto:
            metrics = None
        if isinstance(loss, str) and loss == "auto":
            loss = self.default_loss()
            if is_auto and weighted_metrics is None:
                weighted_metrics = self.default_metrics()
        if isinstance(optimizer, str) and optimizer == "auto":
            # A schedule: a number would become a variable to be restored.
            rate = WarmupSchedule(2e-5, total_steps=1, decay="constant")
            optimizer = AdamW(rate, global_clipnorm=1.0)
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def compile_from_config(self, config):
        """Compiles as a file says; Keras does not where `compile` is ours."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def default_loss(self):
        """The loss that `compile` takes, or None where the task has its own."""
        return None

    def default_metrics(self):
        """list of metrics that `compile` takes, or None."""
        return None

    def fit(self, x=None, y=None, batch_size=None, epochs=1, **kwargs):
        """`keras.Model.fit`, of raw strings too; see the class."""
        self._compile_by_default()
        kwargs.setdefault("sample_weight", None)
        validation = kwargs.get("validation_data")
        validation_size = kwargs.get("validation_batch_size") or batch_size
        if self._is_raw(x):
            data = (x, y, kwargs.pop("sample_weight"))
            fraction = kwargs.pop("validation_split", 0)
            if fraction and validation is None:
                data, validation = raw_data.split(
                    self.preprocessor, *data, fraction
                )
            kwargs["validation_batch_size"] = validation_size
            shuffle = kwargs.pop("shuffle", True)
            x = raw_data.to_data_set(
                self.preprocessor, *data, batch_size, shuffle
            )
            y = batch_size = None
            kwargs["shuffle"] = False  # done already
        if validation is not None:
            kwargs["validation_data"] = self._validation(
                validation, validation_size
            )
        return super().fit(x, y, batch_size, epochs, **kwargs)

    def evaluate(
        self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs
    ):
        """`keras.Model.evaluate`, of raw strings too; see the class."""
        self._compile_by_default()
        if self._is_raw(x):
            x = raw_data.to_data_set(
                self.preprocessor, x, y, sample_weight, batch_size
            )
            y = sample_weight = batch_size = None
        return super().evaluate(
            x, y, batch_size, sample_weight=sample_weight, **kwargs
        )

    def predict(self, x, batch_size=None, **kwargs):
        """`keras.Model.predict`, of raw strings too; see the class."""
        if self._is_raw(x):
            x = raw_data.to_data_set(
                self.preprocessor, x, batch_size=batch_size
            )
            batch_size = None
        return super().predict(x, batch_size, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """`keras.Model.train_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = self._prepared(x, y, sample_weight)
        return super().train_on_batch(*batch, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """`keras.Model.test_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = self._prepared(x, y, sample_weight)
        return super().test_on_batch(*batch, **kwargs)

    def predict_on_batch(self, x):
        """`keras.Model.predict_on_batch`, of raw strings too."""
        return super().predict_on_batch(self._prepared(x)[0])

    def _prepared(self, x, y=None, sample_weight=None):
        if not self._is_raw(x):
            return x, y, sample_weight
        batch = raw_data.tensors(self.preprocessor, x, y, sample_weight)
        return keras.utils.unpack_x_y_sample_weight(
            self.preprocessor(*keras.utils.unpack_x_y_sample_weight(batch))
        )

    def _validation(self, data, batch_size):
        parts = (data,)
        if not hasattr(data, "element_spec"):
            if not isinstance(data, (list, tuple)):
                return data
            parts = data
        if not self._is_raw(parts[0]):
            return data
        parts = [*parts, None, None][:3]
        if hasattr(data, "element_spec"):
            batch_size = None
        return raw_data.to_data_set(self.preprocessor, *parts, batch_size)

    def _is_raw(self, x):
        if not raw_data.is_raw(x):
            return False
        if self.preprocessor is None:
            raise ValueError(
                f"{type(self).__name__} has no preprocessor, so it takes "
                "features, not strings. Give it one: `task.preprocessor = "
                "...`, or `from_preset` on a directory with a tokenizer."
            )
        return True

    def _compile_by_default(self):
        if not self.compiled:
            strategy = getattr(self, "_distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.compile()

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
    def trainable_variables(self):
        """Those that the task learns."""
        return self._without_unused(super().trainable_variables)

    @property
    def trainable_weights(self):
        """Those that the task learns."""
        return self._without_unused(super().trainable_weights)

    def _without_unused(self, variables):
        if self.reads_query:
            return variables
        # Else Keras would warn, and weight decay shrink it.
        unused = self.backbone.mask_embedding
        return [v for v in variables if v is not unused]

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

    def heads(self, arguments):
        """The parts beyond the backbone that another model has as well.

        Args:
            arguments: dict, the other's of the constructor.

        Returns:
            dict of str to layer, by the names of the attributes.
        """
        return {"head": self.head}

    def get_config(self):
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "preprocessor": self.preprocessor
            and keras.saving.serialize_keras_object(self.preprocessor),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["backbone"] = keras.saving.deserialize_keras_object(
            config["backbone"]
        )
        if isinstance(config.get("preprocessor"), dict):
            config["preprocessor"] = (
                keras.saving.deserialize_keras_object(config["preprocessor"])
                if can_preprocess()
                else None
            )
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)
