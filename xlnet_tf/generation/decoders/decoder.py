"""Incremental decoding: forward passes for one new token at a time.

A decoder caches the keys and values of all tokens. It first reads the context,
which is the prompt and the memory before the prompt. Then each step is a pass
at the position of the newest token. With a query stream or a pseudo token, the
pass also includes the next position, which predicts the next token.

The context is stored separately from the new tokens. The context never changes,
so all beams of an example share the context, and no step copies it. New tokens
are stored in slots. The context has no key and value for the last token of the
prompt. The first step reads this token again and stores its key and value in
slot 0. Slot i has the i-th new token.

Shapes: B examples, R rows of an example (beams), T tokens of a prompt, C keys
of the context, S slots, Q positions of a step (1 or 2), N heads, H head dim, D
model dim, L layers, V vocabulary.
"""

from keras import ops

from xlnet_tf.model.kernels.plain import masked_softmax


class Decoder:
    """Base class of decoders, the incremental forward passes of a model.

    Args:
        model: XLNetPretrainer or XLNetSeq2Seq that predicts a next token.
    """

    def __init__(self, model):
        self.model = model
        self.backbone = model.backbone
        self.config = model.config

    def read(self, features, num_steps, segment_length=None):
        """Compute the context of the prompts.

        Args:
            features: dict of `token_ids` int32 [B, T], padded on the left; the
                last column must not contain padding. Optional: `padding_mask`
                [B, T], `segment_ids` [B, T], and `next_segment` [B, 1], the
                segment of the new tokens. For an XLNetBackbone also `memories`
                and `memory_mask`: the memories before the prompt and their
                mask.
            num_steps: int, maximum number of steps that follow.
            segment_length: int, number of tokens read at a time; must divide T.
                These tokens may attend to the memories, which are the states of
                the last `memory_length` tokens before them. Default None: all T
                tokens at once.

        Returns:
            dict of tensors, the context for `start` and `step`.
        """
        raise NotImplementedError

    def start(self, context, num_rows, num_steps):
        """Make an empty cache for the keys and values of new tokens.

        Args:
            context: dict, the result of `read`.
            num_rows: int or scalar tensor, B R.
            num_steps: int, maximum number of steps.

        Returns:
            dict of `keys` and `values`, each a list of L tensors of shape [B R,
            N, S, H].
        """
        config = self.config
        slots = num_steps + self.further_slots
        shape = [num_rows, config.num_heads, slots, config.head_dim]
        empty = ops.zeros(shape, context["keys"][0].dtype)
        return {
            "keys": [empty] * config.num_layers,
            "values": [empty] * config.num_layers,
        }

    # Number of slots besides the slots of input tokens.
    further_slots = 0

    def step(self, context, cache, token_ids, index):
        """Read one more token of every row, and predict the next token.

        Args:
            context: dict, the result of `read`.
            cache: dict from `start` or from the previous step.
            token_ids: int32 tensor of shape [B R], the new tokens; at step 0
                the last tokens of the prompts.
            index: int or int32 scalar, number of the step, from 0.

        Returns:
            (logits, float32 tensor of shape [B R, V]; dict, the new cache).
        """
        raise NotImplementedError


def next_segment(features, segments):
    """Find the segment of new tokens, by default the prompt's last segment.

    Args:
        features: dict, see `Decoder.read`.
        segments: int tensor of shape [B, T], segments of the prompt.

    Returns:
        int32 tensor of shape [B, 1].
    """
    segment = features.get("next_segment")
    segment = segments[:, -1:] if segment is None else segment
    return ops.reshape(ops.cast(segment, "int32"), [-1, 1])


def put_in_slot(cache, index, values):
    """Write values [..., 1, H] into one slot of a cache [..., S, H]."""
    slots = ops.arange(ops.shape(cache)[-2], dtype="int32")[:, None]
    return ops.where(slots == index, ops.cast(values, cache.dtype), cache)


def attend(query, context, new, extra_scores, mask):
    """Compute a step's attention to the context and to new tokens.

    Args:
        query: float tensor of shape [B, N, R, Q, H], already scaled.
        context: (key, value), float tensors of shape [B, N, C, H].
        new: (key, value), float tensors of shape [B, R, N, S, H].
        extra_scores: float tensor, broadcast to [B, N, R, Q, C + S] and added
            to the attention scores.
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
    """Reshape a cache [B R, N, S, H] to [B, R, N, S, H]."""
    return ops.reshape(cache, [batch_size, -1, *ops.shape(cache)[1:]])
