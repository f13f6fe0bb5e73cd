"""Incremental decoding: a fixed context, and new tokens.

A decoder keeps the keys and values of all tokens. One pass reads the context,
prompt and memory. Then every new token costs one row of each layer, and another
row for the predicted token, unless the previous token's row predicts it.

The context is stored separately from the new tokens: it never changes, so all
beams of an example share it and no step copies it. The new tokens have slots.
Slot 0 is the last token of the prompt; the first step reads it (again, but the
context does not depend on it). Slot i is the i-th new token.

Shapes: B examples, R rows of an example (beams), T tokens of a prompt, C keys
of the context, S slots, Q rows of a step (1 or 2), N heads, H head dim, D model
dim, L layers, V vocabulary.
"""

from keras import ops

from xlnet_tf.model.kernels.plain import masked_softmax


class Decoder:
    """Incremental forward pass of a pretrained model.

    Args:
        model: XLNetPretrainer or XLNetSeq2Seq, with a `next_token`.
    """

    def __init__(self, model):
        self.model = model
        self.backbone = model.backbone
        self.config = model.config

    def read(self, features, num_steps, segment_length=None):
        """Read the prompts.

        Args:
            features: dict of `token_ids` int32 [B, T], with padding on the left
                and only real tokens in the last column. Optional:
                `padding_mask` [B, T], `segment_ids` [B, T] and, for the new
                tokens, `next_segment` [B, 1].
            num_steps: int, S, largest number of steps that follow.
            segment_length: int, tokens read at a time, with earlier ones in
                memory as far as the config's `memory_length` allows; divides T.
                Default None: all T.

        Returns:
            dict of tensors, the context.
        """
        raise NotImplementedError

    def start(self, context, num_rows, num_steps):
        """Make empty keys and values for new tokens.

        Args:
            context: dict of `read`.
            num_rows: int or scalar, B R.
            num_steps: int, S.

        Returns:
            dict of `keys` and `values`, lists of L tensors of shape
            [B R, N, S, H].
        """
        config = self.config
        slots = num_steps + self.further_slots
        shape = [num_rows, config.num_heads, slots, config.head_dim]
        empty = ops.zeros(shape, context["keys"][0].dtype)
        return {
            "keys": [empty] * config.num_layers,
            "values": [empty] * config.num_layers,
        }

    # Extra slots, besides the slots of input tokens.
    further_slots = 0

    def step(self, context, cache, token_ids, index):
        """Read one more token of every row, and predict the next one.

        Args:
            context: dict of `read`.
            cache: dict of `start`, or of the previous step.
            token_ids: int32 tensor of shape [B R]; at step 0 the last tokens of
                the prompts.
            index: int or int32 scalar, the number of the step.

        Returns:
            (float32 tensor of shape [B R, V], logits; dict, the new cache).
        """
        raise NotImplementedError


def next_segment(features, segments):
    """Segment of the new tokens: `next_segment`, or the last token's.

    Args:
        features: dict, see `Decoder.read`.
        segments: int tensor of shape [B, T], of the prompt.

    Returns:
        int32 tensor of shape [B, 1].
    """
    segment = features.get("next_segment")
    segment = segments[:, -1:] if segment is None else segment
    return ops.reshape(ops.cast(segment, "int32"), [-1, 1])


def put_in_slot(cache, index, values):
    """Replace one slot of a cache [..., S, H] by values [..., 1, H]."""
    slots = ops.arange(ops.shape(cache)[-2], dtype="int32")[:, None]
    return ops.where(slots == index, ops.cast(values, cache.dtype), cache)


def attend(query, context, new, extra_scores, mask):
    """Attention of a step's rows to the context and to new tokens.

    Args:
        query: float tensor of shape [B, N, R, Q, H], scaled.
        context: (key, value), float tensors of shape [B, N, C, H].
        new: (key, value), float tensors of shape [B, R, N, S, H].
        extra_scores: float tensor, broadcast to [B, N, R, Q, C + S].
        mask: bool tensor of shape [B, 1, 1, Q, C + S], True = may attend.

    Returns:
        float tensor of shape [B, N, R, Q, H].
    """
    num_keys = ops.shape(context[0])[2]
    scores = ops.concatenate(
        [
            ops.einsum("bnrqh,bnkh->bnrqk", query, context[0]),
            ops.einsum("bnrqh,brnsh->bnrqs", query, new[0]),
        ],
        axis=-1,
    )
    weights = masked_softmax(scores + extra_scores, mask)
    weights = ops.cast(weights, query.dtype)
    return ops.einsum(
        "bnrqk,bnkh->bnrqh", weights[..., :num_keys], context[1]
    ) + ops.einsum("bnrqs,brnsh->bnrqh", weights[..., num_keys:], new[1])


def by_row(cache, batch_size):
    """A cache [B R, N, S, H] as [B, R, N, S, H]."""
    return ops.reshape(cache, [batch_size, -1, *ops.shape(cache)[1:]])
