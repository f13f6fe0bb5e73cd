"""Models that take raw strings in `fit`, `evaluate` and `predict`.

TensorFlow is imported when the first raw input comes.
"""

import contextlib
import math
import warnings

import keras

from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.preprocessing.strings import to_tensor

DEFAULT_BATCH_SIZE = 32


class RawStringModel:
    """Mixin of a `keras.Model` that is compiled and fed by default.

    The model has `config`, an XLNetConfig, `default_loss` and
    `default_metrics`.

    `fit`, `evaluate`, `predict` and their `*_on_batch` take raw strings: lists,
    arrays, or a tf.data.Dataset of batches. Ready features, dicts with
    `token_ids`, skip the preprocessor. The first `fit` or `evaluate` compiles
    a model that is not compiled.

    Attributes:
        preprocessor: Preprocessor or None; may be set at any time. ValueError
            if its tokenizer has more pieces than the model tokens.
    """

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

    def find_preprocessor(self, path):
        """Take the preprocessor of a model directory, if there is one.

        Args:
            path: str or path of a directory or of a checkpoint in it.
        """
        found = self.preprocessor_cls.find(path)
        try:
            self.preprocessor = found
        except ValueError as error:
            # Features can still be given, and another preprocessor.
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
        """Configures training, by default as the task is usually trained.

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
                data, validation = split(self.preprocessor, *data, fraction)
            kwargs["validation_batch_size"] = validation_size
            shuffle = kwargs.pop("shuffle", True)
            x = to_data_set(self.preprocessor, *data, batch_size, shuffle)
            y = batch_size = None
            kwargs["shuffle"] = False  # the data set is shuffled
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
            x = to_data_set(self.preprocessor, x, y, sample_weight, batch_size)
            y = sample_weight = batch_size = None
        return super().evaluate(
            x, y, batch_size, sample_weight=sample_weight, **kwargs
        )

    def predict(self, x, batch_size=None, **kwargs):
        """`keras.Model.predict`, of raw strings too; see the class."""
        if self._is_raw(x):
            x = to_data_set(self.preprocessor, x, batch_size=batch_size)
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
        batch = tensors(self.preprocessor, x, y, sample_weight)
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
        return to_data_set(self.preprocessor, *parts, batch_size)

    def _is_raw(self, x):
        if not is_raw(x):
            return False
        check_preprocessor(self)
        return True

    def _compile_by_default(self):
        if not self.compiled:
            strategy = getattr(self, "_distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.compile()


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


def is_raw(x):
    """Whether input, or an element of a data set, holds strings.

    Args:
        x: whatever `fit` takes as `x`.
    """
    if hasattr(x, "element_spec"):
        spec = x.element_spec
        return is_raw(spec[0] if isinstance(spec, tuple) else spec)
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, dict):
        return "token_ids" not in x and any(map(is_raw, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(is_raw, x[:2]))  # the second of a pair, at most
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return False
    kind = getattr(dtype, "kind", None)
    if kind == "O":
        return is_raw(x.__array__().ravel()[:1].tolist())
    return kind in ("U", "S", "T") or getattr(dtype, "name", "") in (
        "string",
        "str",
    )


def to_data_set(
    preprocessor, x, y=None, sample_weight=None, batch_size=None, shuffle=False
):
    """A data set of batches of features.

    Args:
        preprocessor: Preprocessor.
        x: raw input, or a tf.data.Dataset of batches of it: `x`, `(x, y)` or
            `(x, y, sample_weight)`.
        y: labels in lists, arrays or dicts of them, or None.
        sample_weight: weights, or None.
        batch_size: int, default 32.
        shuffle: bool, whether every pass has another order. Default False.

    Returns:
        tf.data.Dataset.

    Raises:
        ValueError: if the parts do not have the same number of examples, or
            are given beside a data set.
    """
    import tensorflow as tf

    if hasattr(x, "element_spec"):
        _check_batches(preprocessor, x, y, sample_weight, batch_size)
        data = x
    else:
        parts = tensors(preprocessor, x, y, sample_weight)
        count = _count(parts)
        data = tf.data.Dataset.from_tensor_slices(parts)
        if shuffle:
            data = data.shuffle(max(count, 1))
        data = data.batch(batch_size or DEFAULT_BATCH_SIZE)
        options = tf.data.Options()
        # The thread of tf.data's tuning may delay the end by as long as the
        # data lasted (TensorFlow 2.20). A data set of the user keeps its
        # options.
        options.autotune.enabled = False
        data = data.with_options(options)
    return data.map(
        tf.autograph.experimental.do_not_convert(preprocessor),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).prefetch(2)


def split(preprocessor, x, y, sample_weight, fraction):
    """The first examples to train on, and the last ones to validate on.

    Args:
        preprocessor: Preprocessor.
        x, y, sample_weight: as `to_data_set` takes them.
        fraction: float, the share to validate on.

    Returns:
        two tuples of x, y, sample_weight.

    Raises:
        ValueError: if one of them would be empty, or `x` is a data set.
    """
    if hasattr(x, "element_spec"):
        raise ValueError(
            "`validation_split` needs lists or arrays, and `x` is a data set. "
            "Give `validation_data`."
        )
    parts = tensors(preprocessor, x, y, sample_weight)
    count = _count(parts)
    kept = math.floor(count * (1 - fraction))
    if not 0 < kept < count:
        raise ValueError(
            "`validation_split` must leave examples to train on and to "
            f"validate on. Received: validation_split={fraction} of {count} "
            "examples."
        )
    return tuple(
        keras.utils.unpack_x_y_sample_weight(
            keras.tree.map_structure(lambda part, s=s: part[s], parts)
        )
        for s in (slice(kept), slice(kept, None))
    )


def tensors(preprocessor, x, y=None, sample_weight=None):
    """Raw input and labels as tensors, packed as Keras packs them."""
    return keras.utils.pack_x_y_sample_weight(
        preprocessor.tensors(x), _labels(y), _labels(sample_weight)
    )


def _labels(y):
    if isinstance(y, dict):
        return {name: to_tensor(part) for name, part in y.items()}
    return None if y is None else to_tensor(y)


def _count(parts):
    """The number of examples, the same in all parts."""
    flat = keras.tree.flatten(parts)
    if any(part.shape.rank == 0 for part in flat):
        raise ValueError(
            "`x`, `y` and `sample_weight` must be batches; put a single text "
            "into a list."
        )
    counts = [int(part.shape[0]) for part in flat]
    if len(set(counts)) > 1:
        raise ValueError(
            "`x`, `y` and `sample_weight` must have the same number of "
            f"examples. Received: {', '.join(map(str, counts))}."
        )
    return counts[0]


def _check_batches(preprocessor, data, y, sample_weight, batch_size):
    if y is not None or sample_weight is not None or batch_size is not None:
        raise ValueError(
            "`x` is a data set, which gives labels, weights and batches "
            "itself: leave `y`, `sample_weight` and `batch_size` out."
        )
    spec = data.element_spec
    first, *others = spec if isinstance(spec, tuple) else (spec,)
    # Labels of questions are a dict, with the texts of the answers.
    if others and not isinstance(others[0], dict) and is_raw(others[0]):
        raise ValueError(
            "a data set must give `x`, `(x, y)` or `(x, y, sample_weight)`, "
            "and its `y` are strings. Give pairs of texts as a dict of "
            '"text" and "text_pair", or as `((text, text_pair), y)`.'
        )
    parts = keras.tree.flatten(first)
    if any(part.shape.rank == preprocessor.string_rank for part in parts[:1]):
        raise ValueError(
            "a data set must give batches: call `.batch(size)` on it."
        )
