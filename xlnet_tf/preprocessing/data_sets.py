"""Raw strings, their labels and weights as a tf.data.Dataset of features."""

import inspect
import math

import keras
import numpy as np

from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.strings import to_tensor

DEFAULT_BATCH_SIZE = 32
_STRING_LABELS = (
    "labels of a data set must be numbers, and its `y` are strings. Map names "
    "to `labels.index(name)`, or give names in lists and arrays; give pairs "
    'of texts as a dict of "text" and "text_pair", or as '
    "`((text, text_pair), y)`."
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

    from data_pipeline.dataset_options import dataset_options

    if hasattr(x, "element_spec"):
        _check_batches(preprocessor, x, y, sample_weight, batch_size)
        data = x
    else:
        parts = tensors(preprocessor, x, y, sample_weight)
        count, batch_size = _count(parts), batch_size or DEFAULT_BATCH_SIZE
        options = dataset_options()  # a data set of the user keeps its own
        if 0 < count <= batch_size and not shuffle:
            # A data set that calls a function takes longer to start than
            # a batch takes to be read. The size stays open: no new trace.
            batch = preprocessor(*keras.utils.unpack_x_y_sample_weight(parts))
            data = tf.data.Dataset.from_tensor_slices(batch).batch(count)
            return data.with_options(options)
        data = tf.data.Dataset.from_tensor_slices(parts)
        if shuffle:
            data = data.shuffle(max(count, 1))
        data = data.batch(batch_size).with_options(options)
    return data.map(
        tf.autograph.experimental.do_not_convert(preprocessor),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).prefetch(2)


def is_batches(x):
    """Whether input is a PyDataset or a generator of batches, bool."""
    return isinstance(x, keras.utils.PyDataset) or inspect.isgenerator(x)


def prepared_batches(task, x):
    """Batches whose strings, if they have any, have become features.

    Args:
        task: RawStringModel.
        x: `keras.utils.PyDataset` or generator of batches `x`, `(x, y)` or
            `(x, y, sample_weight)`. Of a PyDataset the first is looked at.

    Returns:
        one of the same kind; `x` itself where it is a PyDataset of features.
    """

    def prepared(batch):
        parts = batch if isinstance(batch, tuple) else (batch,)
        if not is_raw(parts[0]):
            task.checked(parts[0])
            return batch
        found = keras.utils.pack_x_y_sample_weight(*task.prepared(*parts))
        found = found if isinstance(found, tuple) else (found,)
        return keras.tree.map_structure(np.asarray, found)

    if inspect.isgenerator(x):
        return (prepared(batch) for batch in x)
    first = x[0]
    first = first[0] if isinstance(first, tuple) else first
    if not is_raw(first):
        task.checked(first)
        return x
    return _Prepared(x, prepared)


class _Prepared(keras.utils.PyDataset):
    """The batches of another PyDataset, each given to a function."""

    def __init__(self, batches, function):
        # In threads: TensorFlow, which tokenizes, does not survive a fork.
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


def arrays_beside(x, y):
    """Labels or weights in a list as an array, where `x` is features.

    Keras takes no lists of numbers beside a dict.
    """
    if isinstance(x, dict) and isinstance(y, (list, tuple)):
        return np.asarray(y)
    return y


def check_labels(data, least, most, words, any_shape=False):
    """A data set that stops with an error at a label out of a range.

    The check is part of the data set, so that it acts beside compiled steps
    too, where XLA would make the loss nan.

    Args:
        data: tf.data.Dataset of batches `(x, y)` or `(x, y, sample_weight)`.
        least, most: numbers, the range of the labels.
        words: str, what labels must be, for the error.
        any_shape: bool, whether labels of other shapes than [B] and [B, 1]
            are checked too. Default False: they are of a loss of one's own.

    Returns:
        tf.data.Dataset of the same elements, of which one with a label out of
        the range raises InvalidArgumentError; `data` itself where there is
        nothing to check, or it is distributed.

    Raises:
        ValueError: if the labels are strings.
    """
    import tensorflow as tf

    spec = data.element_spec
    labels = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    dtype = getattr(labels, "dtype", None)
    if dtype == tf.string:
        raise ValueError(_STRING_LABELS)
    is_number = dtype is not None and (dtype.is_integer or dtype.is_floating)
    if not is_number or not hasattr(data, "map"):
        return data
    if not any_shape and labels.shape[1:] not in ([], [1]):
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
    """Raw input and labels as tensors, packed as Keras packs them.

    Raises:
        ValueError: if `x` is one example and no batch.
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
        x, _labels(y), _labels(sample_weight)
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
    is_labels = others and not isinstance(others[0], dict)
    takes_strings = preprocessor.labels_are_strings
    if is_labels and not takes_strings and is_raw(others[0]):
        raise ValueError(_STRING_LABELS)
    parts = keras.tree.flatten(first)
    if any(part.shape.rank == preprocessor.string_rank for part in parts[:1]):
        raise ValueError(
            "a data set must give batches: call `.batch(size)` on it."
        )
