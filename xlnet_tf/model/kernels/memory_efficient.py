"""From queries, keys and values to what is attended: softmax and its gradient.

Scores of all rows and keys are the largest tensors of the model, [B, N, Q, K],
and most of what is not a matrix product. Two things keep them cheap:

- One such tensor is kept for the gradient, the softmax before its division,
  with the sign for what dropout drops. All else follows without a product.
- Where they are very many (long segments, large batches) and B and T are known
  when the step is traced, they are computed for a few heads at a time, and
  again for the gradient, so that memory does not grow with B x N. Batches of
  several lengths, or whose last may be smaller, keep them; `rematerialize` is
  for those.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances; G heads at a time.
"""

from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.dropout import keep_mask
from xlnet_tf.model.kernels.scores import Part
from xlnet_tf.model.kernels.scores import attend_part
from xlnet_tf.model.kernels.scores import gradient_of_part
from xlnet_tf.model.kernels.scores import signed_weights
from xlnet_tf.model.relative_position import position_blocks

# More scores than this, 4 bytes each, are computed in parts,
_SCORES_IN_ONE_PIECE = 2**26
# of at most this size where a single head allows it.
_SCORES_AT_A_TIME = 2**24


class AttentionRules(NamedTuple):
    """What decides the scores beside queries and keys. None of it is learned.

    Attributes:
        mask: bool tensor of shape [B or 1, Q, K], True = may attend, or None.
        other_segment: bool tensor of shape [B, Q, K], True = row and key belong
            to different segments, or None.
        is_reversed: bool tensor of shape [B], which rows read backwards, or
            None.
        target_positions: int32 tensor of shape [B, P], or None.
        dropout: float, rate on the probabilities.
        seed: int tensor of shape [2], or None for no dropout.
        has_content: bool, whether rows of content come before those of
            targets. Default True.
    """

    mask: Any
    other_segment: Any
    is_reversed: Any
    target_positions: Any
    dropout: float
    seed: Any
    has_content: bool = True


def attend(
    query,
    content_bias,
    position_bias,
    difference,
    key,
    value,
    position,
    rules,
):
    """Softmax of content, position and segment scores, times the values.

    Args:
        query: float tensor of shape [B, N, Q, H].
        content_bias, position_bias: float tensors of shape [N, H], u and v.
        difference: float tensor of shape [B, N, Q], the score of a key in
            another segment above that of one in the same.
        key, value: float tensors of shape [B, N, K, H].
        position: float tensor of shape [1 or 2, N, R, H], projected distances,
            forwards and, if any row is reversed, backwards.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to nothing
        gets zeros.
    """
    group = _group(query, key)
    # Scaling the queries once is cheaper than scaling Q x K scores.
    scale = ops.shape(query)[-1] ** -0.5

    @ops.custom_gradient
    def attended(query, content_bias, position_bias, *others):
        tensors = (
            (query + content_bias[:, None]) * scale,
            (query + position_bias[:, None]) * scale,
            *others,
        )
        outputs, *saved = _forward(tensors, rules, group)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            of_content, of_position, *of_others = _backward(
                tensors, rules, group, outputs, saved, upstream
            )
            # TensorFlow adds up three tensors in an order that depends on
            # which of them is still in use elsewhere; multiplied after the
            # sum of two, these are never three.
            return (
                (of_content + of_position) * scale,
                ops.sum(of_content, axis=(0, 2)) * scale,
                ops.sum(of_position, axis=(0, 2)) * scale,
                *of_others,
            )

        return outputs, gradient

    num_keys = ops.shape(key)[2]
    num_tokens = ops.shape(position)[2] - num_keys
    if rules.has_content:
        blocks = position_blocks(position, num_tokens, num_keys)
    else:
        blocks = position[..., None, :, :][..., :0, :, :]
    if rules.target_positions is None:
        position = position[:, :, :0]  # only targets need it in one piece
    return attended(
        query,
        content_bias,
        position_bias,
        difference,
        key,
        value,
        blocks,
        position,
    )


def heads_at_a_time(batch_size, num_heads, num_rows, num_keys):
    """How many heads of an example are computed at once.

    Args:
        batch_size, num_heads, num_rows, num_keys: ints, B, N, Q and K.

    Returns:
        int, or None for all heads of all examples; then their scores are kept.
    """
    scores = num_rows * num_keys
    if batch_size * num_heads * scores <= _SCORES_IN_ONE_PIECE:
        return None
    fitting = [
        group
        for group in range(1, num_heads + 1)
        if num_heads % group == 0 and group * scores <= _SCORES_AT_A_TIME
    ]
    return max(fitting, default=1)


def _group(query, key):
    """`heads_at_a_time` of tensors; None where a size is not known."""
    batch_size, num_heads, num_rows, _ = ops.shape(query)
    sizes = (batch_size, num_heads, num_rows, ops.shape(key)[2])
    if not all(isinstance(size, int) for size in sizes):
        return None
    return heads_at_a_time(*sizes)


def _forward(tensors, rules, group):
    """What is attended to, and what the gradient needs of the way there.

    Returns:
        (attended [B, N, Q, H], factor of each row [B, N, Q], weights
        [B, N, Q, K], or where they are computed again the largest score of
        each row [B, N, Q]).
    """

    def attended(tensors, part):
        *others, value, blocks, position = tensors
        weights, largest = signed_weights(*others, blocks, position, part)
        return *attend_part(weights, largest, value, part), weights, largest

    if group is None:
        part = _whole(tensors, rules)
        outputs, factor, weights, _ = attended(
            _whole_tensors(tensors, rules), part
        )
        # The type of the product that they were made for.
        return outputs, factor, ops.cast(weights, tensors[4].dtype)

    def step(tensors, part):
        outputs, factor, _, largest = attended(tensors, part)
        return outputs, factor, largest

    return _over_groups(step, tensors, (), rules, group)


