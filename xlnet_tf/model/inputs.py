"""Checks and type conversions of the backbones' input features.

Shapes: B batch, T tokens, P targets.
"""

import keras
import numpy as np
from keras import ops

from data_pipeline.base.limits import shown
from data_pipeline.base.suggestions import closest
from xlnet_tf.model.sizes import sizes_of

_FEATURES = (
    "token_ids",
    "segment_ids",
    "padding_mask",
    "perm_mask",
    "factorization_rank",
    "is_pseudo",
    "position_ids",
    "target_mapping",
    "target_positions",
    "is_reversed",
    "memories",
    "memory_mask",
    "dropout_seed",
)
# Features that XLNet cannot use. If XLNetBackbone ignored them, its results
# would be wrong. The values are the reasons in the error message.
_NOT_OF_XLNET = {
    "is_pseudo": "pseudo tokens share positions",
    "position_ids": "its positions are relative",
}
# Hugging Face's and the released code's names of features -> our names.
_NAMES_OF_OTHERS = {
    "attention_mask": "padding_mask",
    "input_ids": "token_ids",
    "input_mask": "padding_mask",
    "mems": "memories",
    "token_type_ids": "segment_ids",
}
# Hugging Face's names of call arguments -> our names.
_ARGUMENTS_OF_OTHERS = {
    "output_attentions": "attention_weights",
    "output_hidden_states": "layer_inputs",
}
# Labels whose names resemble the name of a feature.
_LABELS = ("start_position", "start_positions")
# Pairs of features that are two forms of the same input. A call with both is
# refused, because one would be ignored.
_EITHER = (
    ("factorization_rank", "perm_mask"),
    ("target_positions", "target_mapping"),
)

# Axes of the features: rows, tokens and targets.
_AXES = {
    "padding_mask": "BT",
    "segment_ids": "BT",
    "factorization_rank": "BT",
    "is_pseudo": "BT",
    "perm_mask": "BTT",
    "target_positions": "BP",
    "target_mapping": "BPT",
    "is_reversed": "B",
}
# Features and labels that are converted to bool.
_MASKS = (
    "padding_mask",
    "perm_mask",
    "is_pseudo",
    "target_mapping",
    "is_reversed",
    "memory_mask",
    "answer_mask",
    "document_mask",
    "is_continuation",
    "is_next",
)
_FEWER_TARGETS = (
    " If a row has fewer targets, repeat a target with `target_weights` of 0."
)
_INTEGERS = "int", "uint", "bool"
_INT32 = np.iinfo("int32")


def as_features(features):
    """Return the features as a dict; a lone tensor becomes `token_ids`."""
    if isinstance(features, dict):
        return dict(features)
    return {"token_ids": features}


def check_features(features, config):
    """Check the features of an XLNetBackbone and convert their types.

    Args:
        features: dict, see `XLNetBackbone`, or `token_ids` alone.
        config: XLNetConfig.

    Returns:
        dict of the features that are not None. If the config's
        `reverse_half_batch` is True, the dict always contains `is_reversed`.

    Raises:
        ValueError: if features are missing, misspelt, given in two forms (such
            as `perm_mask` and `factorization_rank`), or do not fit the config.
            Also if `reverse_half_batch` must halve a batch of an odd size.
    """
    features = given_features(features)
    refuse_features(features, "XLNetBackbone", _NOT_OF_XLNET)
    _check_memories(features, config)
    if "is_reversed" in features:
        features["is_reversed"] = ops.cast(features["is_reversed"], "bool")
    elif config.reverse_half_batch:
        features["is_reversed"] = _second_half(features["token_ids"])
    return features


def _check_memories(features, config):
    """Refuse memories with a wrong number of tensors or a wrong shape."""
    memories = features.get("memories")
    if memories is None:
        return
    count = config.num_layers
    is_list = isinstance(memories, (list, tuple))
    if not is_list or len(memories) != count:
        found = len(memories) if is_list else type(memories).__name__
        raise ValueError(
            f"`memories` must be a list of one tensor a layer, {count} in all. "
            f"Received: {found}."
        )
    rows, length = features["token_ids"].shape[0], None
    for memory in memories:
        if not hasattr(memory, "shape"):
            raise ValueError(
                "`memories` must be a list of tensors. Received: "
                f"{shown(memory)} in it."
            )
        expected = rows, length, config.hidden_dim
        check_shape("memories", memory, "BMD", expected)
        length = memory.shape[1]
    expected = rows, length
    check_shape("memory_mask", features.get("memory_mask"), "BM", expected)


