"""Base class of all tasks: a backbone, a head and a preprocessor."""

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

# Arguments of `from_preset` that configure the backbone.
_OF_THE_BACKBONE = (
    "dtype",
    "seed",
    "rematerialize",
    "attention_kernel",
)


class Task(Preset, BaseModel):
    """Model with a backbone and a head on its outputs; base class of the tasks.

    With a preprocessor, `fit`, `evaluate`, `predict` and the methods
    `*_on_batch` accept raw strings. The strings are in lists, arrays, a column
    of a data frame, or batches of a tf.data.Dataset, a `keras.utils.PyDataset`
    or a generator. Ready features (dicts with `token_ids`) skip the
    preprocessor. The first `fit` or `evaluate` compiles an uncompiled model.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        head: layer with the task's own weights.
        preprocessor: Preprocessor, or None to accept only features.

    Attributes:
        preprocessor_cls: class of the preprocessor that `from_preset` loads, or
            None.
        new_head_arguments: names of constructor arguments that change the
            head's shapes. If such an argument of `from_preset` differs from the
            saved head's value, the task gets a new head. If the argument
            `head` selects the saved head, `from_preset` raises ValueError
            instead.
        head_has_dropout: bool, whether the constructor has an argument
            `dropout` for the head. If so, `from_preset(path, dropout=...)` sets
            the dropout rates of the backbone and of the head.
        has_ragged_outputs: bool, whether the width of the outputs depends on
            the batch, such as one output per token.
        head_sources: names of other classes of tasks whose saved heads fit
            this task.
        reads_query: bool, whether the task uses the query stream. If not, the
            mask embedding is unused, and so not a trainable variable.
        segment_length: int, number of tokens computed at a time. None: all
            tokens of the sequence.
        takes_class_weight: bool, whether `fit` accepts `class_weight`, which
            needs one class for each row.
        weighs_metrics: bool. If True, `compile` treats `metrics` as
            `weighted_metrics`, which Keras weights by `sample_weight`. In such
            a task, a weight of 0 marks a missing label.
        preprocessor: Preprocessor or None; can be set at any time. The setter
            raises ValueError if the tokenizer has more pieces than the model
            has tokens, or if the preprocessor's `layout` differs from the
            model's `config.layout`. For a BERT, the setter raises ValueError if
            `sequence_length` is larger than the number of positions.

    Raises:
        ValueError: if the preprocessor does not fit the model; see the
            attribute `preprocessor`.
    """

    new_head_arguments: tuple[str, ...] = ()
    head_has_dropout = False
    has_ragged_outputs = False
    head_sources: tuple[str, ...] = ()
    reads_query = False
    preprocessor_cls: type[Preprocessor] | None = (
        XLNetTextClassifierPreprocessor
    )
    segment_length: int | None = None
    takes_class_weight = True
    weighs_metrics = False

    def __new__(cls, *args, **kwargs):
        # This check comes first, because Python would report a missing argument
        # instead of the misspelt argument.
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
        """Make an unbuilt head for a backbone, with the dtype of the task.

        Args:
            head_class: class of `xlnet_tf.tasks.heads`.
            backbone: XLNetBackbone or BertBackbone.
            kwargs: dict, arguments for the constructor of Task. Only `dtype` is
                read.
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
                `Preset.from_preset`.
            preprocessor: Preprocessor, or None to accept only features.
                Default: the preprocessor in the directory. The default is None
                if the directory has no tokenizer, or if TensorFlow Text or
                SentencePiece is not installed.
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
                "`activation` belongs to the backbone's layers, gelu or relu: "
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
        """Derive constructor arguments of the task from a checkpoint's head.

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
        """Set `preprocessor` to the preprocessor of a model directory, or None.

        Args:
            path: str or path. A model directory, or a checkpoint in the
                directory.
            verify: bool, whether to compare the preprocessor's files with a
                `SHA256SUMS` in the directory, if this file exists. Default
                True.
        """
        layout = self.config.layout
        found = self.preprocessor_cls.find(path, verify, layout)
        try:
            self.preprocessor = found and self._shortened(found)
        except ValueError as error:
            # Without a preprocessor the model still accepts features.
            warnings.warn(
                f"{path} gives no preprocessor: {error}", stacklevel=3
            )

    def _shortened(self, preprocessor):
        """Limit the sequences of a preprocessor to the model's positions."""
        longest = most_positions(self.config)
        if preprocessor.sequence_length <= longest:
            return preprocessor
        return preprocessor.with_settings(sequence_length=longest)

    def preprocessor_with(self, tokenizer):
        """Copy the preprocessor, or make one, with another tokenizer.

        Args:
            tokenizer: data_pipeline Tokenizer.

        Returns:
            Preprocessor.
        """
        if self.preprocessor is None:
            settings = {"layout": self.config.layout}
            made = self.preprocessor_cls.of_settings(settings, tokenizer)
            return self._shortened(made)
        settings = self.preprocessor.settings()
        return type(self.preprocessor)(tokenizer, **settings)

    def __call__(self, *args, **kwargs):
        if args and is_raw(args[0]):
            raise TypeError(
                f"{type(self).__name__} is called on features, not on raw "
                "strings. Give these to `predict`, or call the model on "
                "`model.preprocessor(x)`."
            )
        return super().__call__(*args, **kwargs)

    def checked(self, x):
        """Check features with `BaseModel.checked`; return strings unchecked."""
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
            optimizer: optimizer. Default: AdamW, with gradients clipped to a
                global norm of 1. The learning rate is 5e-4 if
                `config.hidden_dim` is at most 256, otherwise 2e-5.
            loss: loss. Default: the task's loss.
            metrics: metrics. With the default loss, the default is the task's
                metrics, weighted by `sample_weight`. With another loss, the
                default is no metrics.
            loss_weights, weighted_metrics, kwargs: see `keras.Model.compile`.

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
            # The rate is a constant, because callbacks cannot set a schedule.
            rate = default_rate(self.config.hidden_dim)
            optimizer = AdamW(rate, global_clipnorm=1.0)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(inner, "layer_decay", 1) != 1:
            # The optimizer gets no variables of frozen layers, so it cannot
            # count the layers itself.
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
        """Compile the model with a saved config.

        The method of Keras would skip the custom `compile` of this class.
        """
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
        """Train like `keras.Model.fit`, also on raw strings; see the class."""
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
            shuffle = False  # Keras would warn about True
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
        """Evaluate like `keras.Model.evaluate`, also on raw strings."""
        self._compile_by_default()
        x, y, sample_weight, batch_size = fit_input.keras_input(
            self, x, y, sample_weight, batch_size
        )
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, *args, **kwargs
        )

    def predict(self, x, batch_size=None, *args, **kwargs):
        """Predict like `keras.Model.predict`, also on raw strings."""
        is_ragged = self.has_ragged_outputs and is_raw(x)
        if is_ragged and keras.backend.backend() != "tensorflow":
            # Only with TensorFlow can Keras join batches of different widths.
            # So encode all rows at once.
            if not fit_input.gives_batches(x):
                x = fit_input.prepared(self, x)[0]
        x, _, _, batch_size = fit_input.keras_input(
            self, x, batch_size=batch_size
        )
        return super().predict(x, batch_size, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Train like `keras.Model.train_on_batch`, also on raw strings."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().train_on_batch(*batch, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """Evaluate like `keras.Model.test_on_batch`, also on raw strings."""
        self._compile_by_default()
        batch = fit_input.prepared(self, x, y, sample_weight)
        return super().test_on_batch(*batch, *args, **kwargs)

    def predict_on_batch(self, x):
        """Predict like `keras.Model.predict_on_batch`, also on raw strings."""
        return super().predict_on_batch(fit_input.prepared(self, x)[0])

    def numbered(self, y, x=None):
        """Convert labels to the form that the loss needs.

        Args:
            y: labels as passed to `fit`, in lists or arrays, or None.
            x: input as passed to `fit`; some tasks check `y` against it.

        Raises:
            ValueError: if a label is unknown to the model.
        """
        return y

    def numbered_weights(self, class_weight):
        """Convert the class names in the `class_weight` of `fit` to numbers."""
        return class_weight

    def label_range(self, data):
        """Range of the valid labels of a data set.

        Args:
            data: tf.data.Dataset; only its `element_spec` is read.

        Returns:
            tuple, the arguments `least`, `most`, `words` and optionally
            `any_shape` of `fit_input.check_labels`; None if labels are not
            checked.
        """

    def default_loss(self):
        """Default loss for `compile`, or None if `call` computes the loss."""
        return None

    def default_metrics(self):
        """Default metrics for `compile`, a list, or None."""
        return None

    def computation(self):
        return (*self.backbone.computation(), *super().computation())

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = getattr(self, "_distribute_strategy", None)
        if strategy is None:
            return
        if iterator is not None:
            # Keras would consume a batch, which a generator cannot repeat, and
            # would average the batch over the replicas, which fails for bool
            # features.
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
        """Variables that are not in `trainable_variables`."""
        return self._others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self):
        """Weights that are not in `trainable_weights`."""
        return self._others(self.weights, self.trainable_weights)

    @staticmethod
    def _others(variables, trainable):
        ids = {id(v) for v in trainable}
        return [v for v in variables if id(v) not in ids]

    def _without_unused(self, variables):
        if self.reads_query:
            return variables
        # Without targets there is no query stream, so the mask embedding has no
        # gradient. If the mask embedding were in the list, Keras would warn in
        # each `fit`, and AdamW's weight decay would shrink its pretrained
        # values to zero.
        unused = getattr(self.backbone, "mask_embedding", None)
        return [v for v in variables if v is not unused]

    @property
    def config(self):
        """Config of the backbone, XLNetConfig or BertConfig."""
        return self.backbone.config

    def call(self, features, training=None):
        """Compute the task's outputs for features; see the class."""
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def encode(self, features, training=None):
        """Run the backbone, and derive the seed of the head's dropout.

        Args:
            features: dict of the backbone's features.
            training: bool, whether dropout is applied.

        Returns:
            (dict of outputs of the backbone, seed). The seed is an int tensor
            of shape [2], or None for no dropout.
        """
        if not training:
            return self.backbone(features, training=False), None
        features = as_features(features)
        seed = self.backbone.dropout_seed(features)
        features = {**features, "dropout_seed": seed}
        return self.backbone(features, training=True), seed

    def heads(self, arguments):
        """Layers, other than the backbone, that another model also has.

        Args:
            arguments: dict, constructor arguments of the other model.

        Returns:
            dict of layers. The keys are names of this model's attributes.
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
    """Convert the spec of a distributed batch to the spec of one replica."""
    return getattr(spec, "_value_specs", (spec,))[0]
