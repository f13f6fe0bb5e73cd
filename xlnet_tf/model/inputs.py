"""The input features of the backbones: checks and types.

Shapes: B batch, T tokens, P targets.
"""

import difflib

import keras
import numpy as np
from keras import ops

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
# Features that XLNet does not read; without them the result would be wrong.
_NOT_OF_XLNET = {
    "is_pseudo": "pseudo tokens share positions",
    "position_ids": "its positions are relative",
}
# Names of Hugging Face and of the release.
_NAMES_OF_OTHERS = {
    "attention_mask": "padding_mask",
    "input_ids": "token_ids",
    "input_mask": "padding_mask",
    "mems": "memories",
    "token_type_ids": "segment_ids",
}
# Arguments of a call, of Hugging Face.
_ARGUMENTS_OF_OTHERS = {
    "output_attentions": "attention_weights",
    "output_hidden_states": "layer_inputs",
}
# Labels whose names resemble a feature's.
_LABELS = ("start_position", "start_positions")
# Two forms of the same feature, one of which would be ignored.
_EITHER = (
    ("factorization_rank", "perm_mask"),
    ("target_positions", "target_mapping"),
)


def as_features(features):
    """The features as a dict; anything else is `token_ids` alone."""
    if isinstance(features, dict):
        return dict(features)
    return {"token_ids": features}


def check_features(features, config):
    """Check the features and cast them to the types of the layers.

    Args:
        features: dict as `XLNetBackbone` takes it, or `token_ids` alone.
        config: XLNetConfig.

    Returns:
        dict without None; with `is_reversed` if the config reverses half of
        the batch.

    Raises:
        ValueError: if features are missing, misspelt, given in two forms, or
            do not fit the config, or the config reverses half of an odd number
            of rows.
    """
    features = given_features(features)
    refuse_features(features, "XLNetBackbone", _NOT_OF_XLNET)
    memories = features.get("memories")
    if memories is not None and len(memories) != config.num_layers:
        raise ValueError(
            "`memories` must hold one tensor a layer, "
            f"{config.num_layers} in all. Received: {len(memories)}."
        )
    if "is_reversed" in features:
        features["is_reversed"] = ops.cast(features["is_reversed"], "bool")
    elif config.reverse_half_batch:
        features["is_reversed"] = _second_half(features["token_ids"])
    return features


def given_features(features):
    """The features that are not None, with `token_ids` int32 of shape [B, T].

    Args:
        features: dict as a backbone takes it, or `token_ids` alone.

    Returns:
        dict.

    Raises:
        ValueError: if a feature is misspelt or given in two forms, or
            `token_ids` is missing or has another shape, or `padding_mask` or
            `segment_ids` has another than it.
    """
    features = as_features(features)
    features = {k: v for k, v in features.items() if v is not None}
    _check_names(features)
    if "token_ids" not in features:
        raise ValueError(
            "the features need `token_ids` of shape [B, T]. "
            f"Received: {', '.join(sorted(features)) or 'none'}."
        )
    features["token_ids"] = ops.cast(features["token_ids"], "int32")
    if len(features["token_ids"].shape) != 2:
        raise ValueError(
            "`token_ids` must have the shape [B, T]. Received: shape="
            f"{tuple(features['token_ids'].shape)}."
        )
    for name in ("padding_mask", "segment_ids"):
        _check_shape(features, name)
    return features


def _check_shape(features, name):
    """Refuse a feature [B, T] of another shape than `token_ids`."""
    known = tuple(features["token_ids"].shape)
    shape = tuple(getattr(features.get(name), "shape", known))
    pairs = zip(shape, known, strict=False)
    if len(shape) != len(known) or any(
        None not in pair and pair[0] != pair[1] for pair in pairs
    ):
        raise ValueError(
            f"`{name}` must have the shape of `token_ids`, {known}. Received: "
            f"shape={shape}."
        )


def refuse_arguments(names):
    """Refuse arguments of a call that have another name here.

    Args:
        names: names of the arguments that were given, str.

    Raises:
        TypeError: if one is such a name, or that of a feature.
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
    """Refuse features that a backbone cannot read.

    Args:
        features: dict.
        backbone: str, name of its class.
        reasons: dict of the names of such features to reasons.

    Raises:
        ValueError: with the first of them.
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
        # Other names are labels or features of objectives.
        near = difflib.get_close_matches(name, _FEATURES, 1, 0.82)
        meant = _NAMES_OF_OTHERS.get(name) or "".join(near)
        if meant:
            raise ValueError(
                f"there is no feature `{name}`; did you mean `{meant}`? "
                f"Received: {', '.join(features)}."
            )
    for both in _EITHER:
        if set(both) <= set(features):
            raise ValueError(
                f"`{both[0]}` and `{both[1]}` are two forms of the same: give "
                f"one of them. Received: {', '.join(features)}."
            )


def _second_half(token_ids):
    """bool [B], True for the second half of the rows; refuses an odd B."""
    batch_size = sizes_of(token_ids)[0]
    message = (
        "`reverse_half_batch` takes an even number of rows, and a last batch "
        "of fewer rows too: give `is_reversed`, which says it of each row, or "
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
    """Targets as positions, int32 [B, P], or None without targets.

    Raises:
        ValueError: if one is known to lie outside of the tokens.
    """
    if "target_positions" in features:
        positions = ops.cast(features["target_positions"], "int32")
        check_target_positions(positions, sizes_of(features["token_ids"])[1])
        return positions
    if "target_mapping" in features:
        return ops.cast(
            ops.argmax(features["target_mapping"], axis=-1), "int32"
        )
    return None


def check_target_positions(positions, num_tokens):
    """Refuse targets outside of the tokens, where their values are known.

    Args:
        positions: int tensor of shape [B, P].
        num_tokens: int or scalar of the backend, T.

    Raises:
        ValueError: with the first of them.
    """
    values = known_values(positions)
    if values is None or not isinstance(num_tokens, int):
        return
    wrong = values[(values < 0) | (values >= num_tokens)]
    if wrong.size:
        raise ValueError(
            "`target_positions` must be at least 0 and below the number of "
            f"tokens, {num_tokens}. Where a row has fewer targets, repeat a "
            "position with `target_weights` of 0. Received: a position of "
            f"{wrong[0]}."
        )


def known_values(tensor):
    """The values of a tensor as an array; None while a graph is made."""
    try:
        return np.asarray(tensor)
    # Raised for tensors without values by TensorFlow, JAX and Keras, and for
    # those of several machines.
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        return None


def check_streams(streams, target_positions, features):
    """Refuse streams that are unknown or have no targets."""
    if streams not in ("both", "query"):
        raise ValueError(
            '`streams` must be "both" or "query". '
            f"Received: streams={streams!r}."
        )
    if target_positions is None and streams == "query":
        raise ValueError(
            'without content (`streams="query"`), `target_positions` or '
            "`target_mapping` must say what is wanted. "
            f"Received: {', '.join(features)}."
        )


def check_first_half(length, num_tokens):
    """Refuse a first half that is no part of the tokens."""
    known = num_tokens if isinstance(num_tokens, int) else length + 1
    if not 0 <= length < known:
        raise ValueError(
            "`first_half_length` must be in [0, T). Received: "
            f"first_half_length={length} for {num_tokens} tokens."
        )
