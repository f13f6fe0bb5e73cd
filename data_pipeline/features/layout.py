"""How the parts of an example become one sequence: `A sep [B sep] cls`.

Shapes: S sequences, T tokens.
"""

import numpy as np

from data_pipeline.features.rows import Ragged
from data_pipeline.features.rows import join
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import PADDING_ID
from data_pipeline.tokenization.symbols import PADDING_SEGMENTS
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID

LEFT_FILLERS, RIGHT_FILLERS = (
    {"token_ids": PADDING_ID, "segment_ids": PADDING_SEGMENTS[side]}
    for side in ("left", "right")
)


def pack(first, second, sequence_length, has_second=True):
    """`A sep [B sep] cls`, pairs that are too long losing their longer part.

    Args:
        first, second: Ragged of S sequences each; second may be None.
        sequence_length: int, T at most.
        has_second: bool or bool array [S], where there is a second part.

    Returns:
        dict of `token_ids` and `segment_ids`, Ragged int32.

    Source: `_truncate_seq_pair`, `convert_single_example`.
    """
    one = np.ones(len(first), np.int64)
    if second is None:
        first = first.head(sequence_length - 2)
        parts = [(first, FIRST_SEGMENT)]
    else:
        has_second = np.broadcast_to(has_second, len(first))
        room = sequence_length - 2 - has_second
        first_length, second_length = longest_first(
            first.lengths, second.lengths * has_second, room
        )
        first, second = first.head(first_length), second.head(second_length)
        ends = Ragged.full(one * has_second, SEP_ID)
        parts = [(first, FIRST_SEGMENT)]
        seconds = join([second, ends])
    sep, cls = Ragged.full(one, SEP_ID), Ragged.full(one, CLS_ID)
    parts.append((sep, FIRST_SEGMENT))
    if second is not None:
        parts.append((seconds, SECOND_SEGMENT))
    parts.append((cls, CLS_SEGMENT))
    return {
        "token_ids": join([tokens for tokens, _ in parts]),
        "segment_ids": join(
            [Ragged.full(tokens.lengths, segment) for tokens, segment in parts]
        ),
    }


def longest_first(first, second, room):
    """Lengths that are left when the longer of two loses tokens in turn.

    Of two equals the second loses first, as released.

    Args:
        first, second, room: int arrays [S].

    Returns:
        (int64 array [S], int64 array [S]), of sum at most `room`.
    """
    half = room // 2
    over = first + second > room
    left_first = np.where(
        second <= half, room - second, np.minimum(first, room - half)
    )
    left_first = np.where(over, np.minimum(first, left_first), first)
    return left_first, np.where(over, room - left_first, second)
