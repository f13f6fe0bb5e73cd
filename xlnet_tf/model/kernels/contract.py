"""Arguments of the attention kernels: `AttentionInputs`, `AttentionRules`.

Shapes: B batch, T tokens, K keys, P targets, Q = T + P rows, N heads,
H head dim, R = K + T distances. "..." means the axes of examples and heads.
"""

from typing import Any
from typing import NamedTuple


class AttentionInputs(NamedTuple):
    """Float inputs of attention. Every input gets a gradient.

    Attributes:
        query: float tensor of shape [B, N, Q, H].
        content_bias, position_bias, segment_bias: float tensors of shape
            [N, H], the biases u, v and b.
        segment_direction: float tensor of shape [N, H], the encoding of a
            different segment minus the encoding of the same segment. The
            difference is enough, because a constant added to all scores of a
            row does not change the row's softmax.
        key, value: float tensors of shape [B, N, K, H].
        position: float tensor of shape [1 or 2, N, R, H], the projected
            distances. Entry 0 is for texts that are read forwards. If any
            example is reversed, entry 1 is for texts that are read backwards.
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
    """Inputs of attention that get no gradient, for one forward pass.

    All layers share these inputs, except `dropout` and `seed`. Inside a kernel
    the tensors may have other shapes. A kernel may add an axis of heads, select
    one example, or slice the axes of rows and keys.

    Attributes:
        mask: bool tensor of shape [B or 1, Q, K], True = may attend, or None if
            every row may attend to every key.
        other_segment: bool tensor of shape [B, Q, K], True = row and key belong
            to different segments, or None without segments.
        is_reversed: bool tensor of shape [B], True = the model reads this
            example backwards, or None if it reads all examples forwards.
        target_positions: int32 tensor of shape [B, P], or None without targets.
        dropout: float, dropout rate of the probabilities. Default 0.
        seed: int tensor of shape [2], seed of the dropout mask, or None
            (default) for no dropout.
        streams: "both" (default) for T rows of the content stream and then P
            rows of the query stream, or "query" for the P rows alone.
        first_half_length: int, length of a prefix of the tokens. Content rows
            and targets of the prefix cannot attend to the tokens after the
            prefix. The mask hides these tokens from the prefix, so a kernel may
            ignore the length. Default 0: there is no such prefix.
        num_tokens: int or scalar tensor, T. The kernel sets this field.
        mask_rows: uint32 tensor of shape [..., Q, 1], the hashes of the dropout
            mask's rows, see `hash_rows`. The kernel sets this field. None
            (default) for no dropout.
        keep: bool tensor of shape [..., Q, K], the dropout mask, True = kept.
            The kernel draws the mask for the heads that it computes at once.
            Default None.
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
        """Factor by which dropout scales the kept probabilities, float."""
        return 1 / (1 - self.dropout) if self.drops else 1.0

    @property
    def drops(self):
        """Whether dropout is applied to the probabilities."""
        return self.mask_rows is not None
