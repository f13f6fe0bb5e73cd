"""Attention in two parts, for a prefix that attends to no tokens after it.

In the released pretraining, content rows of a segment's first half attend only
to the first half and to memory (m). For T = 4 and M = 2, with halves 1 and 2 of
two tokens each:

    keys  m m 1 1 2 2
    row 1 x x x x . .
    row 1 x x x x . .      x scored
    row 2 x x x x x x      . never computed
    row 2 x x x x x x

A target attends only to keys that are visible to the content row of its token.
No row therefore attends further ahead than the length of the longer half. The
encodings of larger distances ahead are not projected.

Shapes: B batch, T tokens, M memory length, K = M + T keys, Q rows, N heads,
H head dim, R = K + T distances.
"""

from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.kernels.distances import make_position_blocks
from xlnet_tf.model.kernels.distances import num_unneeded_distances
from xlnet_tf.model.kernels.distances import sum_position_blocks
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.model.sizes import slice_axis

_ALL = slice(0, None)


class Part(NamedTuple):
    """Rows whose scores are computed together, with the keys of these scores.

    Attributes:
        rows, keys: slices of the axes Q and K.
        distances: slice of the axis R, the distances of the content rows.
        target_distances: slice of the axis R, the distances of the targets.
        num_tokens: int or scalar tensor, number of content rows of the part, or
            T if `rules.streams` is "query".
        rules: AttentionRules of these rows and keys.
    """

    rows: Any
    keys: Any
    distances: Any
    target_distances: Any
    num_tokens: Any
    rules: Any

    def distances_of(self, position):
        """Slice the projected distances that this part needs.

        Args:
            position: float tensor of shape [1 or 2, N, R, H], the projected
                distances.

        Returns:
            Two float tensors, the fields `position_blocks` and `position` of
            `HeadInputs`. The first is empty if the part has no content rows.
            The second is empty if the part has no targets.
        """
        return self._blocks(position), self._of_targets(position)

    def _blocks(self, position):
        if self.rules.streams == "query":
            return position[..., None, :, :][..., :0, :, :]
        consecutive = cut(position, self.distances)
        num_keys = sizes_of(consecutive)[2] - self.num_tokens
        return make_position_blocks(consecutive, self.num_tokens, num_keys)

    def _of_targets(self, position):
        has_targets = self.rules.target_positions is not None
        if not has_targets:
            return position[:, :, :0]
        return cut(position, self.target_distances)

    def distance_gradients(self, blocks, position, num_distances):
        """Compute the terms that this part adds to the distances' gradient.

        Args:
            blocks, position: float tensors, the gradients of the two results of
                `distances_of`.
            num_distances: int or scalar tensor, R.

        Returns:
            list of float tensors of shape [1 or 2, N, R, H]. The sum of the
            terms of all parts is the gradient.
        """
        gradients = []
        if self.rules.target_positions is not None:
            gradients.append(
                _place(position, self.target_distances, num_distances)
            )
        if self.rules.streams != "query":
            blocks = sum_position_blocks(blocks, self.num_tokens)
            gradients.append(_place(blocks, self.distances, num_distances))
        return gradients


def cut(tensor, part):
    """Slice axis 2 of a tensor; for the whole axis return the tensor itself."""
    if part == _ALL:
        return tensor
    return slice_axis(tensor, part.start, part.stop - part.start, axis=2)


def _place(gradient, part, size):
    """Pad a slice's gradient with zeros to the full length of axis 2."""
    if part == _ALL:
        return gradient
    around = [part.start, size - part.stop]
    return ops.pad(gradient, [[0, 0], [0, 0], around, [0, 0]])


def sum_keys(gradients):
    """Sum the parts' gradients of the keys.

    The keys of every part begin with key 0. The gradient of a part with fewer
    than K keys is added without padding. On a CPU, XLA pads on only one core,
    and compiles a pad to more code than ten other operations.

    Args:
        gradients: list of float tensors of shape [B, N, keys of the part, H]. A
            tensor has at least as many keys as the tensor before it.

    Returns:
        float tensor of shape [B, N, K, H].
    """
    total, *longer = gradients
    for gradient in longer:
        seen, others = ops.split(gradient, [sizes_of(total)[2]], axis=2)
        total = ops.concatenate([total + seen, others], axis=2)
    return total


def parts_of(rules, num_rows, num_keys, num_distances):
    """Divide the rows of an attention call into parts.

    Args:
        rules: AttentionRules with an axis of heads: masks have the shape
            [B or 1, 1, Q, K], `target_positions` the shape [B, 1, P].
        num_rows, num_keys, num_distances: ints or scalar tensors, Q, K and R.

    Returns:
        list of Part, in the order of their rows: the content rows of the first
        half, then all other rows. A list of one Part for all rows if
        `rules.first_half_length` is 0, if `rules.streams` is "query", or if a
        size is not known before the call.
    """
    first, num_tokens = rules.first_half_length, num_distances - num_keys
    rules = rules._replace(num_tokens=num_tokens)
    sizes = num_rows, num_keys, num_distances
    if not first or not all(isinstance(size, int) for size in sizes):
        return [Part(_ALL, _ALL, _ALL, _ALL, num_tokens, rules)]
    num_unneeded = num_unneeded_distances(num_tokens, first)
    of_targets = slice(0, num_distances - num_unneeded)
    if rules.streams == "query":
        return [Part(_ALL, _ALL, _ALL, of_targets, num_tokens, rules)]

    def part(rows, keys, distances, num_tokens, **changes):
        def of_part(tensor):
            return None if tensor is None else tensor[:, :, rows, keys]

        mask_rows = rules.mask_rows
        of_rows = rules._replace(
            mask=of_part(rules.mask),
            other_segment=of_part(rules.other_segment),
            # The dropout bits are the same as without parts, because each
            # part numbers its keys from 0.
            mask_rows=None if mask_rows is None else cut(mask_rows, rows),
            **changes,
        )
        return Part(rows, keys, distances, of_targets, num_tokens, of_rows)

    rest = num_tokens - first
    # The distances of a part are consecutive rows of the table.
    return [
        part(
            slice(0, first),
            slice(0, num_keys - rest),
            slice(rest, num_keys + first),
            first,
            target_positions=None,
        ),
        # The targets of both halves are in the second part.
        part(slice(first, num_rows), _ALL, slice(0, num_keys + rest), rest),
    ]
