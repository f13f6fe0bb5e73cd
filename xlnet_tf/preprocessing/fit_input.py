"""Conversion of the input of `fit`, `evaluate` and `predict` to features.

TensorFlow is imported when the first raw strings are converted.
"""

import inspect
import math

import keras
import numpy as np

from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.strings import refuse_numbers
from xlnet_tf.preprocessing.strings import to_tensor

DEFAULT_BATCH_SIZE = 32


def keras_input(
    model, x, y=None, sample_weight=None, batch_size=None, shuffle=False
):
    """Convert the input of a task's methods to input for `keras.Model`.

    Args:
        model: Task.
        x: raw strings or features, in lists, arrays, columns or dicts; or
            batches of raw strings or features, from a tf.data.Dataset,
            PyDataset or generator.
        y: labels, or None. If `x` has batches, the batches contain the labels.
        sample_weight: weights of the labels, or None.
        batch_size: int. Default None: 32.
        shuffle: bool, whether raw strings have a new order in each epoch.

    Returns:
        tuple of x, y, sample_weight, batch_size. If the argument `x` contains
        raw strings that are not in batches, the returned x is a data set of
        batches, and y, sample_weight and batch_size are None.

    Raises:
        TypeError, ValueError: if an argument is invalid.
    """
    if is_data_set(x):
        beside = y, sample_weight, batch_size
        if is_raw(x) and any(part is not None for part in beside):
            raise ValueError(
                "`x` is a data set, which contains labels, weights and "
                "batches: leave `y`, `sample_weight` and `batch_size` out."
            )
        x = _prepared_data_set(model, model.checked(x))
    elif gives_batches(x):
        x = _prepared_batches(model, x)
    else:
        x, y, sample_weight = checked_rows(model, x, y, sample_weight)
        if is_raw(x):
            parts = tensors(model.preprocessor, x, y, sample_weight)
            x = _data_set(model.preprocessor, parts, batch_size, shuffle)
            return x, None, None, None
        if isinstance(x, dict):  # Keras refuses lists if `x` is a dict
            y, sample_weight = _as_array(y), _as_array(sample_weight)
    return x, y, sample_weight, batch_size


def is_data_set(x):
    """Whether input is a tf.data.Dataset or a distributed data set."""
    return hasattr(x, "element_spec")


def gives_batches(x):
    """Whether input consists of batches: data set, PyDataset or generator."""
    is_batches = isinstance(x, keras.utils.PyDataset) or inspect.isgenerator(x)
    return is_batches or is_data_set(x)


def checked_rows(model, x, y=None, sample_weight=None):
    """Check examples and labels, and convert the labels for the loss.

    Args:
        model, x, y, sample_weight: see `keras_input`; `x` is not a data set.

    Returns:
        tuple of x, y, sample_weight.
    """
    if isinstance(x, (list, tuple)) and not len(x):
        raise ValueError(
            "`x` must hold one example or more. Received: an empty "
            f"{type(x).__name__}."
        )
    x = model.checked(x)
    if y is None and sample_weight is not None:
        refuse_weights()
    if is_raw(x):
        check_preprocessor(model)
    else:
        refuse_numbers(x)
    return x, model.numbered(y, x), sample_weight


def prepared(model, x, y=None, sample_weight=None):
    """Convert a batch of strings to features, or return features unchanged.

    Args:
        model, x, y, sample_weight: see `keras_input`; `x` is not a data set.

    Returns:
        tuple of x, y, sample_weight.
    """
    x, y, sample_weight = checked_rows(model, x, y, sample_weight)
    if not is_raw(x):
        return x, y, sample_weight
    parts = _unpacked(tensors(model.preprocessor, x, y, sample_weight))
    return _unpacked(model.preprocessor(*parts))


