"""Attention masks, from the input features.

Inside the model a mask is bool, and True means that a row may attend to a key.
Only the feature `perm_mask` has the released code's polarity, 1 = may NOT
attend.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets, Q rows.
"""

from keras import ops

from xlnet_tf.model.sizes import is_zero
from xlnet_tf.model.sizes import sizes_of

# `factorization_rank` of context tokens. It is less than the first step, 0.
CONTEXT_RANK = -1


def permutation_masks(factorization_rank, target_positions=None):
    """Make the masks of both streams for a factorization order.

    In the content stream a token attends to itself and to all tokens before it
    in the order. The query stream predicts this token, so in the query stream
    the token attends only to the tokens before it in the order
    (https://arxiv.org/abs/1906.08237, section 2.3). The order
    3 -> 2 -> 4 -> 1 of figure 1 has the `factorization_rank` [3, 1, 0, 2] and
    the masks

        content  1 1 1 1      query  0 1 1 1
                 0 1 1 0             0 0 1 0
                 0 0 1 0             0 0 0 0
                 0 1 1 1             0 1 1 0

    Tokens of equal rank are revealed in one step. Their rows in the content
    stream attend to each other, their rows in the query stream do not. All
    context tokens have the rank -1: they attend to each other, and every target
    attends to them.

    Args:
        factorization_rank: int tensor of shape [B, T], the step at which each
            token is revealed (-1 for context tokens).
        target_positions: int tensor of shape [B, P], or None (default) if all T
            tokens are targets.

    Returns:
        Two bool tensors, True = may attend: content [B, T, T] and query
        [B, P, T].
    """
    key_rank = _of_keys(factorization_rank)
    content = key_rank <= _of_rows(factorization_rank)
    query_rank = factorization_rank
    if target_positions is not None:
        query_rank = ops.take_along_axis(
            factorization_rank, target_positions, axis=1
        )
    return content, key_rank < _of_rows(query_rank)


def pseudo_masks(factorization_rank, is_pseudo):
    """Make the mask of pseudo-masked language modelling for all steps at once.

    For each predicted token, a pseudo token [P] and the predicted token itself
    are appended to the sequence. The rank of both is the step of the
    prediction. The row of [P] predicts the token. An ordinary token is any
    token except [P]. Row i may attend to

    - an ordinary token of an earlier step;
    - an ordinary token of the same step, if row i is an ordinary token;
    - a pseudo token of the same step, if row i is a pseudo token.

    A pseudo token is thus visible only to the pseudo tokens of its step.
    Without pseudo tokens the mask is the content mask of `permutation_masks`.

    Args:
        factorization_rank: int tensor of shape [B, T], the step at which each
            token is predicted (-1 for context tokens and mask tokens [M]).
        is_pseudo: bool tensor of shape [B, T], True = a pseudo token [P].

    Returns:
        bool tensor of shape [B, T, T], True = may attend.

    Source: section 3 of https://arxiv.org/abs/2002.12804.
    """
    row, key = _of_rows(factorization_rank), _of_keys(factorization_rank)
    row_is_pseudo, key_is_pseudo = _of_rows(is_pseudo), _of_keys(is_pseudo)
    last_step = row - ops.cast(row_is_pseudo, row.dtype)
    return ops.where(
        key_is_pseudo,
        ops.logical_and(row_is_pseudo, key == row),
        key <= last_step,
    )


def literal_masks(perm_mask, target_positions=None):
    """Make the masks of both streams from the released code's `perm_mask`.

    Args:
        perm_mask: tensor of shape [B, T, T], 1 = row i may NOT attend to key j.
        target_positions: int tensor of shape [B, P], or None (default) if all T
            tokens are targets.

    Returns:
        Two bool tensors, True = may attend: content [B, T, T] and query
        [B, P, T]. In the content mask a token may always attend to itself.

    Source: `attn_mask` and `non_tgt_mask` in the released `transformer_xl`.
    """
    may_attend = ops.logical_not(ops.cast(perm_mask, "bool"))
    query = may_attend
    if target_positions is not None:
        query = ops.take_along_axis(
            may_attend, _of_rows(target_positions), axis=1
        )
    token, key = _places(sizes_of(perm_mask)[-1])
    return ops.logical_or(may_attend, key == token), query


