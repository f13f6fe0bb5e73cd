"""`AttentionInputs` and `AttentionRules`, the arguments of each kernel.

Shapes: B batch, T tokens, K keys, P targets, Q = T + P rows, N heads,
H head dim, R = K + T distances; "..." are the axes of examples and heads.
"""

from typing import Any
from typing import NamedTuple


class AttentionInputs(NamedTuple):
    """Float inputs of attention. Gradients flow to all.

    Attributes:
        query: float tensor of shape [B, N, Q, H].
        content_bias, position_bias, segment_bias: float tensors of shape
            [N, H], u, v and b.
        segment_direction: float tensor of shape [N, H], the encoding of a
            different segment minus the encoding of the same segment. The
            difference is enough: a softmax is invariant to a constant added to
            a row.
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
    """Inputs of attention without gradient, for one forward pass.

    All layers share them, except `dropout` and `seed`. A kernel may broadcast
    or slice these shapes to [..., Q, K] for the heads that it computes at once.

    Attributes:
        mask: bool tensor of shape [B or 1, Q, K], True = may attend, or None.
        other_segment: bool tensor of shape [B, Q, K], True = row and key belong
            to different segments, or None.
        is_reversed: bool tensor of shape [B], True = the model reads this row
            backwards, or None.
        target_positions: int32 tensor of shape [B, P], or None.
        dropout: float, rate on the probabilities. Default 0.
        seed: int tensor of shape [2], of the dropout mask, or None (default)
            for no dropout.
        streams: "both" (default): T rows of the content stream, then P of the
            query stream. "query": only the P rows.
        first_half_length: int, length of a prefix whose content rows and
            targets cannot see the tokens after it, by the mask. A kernel may
            ignore it. Default 0, no assumption.
        num_tokens: int or scalar of the backend, T, set by the kernel.
        mask_rows: uint32 tensor of shape [..., Q, 1], `hash_rows` of the
            dropout mask, set by the kernel. Default None, without dropout.
        keep: bool tensor of shape [..., Q, K], True = dropout keeps it, drawn
            by the kernel with the weights. Default None.
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
        """float, factor of the probabilities that dropout keeps."""
        return 1 / (1 - self.dropout) if self.drops else 1.0

    @property
    def drops(self):
        """bool, whether dropout is applied to the probabilities."""
        return self.mask_rows is not None
