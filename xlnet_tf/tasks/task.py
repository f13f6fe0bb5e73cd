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

# Arguments of `from_preset` for the backbone.
_OF_THE_BACKBONE = (
    "dtype",
    "seed",
    "rematerialize",
    "attention_kernel",
)


class Task(Preset, BaseModel):
    """A backbone with a head on it.

    With a preprocessor, `fit`, `evaluate`, `predict` and their `*_on_batch`
    accept raw strings: lists, arrays, a column of a data frame, or batches of a
    tf.data.Dataset, a `keras.utils.PyDataset` or a generator. Ready features,
    dicts with `token_ids`, skip the preprocessor. The first `fit` or `evaluate`
    compiles an uncompiled model.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        head: layer with the task's own weights.
        preprocessor: Preprocessor, or None for features alone.

    Attributes:
        preprocessor_cls: class of the preprocessor for `from_preset`, or None.
        new_head_arguments: names of constructor arguments that change the
            head's shapes; with another value `from_preset` keeps the head's
            initial weights.
        head_has_dropout: bool, whether the constructor has an argument
            `dropout` for the head; `from_preset` then sets it together with the
            backbone's.
        head_sources: names of other tasks with a compatible head.
        reads_query: bool, whether the task uses the query stream. If not, the
            mask embedding is unused and not among the trainable variables.
        segment_length: int or None, tokens computed at a time.
        takes_class_weight: bool, whether a row has one class and `fit` accepts
            `class_weight`.
        weighs_metrics: bool, whether `metrics` of `compile` are weighted too,
            because a label with the weight 0 is no label.
        preprocessor: Preprocessor or None; can be set at any time. ValueError
            if its tokenizer has more pieces than the model has tokens, its
            layout differs from the model's, or its sequences have more tokens
            than a BERT has positions.

    Raises:
        ValueError: see `preprocessor`.
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
        # This check comes first: Python would name a missing argument, not the
        # misspelt one.
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
        """Make an unbuilt head for a backbone, in the precision of the task.

        Args:
            head_class: class of `xlnet_tf.tasks.heads`.
            backbone: XLNetBackbone or BertBackbone.
            kwargs: dict, the task's arguments for the constructor of Task.
            **arguments: other arguments of the head's class.
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
            preprocessor: Preprocessor, or None to accept only features.
                Default: the directory's preprocessor, if there is a tokenizer,
                and TensorFlow Text and SentencePiece are installed.
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
        chosen_head, arguments = choose_head(cls, source, head, arguments)
        arguments["backbone"] = make_backbone(config, **of_backbone)
        try:
            return cls.from_arguments(arguments), chosen_head
        except (TypeError, ValueError) as error:
            if chosen_head is None:
                raise
            raise ValueError(
                f"{source.path}: the head that was saved there, or an "
                f"argument, does not fit {cls.__name__}: "
                f"{in_a_line(error)}."
            ) from error

    @classmethod
    def arguments_of_head(cls, head):
        """Constructor arguments that follow from a checkpoint's head.

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
        """Load the preprocessor of a model directory, if there is one.

        Args:
            path: str or path of a directory or of a checkpoint in it.
            verify: bool, whether to compare its files with a `SHA256SUMS` in
                the same directory, if there is one. Default True.
        """
        layout, longest = self.config.layout, most_positions(self.config)
        found = self.preprocessor_cls.find(path, verify, layout)
        try:
            if found is not None and found.sequence_length > longest:
                found = found.with_settings(sequence_length=longest)
            self.preprocessor = found
        except ValueError as error:
            # The model still works with features, or another preprocessor.
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
        """`BaseModel.checked`, also for data frames; strings are unchanged."""
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
        """Configure training, with the usual defaults of the task.

        Args:
            optimizer: default AdamW, gradients clipped at a norm of 1, with a
                learning rate of 2e-5, or 5e-4 for models of at most width 256.
            loss: default the task's loss.
            metrics: default, with the default loss, the task's, weighted.
            loss_weights, weighted_metrics, kwargs: of `keras.Model.compile`.

        Raises:
            ValueError: if the loss needs probabilities.
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
            # A constant rate: callbacks can set it, unlike a schedule.
            rate = default_rate(self.config.hidden_dim)
            optimizer = AdamW(rate, global_clipnorm=1.0)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(inner, "layer_decay", 1) != 1:
            # The optimizer cannot count frozen layers: it gets none of their
            # variables.
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
        """Compile from a file's config; Keras skips custom `compile`s."""
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
        """`keras.Model.fit`, also on raw strings; see the class."""
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
            shuffle = False  # its own order; Keras would warn about its default
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
        """`keras.Model.evaluate`, also on raw strings; see the class."""
        self._compile_by_default()
        x, y, sample_weight, batch_size = fit_input.keras_input(
            self, x, y, sample_weight, batch_size
        )
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, *args, **kwargs
        )

    def predict(self, x, batch_size=None, *args, **kwargs):
        """`keras.Model.predict`, also on raw strings; see the class."""
        x, _, _, batch_size = fit_input.keras_input(
            self, x, batch_size=batch_size
        )
        return super().predict(x, batch_size, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.train_on_batch`, also on raw strings."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().train_on_batch(*batch, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.test_on_batch`, also on raw strings."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().test_on_batch(*batch, *args, **kwargs)

    def predict_on_batch(self, x):
        """`keras.Model.predict_on_batch`, also on raw strings."""
        return super().predict_on_batch(fit_input.prepared(self, x)[0])

    def numbered(self, y, x=None):
        """Convert labels to the form for the loss.

        Args:
            y: labels of `fit` for lists or arrays, or None.
            x: the lists or arrays, only inspected.

        Raises:
            ValueError: if a label is unknown to the model.
        """
        return y

    def numbered_weights(self, class_weight):
        """`class_weight` of `fit` by numbers of classes instead of names."""
        return class_weight

    def label_range(self, data):
        """The valid labels of a data set.

        Args:
            data: tf.data.Dataset; only its `element_spec` is inspected.

        Returns:
            tuple, arguments of `fit_input.check_labels` after the data set, or
            None for unchecked labels.
        """

    def default_loss(self):
        """The default loss for `compile`, or None if `call` computes it."""
        return None

    def default_metrics(self):
        """list of default metrics for `compile`, or None."""
        return None

    def computation(self):
        return (*self.backbone.computation(), *super().computation())

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is None:
            return
        if iterator is not None:
            # Keras would consume a batch, which a generator cannot repeat, and
            # average it over the replicas, which fails for bool features.
            specs = iterator._get_iterator().element_spec
            data_batch = keras.tree.map_structure(_of_one_replica, specs)
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    @property
    def trainable_variables(self):
        """Trainable variables that affect the outputs."""
        return self._without_unused(super().trainable_variables)

    @property
    def trainable_weights(self):
        """Trainable weights that affect the outputs."""
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
        # Without targets there is no query stream, so the mask embedding has no
        # gradient. If it were in the list, Keras would warn in each `fit`, and
        # AdamW's weight decay would shrink the pretrained values to zero.
        unused = getattr(self.backbone, "mask_embedding", None)
        return [v for v in variables if v is not unused]

    @property
    def config(self):
        """The config of the backbone, XLNetConfig or BertConfig."""
        return self.backbone.config

    def call(self, features, training=None):
        """Apply the head to the content; see the class of the task."""
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def encode(self, features, training=None):
        """Run the backbone, and derive the seed of the head's dropout.

        Args:
            features: dict of the backbone's features.
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
        """Layers besides the backbone that another model shares.

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
    """The TensorSpec for a replica's part of a batch."""
    return getattr(spec, "_value_specs", (spec,))[0]
