"""Attention that keeps one tensor of scores for its hand-written gradient.

The scores of all rows and keys, [B, N, Q, K], are the model's largest tensors.
Most of the work outside matrix products is done on these scores. Three measures
reduce the cost of the scores:

- Only exp(scores - max) is kept for the backward pass, with the dropout mask in
  the sign bit. The backward pass needs no matrix product to compute the
  probabilities from this tensor.
- If there are very many scores, as with long segments or large batches, they
  are computed for a few heads at a time and recomputed in the backward pass.
  Memory then does not grow with B * N. If B or T is unknown when the step is
  traced, all scores are kept. `rematerialize` then saves memory
  (`model/recomputation.py`).
- If a prefix cannot attend to the tokens after it
  (`AttentionRules.first_half_length`), the scores of the prefix's content
  rows for these tokens are not computed.

`plain` computes the same attention, equation by equation.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances, G heads at a time.
"""

import functools

from keras import ops

from xlnet_tf.model.dropout import hash_rows
from xlnet_tf.model.dropout import keep_mask_of_rows
from xlnet_tf.model.kernels.halves import cut
from xlnet_tf.model.kernels.halves import parts_of
from xlnet_tf.model.kernels.halves import sum_keys
from xlnet_tf.model.kernels.scores import HeadInputs
from xlnet_tf.model.kernels.scores import attend_heads
from xlnet_tf.model.kernels.scores import attention_gradient
from xlnet_tf.model.kernels.scores import segment_difference
from xlnet_tf.model.kernels.scores import signed_weights
from xlnet_tf.model.sizes import begins_with_one
from xlnet_tf.model.sizes import sizes_of

# Largest number of scores, of 4 bytes each, that are computed at once. With
# more scores the heads are computed in groups.
_MAX_SCORES_AT_ONCE = 2**26
# Largest number of scores of a group, unless a single head has more.
_MAX_SCORES_OF_A_GROUP = 2**24


def attend(inputs, rules):
    """Multiply the values by softmax(content + position + segment scores).

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to no key gets
        zeros.
    """
    query, key, position = inputs.query, inputs.key, inputs.position
    rules = _with_heads(rules)
    if rules.seed is not None and rules.dropout:
        mask_rows = hash_rows(sizes_of(query)[:3], rules.seed)
        rules = rules._replace(mask_rows=mask_rows)
    num_keys, num_distances = sizes_of(key)[2], sizes_of(position)[2]
    parts = parts_of(rules, sizes_of(query)[2], num_keys, num_distances)
    # Scaling the queries once is cheaper than scaling Q * K scores.
    scale = sizes_of(query)[-1] ** -0.5

    @ops.custom_gradient
    def attended(query, content_bias, position_bias, *others):
        tensors = (
            (query + ops.expand_dims(content_bias, 1)) * scale,
            (query + ops.expand_dims(position_bias, 1)) * scale,
            *others,
        )
        computed = [_PartOfCall(part, *tensors) for part in parts]
        outputs = _in_one([part.outputs for part in computed])

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            of_parts = [part.gradients(upstream) for part in computed]
            content_query, position_query, difference = (
                _in_one([getattr(part, name) for part in of_parts])
                for name in HeadInputs._fields[:3]
            )
            key = sum_keys([part.key for part in of_parts])
            value = sum_keys([part.value for part in of_parts])
            position = _sum_distances(parts, of_parts, num_distances)
            # The sum of two tensors is scaled, because separate scaling would
            # lead to a sum of three tensors. The order in which TensorFlow adds
            # three tensors depends on other uses of these tensors.
            return (
                (content_query + position_query) * scale,
                ops.sum(content_query, axis=(0, 2)) * scale,
                ops.sum(position_query, axis=(0, 2)) * scale,
                difference,
                key,
                value,
                position,
            )

        return outputs, gradient

    return attended(
        query,
        inputs.content_bias,
        inputs.position_bias,
        segment_difference(inputs),
        key,
        inputs.value,
        position,
    )


