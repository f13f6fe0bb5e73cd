"""The base of all tasks: a backbone with a head, and a preprocessor."""

import contextlib
import os
import warnings

import keras

from data_pipeline.base.limits import in_a_line
from xlnet_tf.config.rates import default_rate
from xlnet_tf.model.backbones import make_backbone
from xlnet_tf.model.base_model import BaseModel
from xlnet_tf.model.inputs import as_features
from xlnet_tf.optimizer import AdamW
from xlnet_tf.preprocessing import fit_input
from xlnet_tf.preprocessing.files import can_preprocess
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.preprocessor import check_positions
from xlnet_tf.preprocessing.preprocessor import check_vocabulary
from xlnet_tf.preprocessing.preprocessor import most_positions
from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.strings import of_frame
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
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


class Task(Preset, BaseModel):
    """A backbone with a head on it.

    With a preprocessor, `fit`, `evaluate`, `predict` and their `*_on_batch`
    take raw strings: lists, arrays, a column of a data frame, or batches of a
    tf.data.Dataset, a `keras.utils.PyDataset` or a generator. Ready features,
    dicts with `token_ids`, skip the preprocessor. The first `fit` or
    `evaluate` compiles a model that is not compiled.

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
        takes_class_weight: bool, whether a row has one class, which
            `class_weight` of `fit` weighs.
        weighs_metrics: bool, whether `metrics` of `compile` count by weight
            too, because a label of a weight of 0 is no label.
        preprocessor: Preprocessor or None; may be set at any time. ValueError
            if its tokenizer has more pieces than the model tokens, its layout
            is another than the model's, or its sequences have more tokens
            than a BERT has positions.

    Raises:
        ValueError: as of `preprocessor`.
    """

    new_head_arguments: tuple[str, ...] = ()
    head_has_dropout = False
    head_sources: tuple[str, ...] = ()
    reads_query = False
    preprocessor_cls: type[Preprocessor] | None = (
        XLNetTextClassifierPreprocessor
    )
    segment_length: int | None = None
    takes_class_weight = True
    weighs_metrics = False

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
        self.finish_layers()

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

    @property
    def preprocessor(self):
        return self._preprocessor

    @preprocessor.setter
    def preprocessor(self, value):
        if value is not None:
            pieces = value.tokenizer.vocabulary_size
            check_vocabulary(pieces, self.config.vocabulary_size)
            layout = self.config.layout
            if value.layout != layout:
                raise ValueError(
                    f"the preprocessor has the layout {value.layout!r} and the "
                    f"model {layout!r}. Give the preprocessor "
                    f"layout={layout!r}."
                )
            check_positions(self.config, value.sequence_length)
        self._preprocessor = value

    def find_preprocessor(self, path, verify=True):
        """Take the preprocessor of a model directory, if there is one.

        Args:
            path: str or path of a directory or of a checkpoint in it.
            verify: bool, whether to compare its files with the `SHA256SUMS`
                beside them, if there is one. Default True.
        """
        layout, longest = self.config.layout, most_positions(self.config)
        found = self.preprocessor_cls.find(path, verify, layout)
        try:
            if found is not None and found.sequence_length > longest:
                found = found.with_settings(sequence_length=longest)
            self.preprocessor = found
        except ValueError as error:
            # The model still takes features, or another preprocessor.
            warnings.warn(
                f"{path} gives no preprocessor: {error}", stacklevel=3
            )

    def __call__(self, *args, **kwargs):
        if args and is_raw(args[0]):
            raise TypeError(
                f"{type(self).__name__} is called on features, not on raw "
                "strings. Give these to `predict`, or call it on "
                "`model.preprocessor(x)`."
            )
        return super().__call__(*args, **kwargs)

    def checked(self, x):
        """`BaseModel.checked`; the column of a data frame; strings as is."""
        x = of_frame(x)
        return x if is_raw(x) else super().checked(x)

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        loss_weights=None,
        metrics="auto",
        weighted_metrics=None,
        **kwargs,
    ):
        """Configure training, by default as the task is usually trained.

        Args:
            optimizer: default AdamW, gradients clipped at a norm of 1, at a
                learning rate of 2e-5, or 5e-4 for models of a width of at
                most 256.
            loss: default the task's own.
            metrics: default, with the default loss, the task's own, by weight.
            loss_weights, weighted_metrics, kwargs: of `keras.Model.compile`.

        Raises:
            ValueError: if the loss takes probabilities.
        """
        refuse_of_probabilities(loss, self)
        is_auto = isinstance(metrics, str) and metrics == "auto"
        if is_auto:
            metrics = None
        if isinstance(loss, str) and loss == "auto":
            loss = self.default_loss()
            if is_auto and weighted_metrics is None:
                weighted_metrics = self.default_metrics()
        if self.weighs_metrics and metrics is not None:
            given = keras.tree.flatten([metrics, weighted_metrics])
            weighted_metrics = [one for one in given if one is not None]
            metrics = None
        if isinstance(optimizer, str) and optimizer == "auto":
            # A constant rate, which callbacks can set, unlike a schedule.
            rate = default_rate(self.config.hidden_dim)
            optimizer = AdamW(rate, global_clipnorm=1.0)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(inner, "layer_decay", 1) != 1:
            # The optimizer cannot count frozen layers: it gets no variables of
            # theirs.
            inner.num_layers = self.config.num_layers
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def compile_from_config(self, config):
        """Compile as a file says; Keras does not where `compile` is ours."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _compile_by_default(self):
        if not self.compiled:
            strategy = getattr(self, "_distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.compile()

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        **kwargs,
    ):
        """`keras.Model.fit`, of raw strings too; see the class."""
        self._compile_by_default()
        if class_weight is not None:
            if not self.takes_class_weight:
                raise ValueError(
                    "`class_weight` needs one class for each row, which this "
                    "task does not have. Leave it out."
                )
            if y is None and not fit_input.gives_batches(x):
                fit_input.refuse_weights()
            class_weight = self.numbered_weights(class_weight)
        data, validation = (x, y, sample_weight), validation_data
        if validation_split and validation is None and is_raw(x):
            data, validation = fit_input.split(self, *data, validation_split)
            validation_split = 0.0
        size = kwargs.setdefault("validation_batch_size", batch_size)
        x, y, sample_weight, batch_size = fit_input.keras_input(
            self, *data, batch_size, shuffle
        )
        if isinstance(validation, (list, tuple)):
            *rows, _ = fit_input.keras_input(self, *validation, batch_size=size)
            validation = keras.utils.pack_x_y_sample_weight(*rows)
        elif validation is not None:
            validation = fit_input.keras_input(self, validation)[0]
        if fit_input.gives_batches(x):
            shuffle = False  # in its own order; Keras would warn of its default
        data = x, y, batch_size, epochs, verbose, callbacks, validation_split
        others = validation, shuffle, class_weight, sample_weight
        return super().fit(*data, *others, **kwargs)

    def evaluate(
        self,
        x=None,
        y=None,
        batch_size=None,
        verbose="auto",
        sample_weight=None,
        *args,
        **kwargs,
    ):
        """`keras.Model.evaluate`, of raw strings too; see the class."""
        self._compile_by_default()
        x, y, sample_weight, batch_size = fit_input.keras_input(
            self, x, y, sample_weight, batch_size
        )
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, *args, **kwargs
        )

    def predict(self, x, batch_size=None, *args, **kwargs):
        """`keras.Model.predict`, of raw strings too; see the class."""
        x, _, _, batch_size = fit_input.keras_input(
            self, x, batch_size=batch_size
        )
        return super().predict(x, batch_size, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.train_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().train_on_batch(*batch, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.test_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().test_on_batch(*batch, *args, **kwargs)

    def predict_on_batch(self, x):
        """`keras.Model.predict_on_batch`, of raw strings too."""
        return super().predict_on_batch(fit_input.prepared(self, x)[0])

    def numbered(self, y, x=None):
        """Convert labels to the form that the loss takes.

        Args:
            y: labels of `fit` beside lists or arrays, or None.
            x: the lists or arrays, which are only looked at.

        Raises:
            ValueError: if one is not known to the model.
        """
        return y

    def numbered_weights(self, class_weight):
        """`class_weight` of `fit` by numbers of classes, not by names."""
        return class_weight

    def label_range(self, data):
        """The labels of a data set that are known to the model.

        Args:
            data: tf.data.Dataset, whose `element_spec` is looked at.

        Returns:
            tuple, arguments of `fit_input.check_labels` after the data set, or
            None for labels that are not checked.
        """

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

    @property
    def non_trainable_variables(self):
        """All other variables."""
        return self._others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self):
        """All other weights."""
        return self._others(self.weights, self.trainable_weights)

    @staticmethod
    def _others(variables, trainable):
        ids = {id(v) for v in trainable}
        return [v for v in variables if id(v) not in ids]

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