def causal_mask(num_tokens, memory_length, same_length=False):
    """Make the causal mask: no token attends to a later token.

    The masks for T = 3 and M = 1, without and with `same_length`:

        1 1 0 0      1 1 0 0
        1 1 1 0      0 1 1 0
        1 1 1 1      0 0 1 1

    Args:
        num_tokens: int, T.
        memory_length: int, M.
        same_length: bool, whether every token may attend to only M + 1 keys.
            Without memory (M = 0) there is no such limit. Default False.

    Returns:
        bool tensor of shape [T, M + T], True = may attend.

    Source: `_create_mask` of the released code. With `same_length` and without
    memory, a token in the released code attends only to itself.
    """
    token, key = _places(num_tokens, memory_length)
    mask = key <= token
    if same_length:
        has_memory = ops.cast(ops.convert_to_tensor(memory_length) > 0, "int32")
        first = (token - memory_length) * has_memory
        mask = ops.logical_and(mask, key >= first)
    return mask


def attention_mask(features, target_positions, config, memory_length):
    """Combine factorization order, padding, memory and causality in one mask.

    Without `perm_mask` and `factorization_rank` a target may attend to every
    token except itself. For `perm_mask` see `literal_masks`.

    Args:
        features: dict of the backbone's features.
        target_positions: int tensor of shape [B, P], or None without targets.
        config: XLNetConfig.
        memory_length: int or scalar tensor, M in this call; 0 without memory.

    Returns:
        bool tensor of shape [B, T + P, M + T] or, without targets,
        [B, T, M + T], True = may attend. The T rows of the content stream
        precede the P rows of the query stream. None if every row may attend to
        every key.
    """
    token_ids = features["token_ids"]
    batch_size, num_tokens = sizes_of(token_ids)
    content, query = _order_masks(features, target_positions, token_ids)
    if config.attention_type == "causal":
        content, query = _and_causal(
            content, query, target_positions, num_tokens, config, memory_length
        )
        rows = _join(content, query)
    else:
        rows = _join(content, query)
        if rows is not None and not is_zero(memory_length):
            shape = [batch_size, sizes_of(rows)[1], memory_length]
            rows = ops.concatenate([ops.ones(shape, "bool"), rows], axis=-1)
    return _and_real_keys(rows, features, target_positions, memory_length)


def other_segment(features, target_positions, memory_length):
    """Mark the pairs of a row and a key that are in different segments.

    All memory is in segment 0.

    Args:
        features, target_positions, memory_length: see `attention_mask`.

    Returns:
        bool tensor of shape [B, T + P, M + T] or, without targets,
        [B, T, M + T], True = different segments. None if `features` has no
        `segment_ids`.
    """
    if "segment_ids" not in features:
        return None
    key_segment = ops.cast(features["segment_ids"], "int32")
    row_segment = key_segment
    if target_positions is not None:
        target_segment = ops.take_along_axis(
            key_segment, target_positions, axis=1
        )
        row_segment = ops.concatenate([key_segment, target_segment], axis=1)
    if not is_zero(memory_length):
        key_segment = ops.pad(key_segment, [[0, 0], [memory_length, 0]])
    return _of_rows(row_segment) != _of_keys(key_segment)


# These functions avoid `tensor[:, None]`, which LiteRT cannot run, and
# `ops.eye`, which OpenVINO cannot convert.


def _of_rows(tensor):
    """Add an axis of keys to the rows' values: [B, Q] -> [B, Q, 1]."""
    return ops.expand_dims(tensor, 2)


def _of_keys(tensor):
    """Add an axis of rows to the keys' values: [B, K] -> [B, 1, K]."""
    return ops.expand_dims(tensor, 1)


