"""The base of all tasks: a backbone with a head, and a preprocessor."""

import os

import keras

from data_pipeline.base.limits import in_a_line
from xlnet_tf.model.backbones import make_backbone
from xlnet_tf.model.base_model import BaseModel
from xlnet_tf.model.inputs import as_features
from xlnet_tf.preprocessing.fitting import RawStringModel
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.preset import can_preprocess
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.tasks.finetuned import Finetuned
from xlnet_tf.tasks.losses import refuse_of_probabilities
from xlnet_tf.weights.heads import choose_head
from xlnet_tf.weights.heads import refuse_misspelt
from xlnet_tf.weights.preset import Preset
from xlnet_tf.weights.preset import config_fields
from xlnet_tf.weights.preset import split_overrides

# Arguments of `from_preset` that the backbone takes.
_OF_THE_BACKBONE = (
    "dtype",
    "seed",
    "rematerialize",
    "attention_kernel",
)


class Task(Finetuned, RawStringModel, Preset, BaseModel):
    """A backbone with a head on it.

    With a preprocessor, `fit`, `evaluate` and `predict` take raw strings; see
    `RawStringModel`.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        head: layer with the weights that the task has beyond the backbone.
        preprocessor: Preprocessor, or None for features alone.

    Attributes:
        preprocessor_cls: class of the preprocessor that `from_preset` reads,
            or None.
        new_head_arguments: names of constructor arguments that change the
            shapes of the head; given another value, `from_preset` leaves the
            head at its initial weights.
        head_has_dropout: bool, whether the constructor takes a `dropout` of
            the head, which `from_preset` then sets with the backbone's.
        head_sources: names of other tasks of this library whose head fits.
        reads_query: bool, whether the task reads the query stream. If not, the
            mask embedding, which only that reads, is no trainable variable of
            the task.
        segment_length: int or None, tokens that are read at a time.

    Raises:
        ValueError: if the tokenizer has more pieces than the model tokens.
    """

    new_head_arguments: tuple[str, ...] = ()
    head_has_dropout = False
    head_sources: tuple[str, ...] = ()
    reads_query = False
    preprocessor_cls: type[Preprocessor] | None = (
        XLNetTextClassifierPreprocessor
    )
    segment_length: int | None = None

    def __new__(cls, *args, **kwargs):
        # Checked here: Python would name a missing argument, not the misspelt
        # one.
        refuse_misspelt(cls, kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, backbone, head, preprocessor=None, **kwargs):
        kwargs["dtype"] = kwargs.get("dtype") or backbone.dtype_policy
        super().__init__(**kwargs)
        self.backbone = backbone
        self.head = head
        self.head.build((None, None, backbone.config.hidden_dim))
        self.preprocessor = preprocessor
        self.built = True
        self.freeze_if_told()

    @staticmethod
    def make_head(head_class, backbone, kwargs, **arguments):
        """A head for a backbone, not built, in the precision of the task.

        Args:
            head_class: class of `xlnet_tf.tasks.heads`.
            backbone: XLNetBackbone or BertBackbone.
            kwargs: dict, what the task gives to the constructor of Task.
            **arguments: of the head's class, beyond the config.
        """
        return head_class(
            backbone.config,
            dtype=kwargs.get("dtype") or backbone.dtype_policy,
            name="head",
            **arguments,
        )

    @classmethod
    def from_preset(
        cls,
        path: str | os.PathLike,
        load_weights: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        head: str | None = None,
        strict: bool = True,
        verify: bool = True,
        preprocessor: Preprocessor | str | None = "auto",
        **overrides,
    ):
        """Make a task from a directory; see `Preset.from_preset`.

        Args:
            path, load_weights, dtype, head, strict, verify, overrides: see
                there.
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
            verify=verify,
            **overrides,
        )
        if not isinstance(preprocessor, str):
            model.preprocessor = preprocessor
        elif cls.preprocessor_cls is not None:
            model.find_preprocessor(path, verify)
        return model

    @classmethod
    def for_source(cls, source, head, **overrides):
        refuse_misspelt(cls, overrides, (*_OF_THE_BACKBONE, *config_fields()))
        if overrides.get("activation") in ("softmax", "sigmoid"):
            raise ValueError(
                "`activation` is that of the backbone's layers, gelu or relu: "
                f"{cls.__name__} gives logits, of which `predict_labels`, "
                "`keras.ops.softmax` or `keras.ops.sigmoid` makes answers. "
                f"Received: activation={overrides['activation']!r}."
            )
        config, arguments = split_overrides(source, overrides)
        of_backbone = {
            name: arguments.pop(name)
            for name in _OF_THE_BACKBONE
            if name in arguments
        }
        if cls.head_has_dropout and "dropout" in overrides:
            arguments["dropout"] = overrides["dropout"]
        found, arguments = choose_head(cls, source, head, arguments)
        arguments["backbone"] = make_backbone(config, **of_backbone)
        try:
            return cls.from_arguments(arguments), found
        except (TypeError, ValueError) as error:
            if found is None:
                raise
            raise ValueError(
                f"{source.path}: the head that was saved there, or an "
                f"argument, does not fit {cls.__name__}: "
                f"{in_a_line(error)}."
            ) from error

    @classmethod
    def arguments_of_head(cls, head):
        """Arguments of the constructor that the head of a checkpoint decides.

        Args:
            head: Head of `xlnet_tf.weights.source`.

        Returns:
            dict.
        """
        return head.arguments

    def compile(self, optimizer="auto", loss="auto", *args, **kwargs):
        """Configure training; see `RawStringModel.compile`.

        Raises:
            ValueError: if the loss takes probabilities.
        """
        refuse_of_probabilities(loss, self)
        super().compile(optimizer, loss, *args, **kwargs)

    def default_loss(self):
        """The loss that `compile` takes, or None where `call` gives it."""
        return None

    def default_metrics(self):
        """list of metrics that `compile` takes, or None."""
        return None

    def computation(self):
        return (*self.backbone.computation(), *super().computation())

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is None:
            return
        if iterator is not None:
            # Keras would read a batch, which a generator does not give again,
            # and average it over the replicas, which bool features do not
            # allow.
            specs = iterator._get_iterator().element_spec
            data_batch = keras.tree.map_structure(_of_one_replica, specs)
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    @property
    def trainable_variables(self):
        """Trainable variables that the outputs depend on."""
        return self._without_unused(super().trainable_variables)

    @property
    def trainable_weights(self):
        """Trainable weights that the outputs depend on."""
        return self._without_unused(super().trainable_weights)

    def _without_unused(self, variables):
        if self.reads_query:
            return variables
        # Without targets there is no query stream, so the mask embedding has
        # no gradient: in the list, Keras would warn of that in each `fit`, and
        # AdamW's weight decay would shrink the pretrained values to zero.
        unused = getattr(self.backbone, "mask_embedding", None)
        return [v for v in variables if v is not unused]

    @property
    def config(self):
        """The config of the backbone, XLNetConfig or BertConfig."""
        return self.backbone.config

    def call(self, features, training=None):
        """Outputs of the head for the content; see the class of the task."""
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def encode(self, features, training=None):
        """Run the backbone, and give the seed of the head's own dropout.

        Args:
            features: dict as the backbone takes.
            training: bool, whether dropout is applied.

        Returns:
            (dict of outputs of the backbone, int tensor of shape [2] or None
            for no dropout).
        """
        if not training:
            return self.backbone(features, training=False), None
        features = as_features(features)
        seed = self.backbone.dropout_seed(features)
        features = {**features, "dropout_seed": seed}
        return self.backbone(features, training=True), seed

    def heads(self, arguments):
        """Layers besides the backbone that another model has too.

        Args:
            arguments: dict, constructor arguments of the other model.

        Returns:
            dict of str to layer, by the names of the attributes.
        """
        return {"head": self.head}

    def get_config(self):
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            **super().get_config(),
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
        return super().from_config(config)


def _of_one_replica(spec):
    """The TensorSpec of a replica's part of a batch."""
    return getattr(spec, "_value_specs", (spec,))[0]