def _backward(tensors, rules, group, outputs, saved, upstream):
    """The gradients of all tensors."""
    # Softmax subtracts from each row the mean of its gradient, which is this.
    mean = ops.sum(
        ops.cast(upstream, "float32") * ops.cast(outputs, "float32"), axis=-1
    )
    factor, last = saved
    if group is None:
        *gradients, of_blocks, of_position = gradient_of_part(
            *_whole_tensors(tensors, rules),
            ops.cast(last, "float32"),
            factor,
            mean,
            upstream,
            _whole(tensors, rules),
        )
    else:

        def step(arguments, part):
            *tensors, factor, largest, mean, upstream = arguments
            *others, _, blocks, position = tensors
            weights, _ = signed_weights(
                *others, blocks, position, part, largest
            )
            return gradient_of_part(
                *tensors, weights, factor, mean, upstream, part
            )

        *gradients, of_blocks, of_position = _over_groups(
            step, tensors, (factor, last, mean, upstream), rules, group
        )
    return (
        *gradients,
        _over_examples(of_blocks, rules),
        _over_examples(of_position, rules),
    )


def _over_groups(step, tensors, others, rules, group):
    """Calls a function for G heads of an example at a time.

    Args:
        step: function of (list of tensors with G in the place of [B, N], Part)
            to a tuple of tensors of the same kind.
        tensors: as `_forward` takes them.
        others: further tensors of shape [B, N, ...].
        rules: AttentionRules.
        group: int, G.

    Returns:
        list of tensors of shape [B, N, ...].
    """
    *tensors, blocks, position = tensors
    batch_size, num_heads, num_rows, _ = ops.shape(tensors[0])
    num_keys = ops.shape(tensors[3])[2]
    groups = num_heads // group

    def joined(tensor):
        # Without -1: of what has no rows, its length would not be known.
        size, _, *others = ops.shape(tensor)
        return ops.reshape(tensor, [size * groups, group, *others])

    # forwards, then backwards
    by_direction = [joined(blocks), joined(position)]

    def body(arguments):
        index, *some = arguments
        example, head_group = index // groups, index % groups
        direction = head_group
        if rules.is_reversed is not None:
            backwards = ops.cast(rules.is_reversed[example], "int32")
            direction = head_group + groups * backwards
        some[5:5] = [ops.take(x, direction, axis=0) for x in by_direction]
        where = [
            (example, batch_size),
            (head_group * group, num_heads),
            (0, num_rows),
            (0, num_keys),
        ]
        return step(some, _part(rules, example, group, where))

    results = ops.map(
        body,
        (
            ops.arange(batch_size * groups, dtype="int32"),
            *(joined(tensor) for tensor in (*tensors, *others)),
        ),
    )
    return [
        ops.reshape(result, [batch_size, num_heads, *ops.shape(result)[2:]])
        for result in results
    ]


def _part(rules, example, group, where):
    """The rules of G heads of one example."""

    def of_example(tensor):
        if tensor is None:
            return None
        # A mask that is the same for all examples has a first axis of 1.
        return tensor[0] if ops.shape(tensor)[0] == 1 else tensor[example]

    keep, scale = None, 1.0
    if rules.seed is not None and rules.dropout:
        shape = (1, group, where[2][1], where[3][1])
        keep = keep_mask(shape, rules.dropout, rules.seed, where)[0]
        scale = 1 / (1 - rules.dropout)
    return Part(
        of_example(rules.mask),
        of_example(rules.other_segment),
        of_example(rules.target_positions),
        keep,
        scale,
    )


def _whole(tensors, rules):
    """The rules of all heads of all examples."""

    def with_heads(tensor):
        return None if tensor is None else tensor[:, None]

    keep, scale = None, 1.0
    if rules.seed is not None and rules.dropout:
        batch_size, num_heads, num_rows, _ = ops.shape(tensors[0])
        shape = (batch_size, num_heads, num_rows, ops.shape(tensors[3])[2])
        keep = keep_mask(shape, rules.dropout, rules.seed)
        scale = 1 / (1 - rules.dropout)
    return Part(
        with_heads(rules.mask),
        with_heads(rules.other_segment),
        with_heads(rules.target_positions),
        keep,
        scale,
    )


def _whole_tensors(tensors, rules):
    """The tensors, those of distances with an axis of examples."""
    *others, blocks, position = tensors
    return (
        *others,
        _by_example(blocks, rules),
        _by_example(position, rules),
    )


def _by_example(position, rules):
    """[1 or 2, N, ...] -> [1 or B, N, ...]."""
    if rules.is_reversed is None:
        return position
    return ops.take(position, ops.cast(rules.is_reversed, "int32"), axis=0)


def _over_examples(gradient, rules):
    """[1 or B, N, ...] -> [1 or 2, N, ...], the reverse of that."""
    if rules.is_reversed is None:
        return ops.sum(gradient, axis=0, keepdims=True)
    backwards = ops.cast(rules.is_reversed, gradient.dtype)
    directions = ops.stack([1 - backwards, backwards])  # [2, B]
    return ops.tensordot(directions, gradient, axes=1)
