"""Models that take raw strings in `fit`, `evaluate` and `predict`.

TensorFlow is imported when the first raw input comes.
"""

import contextlib
import inspect
import math
import warnings

import keras

from xlnet_tf.config.rates import default_rate
from xlnet_tf.optimizer import AdamW
from xlnet_tf.preprocessing.data_sets import arrays_beside
from xlnet_tf.preprocessing.data_sets import check_labels
from xlnet_tf.preprocessing.data_sets import is_batches
from xlnet_tf.preprocessing.data_sets import prepared_batches
from xlnet_tf.preprocessing.data_sets import split
from xlnet_tf.preprocessing.data_sets import tensors
from xlnet_tf.preprocessing.data_sets import to_data_set
from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.strings import of_frame
from xlnet_tf.preprocessing.strings import refuse_numbers


class RawStringModel:
    """Mixin of a `keras.Model` that is compiled and fed by default.

    The model has `config`, an XLNetConfig or BertConfig, `default_loss`,
    `default_metrics`, and `checked` of BaseModel.

    `fit`, `evaluate`, `predict` and their `*_on_batch` take raw strings: lists,
    arrays, a column of a data frame, or batches of a tf.data.Dataset, a
    `keras.utils.PyDataset` or a generator. Ready features, dicts with
    `token_ids`, skip the preprocessor. The first `fit` or `evaluate` compiles a
    model that is not compiled.

    Attributes:
        preprocessor: Preprocessor or None; may be set at any time. ValueError
            if its tokenizer has more pieces than the model tokens, its layout
            is another than the model's, or its sequences have more tokens
            than a BERT has positions.
        takes_class_weight: bool, whether a row has one class, which
            `class_weight` of `fit` weighs.
        weighs_metrics: bool, whether `metrics` of `compile` count by weight
            too, because a label of a weight of 0 is no label.
    """

    takes_class_weight = True
    weighs_metrics = False

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
        layout, longest = self.config.layout, _positions(self.config)
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
        """
        metrics, weighted_metrics = keras.tree.map_structure(
            self.checked_metric, (metrics, weighted_metrics)
        )
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
        x = self._input(x)
        if class_weight is not None and not self.takes_class_weight:
            raise ValueError(
                "`class_weight` needs one class for each row, which this task "
                "does not have. Leave it out."
            )
        check_weights(x, y, sample_weight, class_weight)
        class_weight = self.numbered_weights(class_weight)
        y = self.numbered(y, x)
        validation = validation_data
        validation_size = kwargs.get("validation_batch_size") or batch_size
        if self._is_raw(x):
            data = (x, y, sample_weight)
            if validation_split and validation is None:
                data, validation = split(
                    self.preprocessor, *data, validation_split
                )
            kwargs["validation_batch_size"] = validation_size
            x = to_data_set(self.preprocessor, *data, batch_size, shuffle)
            y = batch_size = sample_weight = None
            validation_split = 0.0
        y, sample_weight = arrays_beside(x, y), arrays_beside(x, sample_weight)
        if hasattr(x, "element_spec") or inspect.isgenerator(x):
            shuffle = False  # in its own order; Keras would warn of its default
        if validation is not None:
            validation = self._validation(validation, validation_size)
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
        x = self._input(x)
        check_weights(x, y, sample_weight)
        y = self.numbered(y, x)
        if self._is_raw(x):
            x = to_data_set(self.preprocessor, x, y, sample_weight, batch_size)
            y = sample_weight = batch_size = None
        y, sample_weight = arrays_beside(x, y), arrays_beside(x, sample_weight)
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, *args, **kwargs
        )

    def predict(self, x, batch_size=None, *args, **kwargs):
        """`keras.Model.predict`, of raw strings too; see the class."""
        x = self._input(x)
        if self._is_raw(x):
            x = to_data_set(self.preprocessor, x, batch_size=batch_size)
            batch_size = None
        return super().predict(x, batch_size, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.train_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = self.prepared(x, y, sample_weight)
        return super().train_on_batch(*batch, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        """`keras.Model.test_on_batch`, of raw strings too."""
        self._compile_by_default()
        batch = self.prepared(x, y, sample_weight)
        return super().test_on_batch(*batch, *args, **kwargs)

    def predict_on_batch(self, x):
        """`keras.Model.predict_on_batch`, of raw strings too."""
        return super().predict_on_batch(self.prepared(x)[0])

    def numbered(self, y, x=None):
        """Convert labels to the form that the loss takes.

        Args:
            y: labels of `fit` beside lists or arrays, or None.
            x: the lists or arrays, which are only looked at.

        Raises:
            ValueError: if one is not known to the model.
        """
        return y

    def checked_metric(self, metric):
        """A metric of `compile`, as it fits the outputs."""
        return metric

    def numbered_weights(self, class_weight):
        """`class_weight` of `fit` by numbers of classes, not by names."""
        return class_weight

    def label_range(self, data):
        """The labels of a data set that are known to the model.

        Args:
            data: tf.data.Dataset, whose `element_spec` is looked at.

        Returns:
            tuple, arguments of `check_labels` after the data set, or None for
            labels that are not checked.
        """

    def _input(self, x):
        """Input of `fit`, `evaluate` or `predict` as its parts are read."""
        if is_batches(x):
            return prepared_batches(self, x)
        x = self.checked(x)
        limits = self.label_range(x) if hasattr(x, "element_spec") else None
        return x if limits is None else check_labels(x, *limits)

    def prepared(self, x, y=None, sample_weight=None):
        """A batch of raw strings as features; features as they are.

        Args:
            x, y, sample_weight: as `fit` takes them.

        Returns:
            tuple of x, y, sample_weight.
        """
        x = self.checked(x)
        check_weights(x, y, sample_weight)
        y = self.numbered(y, x)
        if not self._is_raw(x):
            return x, y, sample_weight
        batch = tensors(self.preprocessor, x, y, sample_weight)
        return keras.utils.unpack_x_y_sample_weight(
            self.preprocessor(*keras.utils.unpack_x_y_sample_weight(batch))
        )

    def _validation(self, data, batch_size):
        if is_batches(data):
            return self._input(data)
        if hasattr(data, "element_spec"):
            data = self._input(data)
            parts = (data,)
        elif isinstance(data, (list, tuple)):
            x = self.checked(data[0])
            others = [*(self.numbered(y, x) for y in data[1:2]), *data[2:]]
            if not self._is_raw(x):
                others = [arrays_beside(x, part) for part in others]
            parts = data = (x, *others)
        else:
            return data
        if not self._is_raw(parts[0]):
            return data
        parts = [*parts, None, None][:3]
        if hasattr(data, "element_spec"):
            batch_size = None
        return to_data_set(self.preprocessor, *parts, batch_size)

    def _is_raw(self, x):
        if isinstance(x, (list, tuple)) and not len(x):
            raise ValueError(
                "`x` must hold one example or more. Received: an empty "
                f"{type(x).__name__}."
            )
        if not is_raw(x):
            refuse_numbers(x)
            return False
        check_preprocessor(self)
        return True

    def _compile_by_default(self):
        if not self.compiled:
            strategy = getattr(self, "_distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.compile()


def _positions(config):
    return getattr(config, "max_positions", math.inf)


def check_positions(config, sequence_length):
    """Refuse sequences of more tokens than a model has positions.

    Raises:
        ValueError: if so.
    """
    if sequence_length > _positions(config):
        raise ValueError(
            "`sequence_length` must be at most the positions of the model, "
            f"{config.max_positions}. Received: "
            f"sequence_length={sequence_length}."
        )


def check_weights(x, y, sample_weight, class_weight=None):
    """Refuse weights without labels, which Keras would ignore.

    Raises:
        ValueError: if there are weights and no labels that they weigh.
    """
    of_rows = isinstance(x, (dict, list, tuple)) or hasattr(x, "shape")
    given = sample_weight is not None or class_weight is not None
    if y is None and of_rows and given:
        raise ValueError(
            "`sample_weight` and `class_weight` weigh `y`, which is not given. "
            "Targets of pretraining are weighed by the feature "
            "`target_weights` [B, P]."
        )


def check_preprocessor(task):
    """Refuse raw strings for a task without a preprocessor.

    Raises:
        ValueError: if the task has none.
    """
    if task.preprocessor is None:
        raise ValueError(
            f"{type(task).__name__} has no preprocessor, so it takes "
            "features, not strings. Give it one: `task.preprocessor = "
            "...`, or `from_preset` on a directory with a tokenizer."
        )