def given_features(features):
    """Check names and shapes of features, and leave out features that are None.

    Args:
        features: dict, see the backbones, or `token_ids` alone.

    Returns:
        dict of the features that are not None, with int32 `token_ids`.

    Raises:
        ValueError: if a feature is misspelt, is given in two forms or has a
            wrong shape, or if `token_ids` is missing.
    """
    features = as_features(features)
    features = {k: v for k, v in features.items() if v is not None}
    _check_names(features)
    if "token_ids" not in features:
        raise ValueError(
            "the features need `token_ids` of shape [B, T]. "
            f"Received: {', '.join(sorted(features)) or 'none'}."
        )
    _check_shapes(features)
    features["token_ids"] = ops.cast(features["token_ids"], "int32")
    return features


def _check_shapes(features):
    """Refuse features whose shapes do not fit the shape of `token_ids`.

    `token_ids` must have the shape [B, T].
    """
    shape = tuple(features["token_ids"].shape)
    if len(shape) != 2 or shape[1] == 0:
        raise ValueError(
            "`token_ids` must have the shape [B, T], T at least 1. Received: "
            f"shape={shape}."
        )
    sizes = dict(zip("BT", shape, strict=True))
    for name, axes in _AXES.items():
        expected = tuple(map(sizes.get, axes))
        check_shape(name, features.get(name), axes, expected)


def check_shape(name, value, axes, expected):
    """Refuse a feature that does not have the expected shape.

    Args:
        name: str, name of the feature.
        value: tensor, or None if the feature is missing.
        axes: str, a letter for each axis, for the error message.
        expected: sequence of int or None, the size of each axis. None allows
            every size.

    Raises:
        ValueError: if the shape is not the expected one.
    """
    shape = getattr(value, "shape", None)
    if shape is None or getattr(shape, "ndims", 0) is None:
        return
    pairs = zip(shape, expected, strict=False)
    if len(shape) != len(expected) or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        sizes = [
            a if e is None else e for a, e in zip(axes, expected, strict=True)
        ]
        raise ValueError(
            f"`{name}` must have the shape [{', '.join(axes)}] = "
            f"({', '.join(map(str, sizes))}). Received: shape={tuple(shape)}."
        )


def refuse_arguments(names):
    """Refuse call arguments with a feature's name or a Hugging Face name.

    Args:
        names: iterable of str, names of the arguments of the call.

    Raises:
        TypeError: if an argument has the name of a feature in this library, in
            Hugging Face's library or in the released code. Also for
            `output_attentions` and `output_hidden_states`, two call arguments
            of Hugging Face's library.
    """
    for name in names:
        if name in _ARGUMENTS_OF_OTHERS:
            raise TypeError(
                f"there is no argument `{name}`; did you mean "
                f"`{_ARGUMENTS_OF_OTHERS[name]}=True`, in the call of a "
                "backbone?"
            )
        meant = _NAMES_OF_OTHERS.get(name, name)
        if meant in _FEATURES:
            raise TypeError(
                f"`{name}` is no argument: give the features in one dict, "
                f"here with `{meant}`."
            )


def refuse_features(features, backbone, reasons):
    """Refuse features that a backbone cannot use.

    Args:
        features: dict.
        backbone: str, name of the backbone's class.
        reasons: dict from the name of a feature to the reason for its refusal.

    Raises:
        ValueError: if `features` has a feature that is in `reasons`.
    """
    for name, reason in reasons.items():
        if name in features:
            raise ValueError(
                f"a {backbone} takes no `{name}`: {reason}. Leave it out. "
                f"Received: {', '.join(features)}."
            )


def _check_names(features):
    for name in features:
        if name in _FEATURES or name in _LABELS:
            continue
        # All other names are labels, or features of objectives.
        meant = _NAMES_OF_OTHERS.get(name) or closest(name, _FEATURES, 0.82)
        if meant:
            raise ValueError(
                f"there is no feature `{name}`; did you mean `{meant}`? "
                f"Received: {', '.join(features)}."
            )
    _check_forms(features)


