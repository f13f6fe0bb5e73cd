"""Raw strings, their labels and weights as a tf.data.Dataset of features."""

import math

import keras

from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.strings import to_tensor

DEFAULT_BATCH_SIZE = 32


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
    is_labels = others and not isinstance(others[0], dict)
    takes_strings = preprocessor.labels_are_strings
    if is_labels and not takes_strings and is_raw(others[0]):
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