def _places(num_tokens, memory_length=0, num_targets=0):
    """Make the indices of the rows and of the keys.

    Token t has the index M + t, as a row and as a key. The rows of targets
    follow the rows of tokens and have indices that no key has.

    Args:
        num_tokens, memory_length: ints or scalar tensors, T and M.
        num_targets: int or scalar tensor, P. Default 0.

    Returns:
        Two int32 tensors: the indices of the rows (shape [T + P, 1]) and the
        indices of the keys (shape [M + T]).
    """
    row = ops.arange(num_tokens + num_targets, dtype="int32") + memory_length
    key = ops.arange(memory_length + num_tokens, dtype="int32")
    return ops.expand_dims(row, 1), key


def _order_masks(features, target_positions, token_ids):
    """Make the masks of both streams for the segment's tokens, without memory.

    Returns:
        (content [B, T, T], query [B, P, T]), True = may attend. The content
        mask is None if all tokens may attend to all tokens. The query mask is
        None without targets.
    """
    if "is_pseudo" in features:
        return pseudo_masks(
            ops.cast(features["factorization_rank"], "int32"),
            ops.cast(features["is_pseudo"], "bool"),
        ), None
    if "factorization_rank" in features:
        masks = permutation_masks(
            ops.cast(features["factorization_rank"], "int32"), target_positions
        )
    elif "perm_mask" in features:
        masks = literal_masks(features["perm_mask"], target_positions)
    elif target_positions is None:
        return None, None
    else:
        num_tokens = sizes_of(token_ids)[1]
        key = ops.arange(num_tokens, dtype="int32")
        everything = _of_rows(ops.ones_like(token_ids, dtype="bool"))
        everything = ops.broadcast_to(
            everything, [sizes_of(token_ids)[0], num_tokens, num_tokens]
        )
        return everything, key != _of_rows(target_positions)
    return masks[0], masks[1] if target_positions is not None else None


def _and_causal(
    content, query, target_positions, num_tokens, config, memory_length
):
    causal = causal_mask(num_tokens, memory_length, config.same_length)
    if query is not None:
        rows = ops.take(causal, target_positions, axis=0)  # [B, P, K]
        query = ops.logical_and(rows, _after_memory(query, memory_length))
    if content is None:
        return ops.expand_dims(causal, 0), query
    content = ops.logical_and(causal, _after_memory(content, memory_length))
    return content, query


def _after_memory(mask, memory_length):
    """Prepend M memory keys to a mask; every row may attend to these keys."""
    if is_zero(memory_length):
        return mask
    return ops.pad(
        mask, [[0, 0], [0, 0], [memory_length, 0]], constant_values=True
    )


def _join(content, query):
    if query is None:
        return content
    return ops.concatenate([content, query], axis=1)


def _and_real_keys(rows, features, target_positions, memory_length):
    """Forbid attention to keys that are padding or unwritten memory.

    As in the released code, a row of the content stream may always attend to
    its own token, even if the token is padding. The row's softmax therefore has
    at least one key.
    """
    padding_mask = features.get("padding_mask")
    has_memory = not is_zero(memory_length)
    memory_mask = features.get("memory_mask") if has_memory else None
    if padding_mask is None and memory_mask is None:
        return rows
    token_ids = features["token_ids"]
    batch_size, num_tokens = sizes_of(token_ids)
    if padding_mask is None:
        padding_mask = ops.ones_like(token_ids)
    real = ops.cast(padding_mask, "bool")
    if has_memory:
        if memory_mask is None:
            memory_mask = ops.ones([batch_size, memory_length], "bool")
        real = ops.concatenate([ops.cast(memory_mask, "bool"), real], axis=-1)
    num_targets = 0
    if target_positions is not None:
        num_targets = sizes_of(target_positions)[1]
    row, key = _places(num_tokens, memory_length, num_targets)
    seen = ops.logical_or(_of_keys(real), key == row)  # [B, T (+ P), K]
    return seen if rows is None else ops.logical_and(rows, seen)