def _check_forms(features):
    for both in _EITHER:
        if all(features.get(name) is not None for name in both):
            raise ValueError(
                f"`{both[0]}` and `{both[1]}` are two forms of the same: give "
                f"one of them. Received: {', '.join(features)}."
            )


def _second_half(token_ids):
    """Mark the second half of the examples, bool [B]; refuse an odd B."""
    batch_size = sizes_of(token_ids)[0]
    message = (
        "`reverse_half_batch` needs an even number of rows in each batch, also "
        "in the last: give `is_reversed`, which has a value for each row, or "
        "set `reverse_half_batch=False`."
    )
    if isinstance(batch_size, int):
        if batch_size % 2:
            raise ValueError(f"{message} Received: {batch_size} rows.")
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.debugging.assert_equal(batch_size % 2, 0, message)
    row = ops.arange(batch_size, dtype="int32")
    return row >= batch_size // 2


def find_target_positions(features):
    """Return the targets' positions, int32 [B, P], or None without targets."""
    if "target_positions" in features:
        return ops.cast(features["target_positions"], "int32")
    if "target_mapping" in features:
        return ops.cast(
            ops.argmax(features["target_mapping"], axis=-1), "int32"
        )
    return None


def check_values(features, config, of_tasks):
    """Refuse features with wrong types, shapes or values.

    Values are checked only if they are known, as in an eager call. The check
    runs before Keras converts the features to tensors, for two reasons. On JAX
    the conversion cuts integers to 32 bits. If a feature is a list, or if
    features have different batch sizes, Keras' error message does not explain
    the problem.

    Args:
        features: dict of a model's features, or `token_ids` alone.
        config: XLNetConfig or BertConfig.
        of_tasks: bool, whether to check the features and labels that only tasks
            read. If False, these features and labels are ignored.

    Raises:
        ValueError: if a feature is wrong.
    """
    if of_tasks and isinstance(features, (list, tuple)):
        return  # `fit_input` checks lists, which hold no features
    features = _read(features, of_tasks)
    shape = getattr(features.get("token_ids"), "shape", None)
    num_tokens = shape[-1] if shape and len(shape) else None
    if shape and (len(shape) == 2 or not of_tasks):  # choices have 3
        _check_forms(features)
        _check_shapes(features)
        if config.layout == "xlnet":
            _check_memories(features, config)
    for name, (least, most) in _ranges(config, num_tokens).items():
        values = _values_of(features, name, _INTEGERS)
        if values is None:
            continue
        wrong = values[(values < least) | (values > most)]
        if wrong.size:
            is_target = name in ("target_ids", "target_positions")
            raise ValueError(
                f"`{name}` must be from {least} to {most}. Received: "
                f"{wrong[0]}.{_FEWER_TARGETS if is_target else ''}"
            )
    for name in _MASKS:
        values = _values_of(features, name, (*_INTEGERS, "float", "bfloat"))
        if values is None:
            continue
        wrong = values[(values != 0) & (values != 1)]
        if wrong.size:
            raise ValueError(
                f"`{name}` must be bool, or 0 and 1. Received: {wrong[0]}."
            )
        if name == "target_mapping" and (values.sum(-1) > 1).any():
            raise ValueError(
                "`target_mapping` must have a single 1 in each row, at the "
                "position of the target. Received: a row with the sum "
                f"{values.sum(-1).max()}."
            )


