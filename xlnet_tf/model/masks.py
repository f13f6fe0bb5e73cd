"""Attention masks.

Inside the model a mask is bool and True means may attend. The released
polarity (1 = may NOT attend) exists only in the feature `perm_mask`.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets.
"""

from keras import ops

from xlnet_tf.model.sizes import is_zero
from xlnet_tf.model.sizes import sizes_of

# `factorization_rank` of context tokens, before step 0.
CONTEXT_RANK = -1


def permutation_masks(factorization_rank, target_positions=None):
    """Masks of both streams under a factorization order.

    The content stream of a token sees the token itself and all earlier tokens
    in the order. Its query stream must predict the token, so it sees only the
    earlier tokens (https://arxiv.org/abs/1906.08237, section 2.3). For the
    order 3 -> 2 -> 4 -> 1 of figure 1, `factorization_rank` is [3, 1, 0, 2] and

        content  1 1 1 1      query  0 1 1 1
                 0 1 1 0             0 0 1 0
                 0 0 1 0             0 0 0 0
                 0 1 1 1             0 1 1 0

    Tokens of equal rank are one step: their content streams see each other,
    their query streams do not. All context tokens share the rank -1: they see
    each other, and every target sees them.

    Args:
        factorization_rank: int tensor of shape [B, T], the step at which each
            token is revealed; -1 for context.
        target_positions: int tensor of shape [B, P], or None for all T.

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
    """Mask of pseudo-masked language modelling: one pass for all steps.

    A pseudo token [P] replaces a predicted token. The token itself is appended,
    visible to later steps. Both have the rank of their step. Row i may attend
    to

    - an ordinary token of the same or an earlier step; only of an earlier step
      if i is pseudo;
    - a pseudo token, if i is pseudo too and of the same step.

    So only pseudo tokens of the same step see a pseudo token. Without pseudo
    tokens this is the content mask of `permutation_masks`.

    Args:
        factorization_rank: int tensor of shape [B, T], the step at which each
            token is predicted; -1 for context, and for [M].
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
    """Masks of both streams from the released `perm_mask`.

    Args:
        perm_mask: tensor of shape [B, T, T], 1 = i may NOT attend to j.
        target_positions: int tensor of shape [B, P], or None for all T.

    Returns:
        Two bool tensors, True = may attend: content [B, T, T], where a token
        always sees itself, and query [B, P, T].

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
    """Causal mask: a token sees memory, the tokens before it, and itself.

    For T = 3 and M = 1, without and with `same_length`:

        1 1 0 0      1 1 0 0
        1 1 1 0      0 1 1 0
        1 1 1 1      0 0 1 1

    Args:
        num_tokens: int, T.
        memory_length: int, M.
        same_length: bool, whether every token sees only M + 1 keys. Without
            memory, M = 0, there is no such limit.

    Returns:
        bool tensor of shape [T, M + T], True = may attend.

    Source: `_create_mask` of the released code, where a token sees only itself
    with `same_length` and no memory.
    """
    token, key = _places(num_tokens, memory_length)
    mask = key <= token
    if same_length:
        has_memory = ops.cast(ops.convert_to_tensor(memory_length) > 0, "int32")
        first = (token - memory_length) * has_memory
        mask = ops.logical_and(mask, key >= first)
    return mask


def attention_mask(features, target_positions, config, memory_length):
    """Combine order, padding, memory and causality in one mask.

    Without `perm_mask` or `factorization_rank` a target sees every token but
    itself. With `perm_mask` the mask is taken literally.

    Args:
        features: dict of the backbone's inputs.
        target_positions: int tensor of shape [B, P] or None.
        config: XLNetConfig.
        memory_length: int or scalar of the backend, M in this call; 0 without
            memory.

    Returns:
        bool tensor of shape [B, T (+ P), M + T], True = may attend: T rows of
        the content stream, then P of the query stream. None if every row may
        attend to every key.
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
    """Find keys in another segment than a row; memory is segment 0.

    Args:
        features, target_positions, memory_length: of `attention_mask`.

    Returns:
        bool tensor of shape [B, T (+ P), M + T], True = different segments, or
        None if segments are unknown.
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


# Not `tensor[:, None]`, which LiteRT does not run, nor `ops.eye`, which
# OpenVINO does not convert.


def _of_rows(tensor):
    """[B, Q] -> [B, Q, 1]: a value of each row, for all keys."""
    return ops.expand_dims(tensor, 2)


def _of_keys(tensor):
    """[B, K] -> [B, 1, K]: a value of each key, for all rows."""
    return ops.expand_dims(tensor, 1)


def _places(num_tokens, memory_length=0, num_targets=0):
    """Places of tokens and of keys on the axis of the keys.

    Args:
        num_tokens, memory_length: ints or scalars of the backend, T and M.
        num_targets: int or scalar, P, rows after the rows of the tokens, at
            places without a key. Default 0.

    Returns:
        Two int32 tensors, of shapes [T + P, 1] and [M + T].
    """
    row = ops.arange(num_tokens + num_targets, dtype="int32") + memory_length
    key = ops.arange(memory_length + num_tokens, dtype="int32")
    return ops.expand_dims(row, 1), key


def _order_masks(features, target_positions, token_ids):
    """Content [B, T, T] and query [B, P, T] by the factorization order."""
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
    """Widen [.., T] to [.., M + T]; every row may attend to memory."""
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
    """Mask padding and unwritten memory as keys.

    As released, a content row always sees its own token, even padding, so that
    no softmax has only masked keys.
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
