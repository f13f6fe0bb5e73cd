"""Attention in two parts where the first tokens see none of those behind.

In pretraining as released, content rows of the half that is reused see that
half and memory alone. For T = 4 and M = 2, with halves of two tokens:

    keys  m m 1 1 2 2
    row 1 x x x x . .
    row 1 x x x x . .      x scored
    row 2 x x x x x x      . never computed
    row 2 x x x x x x

Shapes: B batch, T tokens, M memory length, K = M + T keys, Q rows, N heads,
H head dim, R = K + T distances.
"""

from xlnet_tf.model.relative_position import make_position_blocks
from xlnet_tf.model.sizes import sizes_of


def halves(position, rules, num_rows, num_keys):
    """Divide the rows of a call.

    Args:
        position: float tensor of shape [1 or 2, N, R, H].
        rules: ScoreRules.
        num_rows, num_keys: ints, or scalars of the backend, Q and K.

    Returns:
        list of (slice of rows, slice of the keys that they may see, their
        `distances_of`, their ScoreRules), for the content rows of the first
        half and for all others; None if the rules promise no such half, or a
        size is not known before the call.
    """
    first, num_distances = rules.first_half_length, sizes_of(position)[2]
    sizes = num_rows, num_keys, num_distances
    if not first or rules.streams == "query":
        return None
    if not all(isinstance(size, int) for size in sizes):
        return None
    rest = num_distances - num_keys - first  # tokens of the second half
    early, late = slice(0, first), slice(first, None)
    seen, all_keys = slice(0, num_keys - rest), slice(0, None)

    def rules_of(rows, keys, **changes):
        def cut(tensor):
            return None if tensor is None else tensor[:, rows, keys]

        mask_rows = rules.mask_rows
        return rules._replace(
            mask=cut(rules.mask),
            other_segment=cut(rules.other_segment),
            # Of the same bits as without parts: all keys are numbered from 0.
            mask_rows=None if mask_rows is None else mask_rows[:, :, rows],
            **changes,
        )

    # The distances of fewer tokens and keys are consecutive rows of the table.
    of_early = rules_of(early, seen, target_positions=None)
    early_distances = distances_of(
        position[:, :, rest : num_keys + first], of_early, num_keys - rest
    )
    late_blocks = make_position_blocks(
        position[:, :, : num_keys + rest], rest, num_keys
    )
    # Targets stand in either half.
    late_distances = late_blocks, _distances_of_targets(position, rules)
    return [
        (early, seen, early_distances, of_early),
        (late, all_keys, late_distances, rules_of(late, all_keys)),
    ]


def distances_of(position, rules, num_keys):
    """Make `position_blocks` and `position` of `HeadInputs`.

    Args:
        position: float tensor of shape [1 or 2, N, R, H].
        rules: ScoreRules.
        num_keys: int or scalar of the backend, K.

    Returns:
        two float tensors; the first is empty without content rows, the second
        without targets.
    """
    if rules.streams == "query":
        blocks = position[..., None, :, :][..., :0, :, :]
    else:
        num_tokens = sizes_of(position)[2] - num_keys
        blocks = make_position_blocks(position, num_tokens, num_keys)
    return blocks, _distances_of_targets(position, rules)


def _distances_of_targets(position, rules):
    # Only targets need the distances in one piece.
    has_targets = rules.target_positions is not None
    return position if has_targets else position[:, :, :0]