def refuse_weights():
    """Raise the error about sample or class weights without labels.

    Keras would ignore sample weights without labels.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        "`sample_weight` and `class_weight` weigh `y`, which is not given. "
        "Targets of pretraining are weighed by the feature `target_weights` "
        "[B, P]."
    )


def check_preprocessor(model):
    """Refuse raw strings for a task without a preprocessor.

    Raises:
        ValueError: if the task has no preprocessor.
    """
    if model.preprocessor is None:
        raise ValueError(
            f"{type(model).__name__} has no preprocessor, so it takes "
            "features, not strings. Give it one: `task.preprocessor = "
            "...`, or `from_preset` on a directory with a tokenizer."
        )


def _as_array(y):
    return np.asarray(y) if isinstance(y, (list, tuple)) else y


def _unpacked(parts):
    return keras.utils.unpack_x_y_sample_weight(parts)


def _data_set(preprocessor, parts, batch_size, shuffle):
    """Make a data set of features from strings in tensors."""
    import tensorflow as tf

    from data_pipeline.dataset_options import dataset_options

    count, batch_size = _count(parts), batch_size or DEFAULT_BATCH_SIZE
    if count <= batch_size and not shuffle:
        # Starting a data set with a mapped function takes longer than reading
        # one batch. The batch size stays unknown, to avoid a new trace.
        batch = preprocessor(*_unpacked(parts))
        data = tf.data.Dataset.from_tensor_slices(batch).batch(max(count, 1))
        return data.with_options(dataset_options())
    data = tf.data.Dataset.from_tensor_slices(parts)
    if shuffle:
        data = data.shuffle(count)
    data = data.batch(batch_size).with_options(dataset_options())
    return _mapped(preprocessor, data)


def _mapped(preprocessor, data):
    import tensorflow as tf

    function = tf.autograph.experimental.do_not_convert(preprocessor)
    data = data.map(function, num_parallel_calls=tf.data.AUTOTUNE)
    return data.prefetch(2)


def _prepared_data_set(model, data):
    """Convert the user's data set to features, and add a check of labels."""
    limits = model.label_range(data)
    if limits is not None:
        data = check_labels(data, *limits)
    if not is_raw(data):
        return data
    check_preprocessor(model)
    spec = data.element_spec
    x, *others = spec if isinstance(spec, tuple) else (spec,)
    # Labels of questions may contain strings: a dict with the answer texts.
    has_strings = others and not isinstance(others[0], dict)
    if has_strings and not model.preprocessor.labels_are_strings:
        _refuse_string_labels(others[0])
    first = keras.tree.flatten(x)[0]
    if first.shape.rank == model.preprocessor.string_rank:
        raise ValueError(
            "a data set must give batches: call `.batch(size)` on it."
        )
    return _mapped(model.preprocessor, data)


def _refuse_string_labels(spec):
    if is_raw(spec):
        raise ValueError(
            "labels of a data set must be numbers, and its `y` are strings. "
            "Map names to `labels.index(name)`, or give names in lists and "
            'arrays; give pairs of texts as a dict of "text" and "text_pair", '
            "or as `((text, text_pair), y)`."
        )


def check_labels(data, least, most, words, any_shape=False):
    """Add a check of the labels' range to a data set.

    The check runs in the data set, so it also works if XLA compiles the steps.
    In a compiled step, a class out of range would make the loss NaN.

    Args:
        data: tf.data.Dataset of batches `(x, y)` or `(x, y, sample_weight)`.
        least, most: numbers, smallest and largest valid label.
        words: str, description of valid labels for the error message.
        any_shape: bool, whether labels of any shape are checked. Default False:
            only labels [B] and [B, 1] are checked, because labels of other
            shapes belong to a custom loss.

    Returns:
        tf.data.Dataset with the elements of `data`, where an invalid label
        raises InvalidArgumentError. If `data` has no labels to check or is
        distributed, `data` is returned unchanged.

    Raises:
        ValueError: if the labels are strings.
    """
    import tensorflow as tf

    spec = data.element_spec
    labels = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    dtype = getattr(labels, "dtype", None)
    if dtype is None:
        return data
    _refuse_string_labels(labels)
    is_number = dtype.is_integer or dtype.is_floating
    is_plain = any_shape or labels.shape[1:] in ([], [1])
    if not (is_number and is_plain and hasattr(data, "map")):
        return data

    def checked(x, y, *weights):
        values = tf.reshape(getattr(y, "flat_values", y), [-1])
        numbers = tf.cast(values, tf.float64)
        wrong = values[~((numbers >= least) & (numbers <= most))]
        told = [f"labels must be {words}. Received:", wrong]
        holds = tf.debugging.Assert(tf.size(wrong) == 0, told)
        with tf.control_dependencies([holds]):
            return (x, tf.nest.map_structure(tf.identity, y), *weights)

    return data.map(tf.autograph.experimental.do_not_convert(checked))