def check_data_set(data, config, of_tasks):
    """Add a check to a data set: integers out of their range raise an error.

    The check is part of the data set, because a compiled step cannot raise
    errors. Without the check the step would cut a large integer to 32 bits, and
    XLA would read the embedding of another token.

    Args:
        data: tf.data.Dataset of features, or of tuples whose first part is the
            features.
        config, of_tasks: see `check_values`.

    Returns:
        tf.data.Dataset of the elements of `data`. An element with an integer
        out of range raises InvalidArgumentError. A distributed data set is
        returned as it is, without the check.

    Raises:
        ValueError: if features have wrong types.
    """
    import tensorflow as tf

    if not hasattr(data, "map"):
        return data
    spec = data.element_spec
    is_tuple = isinstance(spec, tuple)
    check_values(spec[0] if is_tuple else spec, config, of_tasks)

    def checked(*parts):
        features = _read(parts[0], of_tasks)
        num_tokens = None
        if "token_ids" in features:
            num_tokens = tf.shape(features["token_ids"], tf.int64)[-1]
        holds = []
        for name, (least, most) in _ranges(config, num_tokens).items():
            if features.get(name) is None:
                continue
            values = tf.reshape(tf.cast(features[name], tf.int64), [-1])
            wrong = values[(values < least) | (values > most)]
            told = tf.strings.format(
                f"`{name}` must be from {least} to {{}}. Received: {{}}",
                (most, wrong),
            )
            holds.append(tf.debugging.Assert(tf.size(wrong) == 0, [told]))
        with tf.control_dependencies(holds):
            parts = tf.nest.map_structure(tf.identity, parts)
        return parts if is_tuple else parts[0]

    return data.map(tf.autograph.experimental.do_not_convert(checked))


def _read(features, of_tasks):
    """Return a dict of the features to check.

    If `of_tasks` is False, the dict has only the features of backbones.
    """
    features = as_features(features)
    if of_tasks:
        return features
    return {k: v for k, v in features.items() if k in _FEATURES}


def _ranges(config, num_tokens):
    """Return (least, largest value) of each integer feature, as a dict."""
    token = 0, config.vocabulary_size - 1
    last = _INT32.max if num_tokens is None else num_tokens - 1
    # XLNet only compares segments. BERT has an embedding for each segment.
    first = _INT32.min if config.layout == "xlnet" else 0
    return {
        "token_ids": token,
        "target_ids": token,
        "segment_ids": (first, _INT32.max),
        "factorization_rank": (-1, _INT32.max),
        "target_blocks": (0, _INT32.max),
        "position_ids": (0, getattr(config, "max_positions", _INT32.max) - 1),
        "target_positions": (0, last),
        "start_positions": (0, last),
        "class_index": (0, last),
    }


def _values_of(features, name, kinds):
    """Return the values of a feature, or None; refuse types not in `kinds`.

    The result is None if the feature is missing or its values are not known.
    """
    value = features.get(name)
    if isinstance(value, (list, tuple, str, int, float)):
        raise ValueError(
            f"`{name}` must be an array or a tensor, with rows of one length. "
            f"Received: {shown(value)}."
        )
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return None
    # The type is "int32" in NumPy, TensorFlow and Keras, and "torch.int32" in
    # torch.
    kind = getattr(dtype, "name", str(dtype)).split(".")[-1]
    if not kind.startswith(kinds):
        raise ValueError(
            f"`{name}` must have a type such as {kinds[0]}32. "
            f"Received: dtype={kind}."
        )
    if getattr(value, "ragged_rank", None):
        raise ValueError(
            f"`{name}` must have rows of one length: call `.to_tensor()` on "
            "it. Received: a ragged tensor."
        )
    return known_values(value)


def known_values(tensor):
    """Return the values of a tensor as an array, or None during tracing."""
    try:
        values = np.asarray(tensor)
    # TensorFlow, JAX and Keras raise these errors for tensors without values,
    # and for tensors on several machines.
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        return None
    # NumPy turns a value that is no tensor, such as a TensorSpec, into an array
    # of objects.
    return None if values.dtype == object else values


def check_streams(streams, target_positions, features):
    """Refuse an unknown value of `streams`, and "query" without targets."""
    if streams not in ("both", "query"):
        raise ValueError(
            '`streams` must be "both" or "query". '
            f"Received: streams={streams!r}."
        )
    if target_positions is None and streams == "query":
        raise ValueError(
            'without content (`streams="query"`), give the targets: '
            "`target_positions` or `target_mapping`. "
            f"Received: {', '.join(features)}."
        )


def check_first_half(length, num_tokens):
    """Refuse a `first_half_length` that is not in [0, T)."""
    known = num_tokens if isinstance(num_tokens, int) else length + 1
    if not 0 <= length < known:
        raise ValueError(
            "`first_half_length` must be in [0, T). Received: "
            f"first_half_length={length} for {num_tokens} tokens."
        )