class _PartOfCall:
    """Attention of one Part of the rows, and the tensors for its gradient.

    Args:
        part: Part.
        content_query, position_query, difference, key, value: float tensors of
            all rows and keys, see `HeadInputs`. Their first two axes are B and
            N.
        position: float tensor of shape [1 or 2, N, R, H], the projected
            distances.

    Attributes:
        outputs: float tensor of shape [B, N, rows of the part, H], the attended
            values.
    """

    def __init__(
        self,
        part,
        content_query,
        position_query,
        difference,
        key,
        value,
        position,
    ):
        self._part = part
        self._inputs = HeadInputs(
            cut(content_query, part.rows),
            cut(position_query, part.rows),
            cut(difference, part.rows),
            cut(key, part.keys),
            cut(value, part.keys),
            *part.distances_of(position),
        )
        self._group = _group_size(self._inputs.content_query, self._inputs.key)
        self.outputs, *self._saved = _forward(
            self._inputs, part.rules, self._group
        )

    def gradients(self, upstream):
        """Compute the gradients of the part's inputs, as HeadInputs.

        Args:
            upstream: float tensor of shape [B, N, Q, H], the gradient of the
                attended values of all parts.
        """
        return _backward(
            self._inputs,
            self._part.rules,
            self._group,
            self.outputs,
            self._saved,
            cut(upstream, self._part.rows),
        )


def _in_one(tensors):
    """Concatenate the tensors of all parts along the axis of rows."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=2)


def _sum_distances(parts, gradients, num_distances):
    """Sum the parts' gradients of the projected distances."""
    position_gradients = []
    for part, part_gradients in zip(parts, gradients, strict=True):
        position_gradients += part.distance_gradients(
            part_gradients.position_blocks,
            part_gradients.position,
            num_distances,
        )
    return functools.reduce(ops.add, position_gradients)


def _with_heads(rules):
    """Add an axis of heads to masks and target positions: [B or 1, 1, ...]."""

    def with_heads(tensor):
        return None if tensor is None else ops.expand_dims(tensor, 1)

    return rules._replace(
        mask=with_heads(rules.mask),
        other_segment=with_heads(rules.other_segment),
        target_positions=with_heads(rules.target_positions),
    )


def heads_at_a_time(batch_size, num_heads, num_rows, num_keys):
    """Number of an example's heads that are computed at once.

    Args:
        batch_size, num_heads, num_rows, num_keys: ints, B, N, Q and K.

    Returns:
        int, G. None if all heads of all examples are computed at once; their
        scores are then kept.
    """
    scores = num_rows * num_keys
    if batch_size * num_heads * scores <= _MAX_SCORES_AT_ONCE:
        return None
    fitting = [
        group
        for group in range(1, num_heads + 1)
        if num_heads % group == 0 and group * scores <= _MAX_SCORES_OF_A_GROUP
    ]
    return max(fitting, default=1)


def _group_size(query, key):
    """Compute `heads_at_a_time` from the shapes of query and key.

    If a size is unknown, the result is None.
    """
    batch_size, num_heads, num_rows, _ = sizes_of(query)
    sizes = (batch_size, num_heads, num_rows, sizes_of(key)[2])
    if not all(isinstance(size, int) for size in sizes):
        return None
    return heads_at_a_time(*sizes)


def _forward(inputs, rules, group):
    """Compute the attended values and the tensors that the gradient needs.

    Returns:
        (attended values [B, N, Q, H], factor of each row [B, N, Q], weights
        [B, N, Q, K]), see `attend_heads`. If G heads are computed at a time,
        the largest score of each row [B, N, Q] takes the place of the weights.
    """

    def attended(inputs, rules):
        weights, largest = signed_weights(inputs, rules)
        outputs, factor = attend_heads(weights, largest, inputs.value, rules)
        return outputs, factor, weights, largest

    if group is None:
        outputs, factor, weights, _ = attended(
            _with_examples(inputs, rules), _with_keep(inputs.key, rules)
        )
        # The matrix products need the weights in the type of the values.
        return outputs, factor, ops.cast(weights, inputs.value.dtype)

    def step(inputs, _, rules):
        outputs, factor, _, largest = attended(inputs, rules)
        return outputs, factor, largest

    return _over_groups(step, inputs, (), rules, group)


def _backward(inputs, rules, group, outputs, saved, upstream):
    """Compute the gradients of all inputs, as HeadInputs."""
    factor, last = saved
    # The gradient of a softmax subtracts this weighted mean from each row.
    mean = ops.sum(
        ops.cast(upstream, factor.dtype) * ops.cast(outputs, factor.dtype),
        axis=-1,
    )
    if group is None:
        gradients = attention_gradient(
            _with_examples(inputs, rules),
            rules,
            ops.cast(last, factor.dtype),
            factor,
            mean,
            upstream,
        )
    else:

        def step(inputs, rows, rules):
            factor, largest, mean, upstream = rows
            weights, _ = signed_weights(inputs, rules, largest)
            return tuple(
                attention_gradient(
                    inputs, rules, weights, factor, mean, upstream
                )
            )

        gradients = HeadInputs(
            *_over_groups(
                step, inputs, (factor, last, mean, upstream), rules, group
            )
        )
    return gradients._replace(
        position_blocks=_sum_examples(gradients.position_blocks, rules),
        position=_sum_examples(gradients.position, rules),
    )