def _prepared_batches(model, batches):
    """Convert the batches of a PyDataset or generator to features.

    Args:
        model: Task.
        batches: `keras.utils.PyDataset` or generator of batches `x`, `(x, y)`
            or `(x, y, sample_weight)`. The first batch of a PyDataset is read
            an additional time, to find out whether it contains raw strings.
    """

    def of_features(batch):
        parts = batch if isinstance(batch, tuple) else (batch,)
        if not is_raw(parts[0]):
            model.checked(parts[0])
            return batch
        parts = keras.utils.pack_x_y_sample_weight(*prepared(model, *parts))
        parts = parts if isinstance(parts, tuple) else (parts,)
        return keras.tree.map_structure(np.asarray, parts)

    if inspect.isgenerator(batches):
        return (of_features(batch) for batch in batches)
    first = batches[0]
    first = first[0] if isinstance(first, tuple) else first
    if is_raw(first):
        return _Mapped(batches, of_features)
    model.checked(first)
    return batches


class _Mapped(keras.utils.PyDataset):
    """PyDataset that applies a function to the batches of a PyDataset."""

    def __init__(self, batches, function):
        # Threads instead of processes: TensorFlow tokenizes, and cannot run
        # after a fork.
        super().__init__(
            workers=batches.workers, max_queue_size=batches.max_queue_size
        )
        self._batches, self._function = batches, function

    @property
    def num_batches(self):
        return self._batches.num_batches

    def __getitem__(self, index):
        return self._function(self._batches[index])

    def on_epoch_begin(self):
        self._batches.on_epoch_begin()

    def on_epoch_end(self):
        self._batches.on_epoch_end()


def split(model, x, y, sample_weight, fraction):
    """Split raw strings for training and validation.

    The last examples are for validation.

    Args:
        model, x, y, sample_weight: see `keras_input`.
        fraction: float, share of the examples for validation.

    Returns:
        two tuples of x, y, sample_weight: for training and for validation.

    Raises:
        ValueError: if a split would be empty, or `x` is a data set.
    """
    if is_data_set(x):
        raise ValueError(
            "`validation_split` needs lists or arrays, and `x` is a data set. "
            "Give `validation_data`."
        )
    rows = checked_rows(model, x, y, sample_weight)
    parts = tensors(model.preprocessor, *rows)
    count = _count(parts)
    kept = math.floor(count * (1 - fraction))
    if not 0 < kept < count:
        raise ValueError(
            "`validation_split` must leave examples to train on and to "
            f"validate on. Received: validation_split={fraction} of {count} "
            "examples."
        )
    return tuple(
        _unpacked(keras.tree.map_structure(lambda part, s=s: part[s], parts))
        for s in (slice(kept), slice(kept, None))
    )


def tensors(preprocessor, x, y=None, sample_weight=None):
    """Convert raw input, labels and weights to tensors.

    Returns:
        The result of `keras.utils.pack_x_y_sample_weight`.

    Raises:
        ValueError: if `x` is one example, not a batch.
    """
    x = preprocessor.tensors(x)
    if preprocessor.is_single(x):
        advice = "put a single text into a list"
        if preprocessor.string_rank:
            advice = "give a list of words for each text, not one text alone"
        raise ValueError(
            "`x`, `y` and `sample_weight` must be batches; "
            f"{advice}. Received: `{next(iter(x))}` of one example."
        )
    return keras.utils.pack_x_y_sample_weight(
        x, _as_tensors(y), _as_tensors(sample_weight)
    )


def _as_tensors(y):
    if isinstance(y, dict):
        return {name: to_tensor(part) for name, part in y.items()}
    return None if y is None else to_tensor(y)


def _count(parts):
    """Count the examples; refuse tensors with different numbers of examples."""
    counts = [
        int(part.shape[0]) if part.shape.rank else 0
        for part in keras.tree.flatten(parts)
    ]
    if len(set(counts)) > 1:
        raise ValueError(
            "`x`, `y` and `sample_weight` must have the same number of "
            f"examples. Received: {', '.join(map(str, counts))}."
        )
    return counts[0]
