"""`AttentionInputs` and `AttentionRules`, the arguments of each kernel.

Shapes: B batch, T tokens, K keys, P targets, Q = T + P rows, N heads,
H head dim, R = K + T distances; "..." are the axes of examples and heads.
"""

from typing import Any
from typing import NamedTuple


class AttentionInputs(NamedTuple):
    """The float tensors that attention is computed from. Gradients flow to all.

    Attributes:
        query: float tensor of shape [B, N, Q, H].
        content_bias, position_bias, segment_bias: float tensors of shape
            [N, H], u, v and b.
        segment_direction: float tensor of shape [N, H], the encoding of
            another segment minus that of the same: a softmax is invariant to
            a constant added to a row.
        key, value: float tensors of shape [B, N, K, H].
        position: float tensor of shape [1 or 2, N, R, H], projected distances,
            forwards and, if any row is reversed, backwards.
    """

    query: Any
    content_bias: Any
    position_bias: Any
    segment_bias: Any
    segment_direction: Any
    key: Any
    value: Any
    position: Any


class AttentionRules(NamedTuple):
    """Everything without gradient that decides the scores, of one pass.

    All layers share them, but for `dropout` and `seed`. A kernel gets these
    shapes; it may broadcast or slice them to [..., Q, K] for the heads that it
    computes at once.

    Attributes:
        mask: bool tensor of shape [B or 1, Q, K], True = may attend, or None.
        other_segment: bool tensor of shape [B, Q, K], True = row and key belong
            to different segments, or None.
        is_reversed: bool tensor of shape [B], True = this row reads backwards,
            or None.
        target_positions: int32 tensor of shape [B, P], or None.
        dropout: float, rate on the probabilities. Default 0.
        seed: int tensor of shape [2], of the mask of dropout, or None (default)
            for no dropout.
        streams: "both" (default) if the rows are T of the content stream and
            then P of the query stream, "query" if they are the P alone.
        first_half_length: int, the mask lets content rows of so many tokens,
            and targets there, see none of the tokens behind. Default 0, it may
            let them. A kernel need not make use of it.
        num_tokens: int or scalar of the backend, T, set by the kernel.
        mask_rows: uint32 tensor of shape [..., Q, 1], `hash_rows` of dropout's
            mask, made by the kernel. Default None, without dropout.
        keep: bool tensor of shape [..., Q, K], True = dropout keeps it, drawn
            by the kernel where weights are computed. Default None.
    """

    mask: Any
    other_segment: Any
    is_reversed: Any
    target_positions: Any
    dropout: float = 0.0
    seed: Any = None
    streams: str = "both"
    first_half_length: int = 0
    num_tokens: Any = None
    mask_rows: Any = None
    keep: Any = None

    @property
    def scale(self):
        """float, the factor of the probabilities that dropout keeps."""
        return 1 / (1 - self.dropout) if self.drops else 1.0

    @property
    def drops(self):
        """bool, whether dropout is applied to the probabilities."""
        return self.mask_rows is not None
