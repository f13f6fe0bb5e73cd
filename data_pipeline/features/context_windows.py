"""Overlapping windows over contexts that are too long to be read at once.

Shapes: X examples, W windows.
"""

import typing

import numpy as np

from data_pipeline.features.rows import ranges


class Plan(typing.NamedTuple):
    """Which pieces each window holds.

    `example`, `first_piece` and `num_pieces` are int64 [W], pieces counted in
    the context; `counts` is int64 [X], windows of each example.
    """

    example: np.ndarray
    first_piece: np.ndarray
    num_pieces: np.ndarray
    counts: np.ndarray


def plan_windows(lengths, room, stride):
    """Plans windows that cover contexts, each `stride` behind the last one.

    Args:
        lengths: int64 [X], pieces of the context of each example.
        room: int64 [X], most pieces of it in a window, at least 1.
        stride: int, pieces; where less fits, no piece is passed over.

    Returns:
        Plan. A context without pieces has a window too.

    Source: `doc_spans` of the released run_squad.
    """
    step = np.minimum(room, stride)
    counts = 1 + -(-np.maximum(lengths - room, 0) // step)
    example = np.repeat(np.arange(len(lengths)), counts)
    order = ranges(np.zeros(len(counts), np.int64), counts)
    first_piece = order * step[example]
    num_pieces = np.minimum(room[example], lengths[example] - first_piece)
    return Plan(example, first_piece, num_pieces, counts)


def max_context(plan, lengths):
    """Says which pieces have more context here than in any other window.

    Context is the smaller number of pieces on the left and on the right, and a
    little for a long window; of equals the first counts.

    Args:
        plan: Plan that has all windows of its examples.
        lengths: int64 [X], pieces of the context of each example.

    Returns:
        uint8, one value for each piece of each window.

    Source: `_check_is_max_context` of the released run_squad.
    """
    window = np.repeat(np.arange(len(plan.example)), plan.num_pieces)
    left = ranges(np.zeros(len(plan.example), np.int64), plan.num_pieces)
    length = plan.num_pieces[window]
    score = np.minimum(left, length - 1 - left) + 0.01 * length
    example, number = np.unique(plan.example, return_inverse=True)
    sizes = lengths[example]
    piece = (np.cumsum(sizes) - sizes)[number][window]
    piece += plan.first_piece[window] + left
    best = np.zeros(int(sizes.sum()))
    np.maximum.at(best, piece, score)
    is_best = np.flatnonzero(score == best[piece])
    _, first = np.unique(piece[is_best], return_index=True)
    result = np.zeros(len(piece), np.uint8)
    result[is_best[first]] = 1
    return result