def _over_groups(step, inputs, rows, rules, group):
    """Call a function repeatedly, for G heads of an example at a time.

    Args:
        step: function of (HeadInputs, list of tensors, AttentionRules) that
            returns a tuple of tensors. The tensors in HeadInputs, in the list
            and in the tuple have the shape [G, ...], for G heads of an example.
        inputs: HeadInputs of all heads. The distances have the shape
            [1 or 2, N, ...].
        rows: list of other tensors of shape [B, N, ...]. `step` gets their
            slices for G heads as its second argument.
        rules: AttentionRules.
        group: int, G.

    Returns:
        list of tensors of shape [B, N, ...], the joined results of `step`.
    """
    batch_size, num_heads = sizes_of(inputs.content_query)[:2]
    groups = num_heads // group

    def in_groups(tensor):
        # The length is given, because a length of -1 is undefined for a tensor
        # without rows.
        size, _, *others = sizes_of(tensor)
        return ops.reshape(tensor, [size * groups, group, *others])

    grouped = HeadInputs(*map(in_groups, inputs))
    by_direction = [grouped.position_blocks, grouped.position]
    by_example = [*grouped[:5], *map(in_groups, rows)]
    if rules.mask_rows is not None:
        by_example.append(in_groups(rules.mask_rows))

    def body(arguments):
        index, *tensors = arguments
        mask_rows = None if rules.mask_rows is None else tensors.pop()
        example, head_group = index // groups, index % groups
        direction = head_group
        if rules.is_reversed is not None:
            backwards = ops.cast(rules.is_reversed[example], "int32")
            direction = head_group + groups * backwards
        distances = [ops.take(x, direction, axis=0) for x in by_direction]
        inputs = HeadInputs(*tensors[:5], *distances)
        of_group = _rules_of_group(rules, example, inputs.key, mask_rows)
        return step(inputs, tensors[5:], of_group)

    results = ops.map(
        body, (ops.arange(batch_size * groups, dtype="int32"), *by_example)
    )
    return [
        ops.reshape(result, [batch_size, num_heads, *sizes_of(result)[2:]])
        for result in results
    ]


def _rules_of_group(rules, example, key, mask_rows):
    """Select the AttentionRules of G heads of one example."""

    def of_example(tensor):
        if tensor is None:
            return None
        # A mask shared by all examples has a first axis of 1.
        return tensor[0] if sizes_of(tensor)[0] == 1 else tensor[example]

    of_group = rules._replace(
        mask=of_example(rules.mask),
        other_segment=of_example(rules.other_segment),
        target_positions=of_example(rules.target_positions),
        mask_rows=mask_rows,
    )
    return _with_keep(key, of_group)


def _with_keep(key, rules):
    """Return the rules with a dropout mask `keep`, drawn from `mask_rows`."""
    if rules.mask_rows is None:
        return rules
    num_keys = sizes_of(key)[-2]
    keep = keep_mask_of_rows(rules.mask_rows, num_keys, rules.dropout)
    return rules._replace(keep=keep)


def _with_examples(inputs, rules):
    """Gather each example's distances: [1 or 2, ...] -> [1 or B, ...]."""
    if rules.is_reversed is None:
        return inputs
    direction = ops.cast(rules.is_reversed, "int32")
    return inputs._replace(
        position_blocks=ops.take(inputs.position_blocks, direction, axis=0),
        position=ops.take(inputs.position, direction, axis=0),
    )


def _sum_examples(gradient, rules):
    """Sum gradients by reading direction: [1 or B, ...] -> [1 or 2, ...]."""
    if rules.is_reversed is None:
        if begins_with_one(gradient):
            return gradient
        return ops.sum(gradient, axis=0, keepdims=True)
    backwards = ops.cast(rules.is_reversed, gradient.dtype)
    directions = ops.stack([1 - backwards, backwards])  # [2, B]
    return ops.tensordot(directions, gradient, axes=1)
