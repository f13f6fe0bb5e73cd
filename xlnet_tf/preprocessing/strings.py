"""Raw strings as tensors, and models that take them in `fit` and `predict`.

TensorFlow is imported when the first raw input comes.
"""

import contextlib
import math
import re

import keras

DEFAULT_BATCH_SIZE = 32

_SURROGATES = re.compile("[\ud800-\udfff]")


class RawStringModel:
    """Mixin of a `keras.Model` with `preprocessor`, a Preprocessor or None.

    `fit`, `evaluate`, `predict` and their `*_on_batch` take raw strings: lists,
    arrays, or a tf.data.Dataset of batches. Ready features, dicts with
    `token_ids`, go past the preprocessor. The first `fit` or `evaluate`
    compiles a model that is not compiled.
    """

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


def named_strings(x, required, optional=()):
    """String tensors of the parts of a dict of raw input.

    Raises:
        TypeError: if `x` is no dict, or a part is not made of strings.
        ValueError: if parts are missing or unknown.
    """
    names = ", ".join([*required, *(f"{name} (optional)" for name in optional)])
    if not isinstance(x, dict):
        raise TypeError(
            f"`x` must be a dict of {names}. Received: {type(x).__name__}."
        )
    parts = {name: part for name, part in x.items() if part is not None}
    if not set(required) <= set(parts) <= {*required, *optional}:
        raise ValueError(
            f"`x` must have the parts {names}. Received: {', '.join(x)}."
        )
    return {
        name: strings(parts[name], name)
        for name in (*required, *optional)
        if name in parts
    }


def strings(value, name):
    """A string tensor of lists, arrays or tensors; ragged where lists are."""
    import tensorflow as tf

    if isinstance(value, (tf.Tensor, tf.RaggedTensor)):
        tensor = value
    else:
        try:
            tensor = to_tensor(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{name}` must be strings. Received: {_shown(value)}."
            ) from error
    if tensor.dtype != tf.string:
        # An empty list has no type of its own.
        if isinstance(value, (list, tuple)) and not len(value):
            return tf.zeros([0], tf.string)
        raise TypeError(f"`{name}` must be strings. Received: {_shown(value)}.")
    return tensor


def to_tensor(value):
    """A tensor of lists, arrays or tensors; ragged where lists are uneven."""
    import tensorflow as tf

    if isinstance(value, (tf.Tensor, tf.RaggedTensor)):
        return value
    if hasattr(value, "__array__"):
        value = value.__array__()
        if value.dtype.kind == "T":  # NumPy's strings of any length
            value = value.astype(object)
        return tf.convert_to_tensor(value)
    if isinstance(value, (list, tuple)):
        rows = [row for row in value if isinstance(row, (list, tuple))]
        if len({len(row) for row in rows}) > 1:
            return tf.ragged.constant(value)
    return tf.convert_to_tensor(value)


def check_rank(tensor, name, rank):
    """Refuse a tensor with another number of axes."""
    if tensor.shape.rank != rank:
        shape = "[B, ...]" if rank > 1 else "[B]"
        raise ValueError(
            f"`{name}` must be a batch of strings {shape}, {rank} axes. "
            f"Received: {tensor.shape.rank} axes."
        )


def _shown(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def of_examples(texts, shape=None):
    """String tensor of a list of str, a U+FFFD for each lone surrogate.

    Args:
        texts: list of str.
        shape: list of int, of the tensor. Default: one axis.
    """
    import tensorflow as tf

    # One for one, so that places in the text stay what they are.
    texts = [_SURROGATES.sub("\ufffd", text) for text in texts]
    tensor = tf.constant(texts, tf.string)
    return tensor if shape is None else tf.reshape(tensor, shape)
