"""Decoder of XLNet and Transformer-XL, with relative positions and memory.

XLNet predicts with the query stream. The query stream at the next position
attends to all earlier tokens. The tokens of the prompt are context tokens
(factorization rank -1), so they attend to each other. The new tokens are
targets, and their factorization order is the order of the text. A causal model
predicts with the content stream at the last token.

Shapes: see `decoder`; M memory length, W = C + 2 S distances. C is the number
of tokens in the memory and in the last part of the prompt, minus 1.
"""

from keras import ops

from xlnet_tf.generation.decoders.decoder import Decoder
from xlnet_tf.generation.decoders.decoder import attend
from xlnet_tf.generation.decoders.decoder import by_row
from xlnet_tf.generation.decoders.decoder import next_segment
from xlnet_tf.generation.decoders.decoder import put_in_slot
from xlnet_tf.model.kernels.scores import score_dtype
from xlnet_tf.model.masks import CONTEXT_RANK
from xlnet_tf.model.relative_position import relative_position_encoding


class XLNetDecoder(Decoder):
    """Decoder of a model with an XLNetBackbone; see `Decoder`."""

    def __init__(self, model):
        super().__init__(model)
        self._has_query = model.next_token == "query"

    @property
    def _sees_same_length(self):
        # An export replaces the config.
        return (
            self.config.attention_type == "causal"
            and self.config.same_length
            and self.config.memory_length > 0  # otherwise the mask is causal
        )

    def read(self, features, num_steps, segment_length=None):
        *before, last = self._parts(features, segment_length)
        memory = self._first_memory(features)
        for part in before:
            hidden, mask = self._read_part(part, memory)
            length = self.config.memory_length
            memory = [x[:, -length:] for x in hidden], mask[:, -length:]
        hidden, mask = self._read_part(last, memory)
        num_tokens = ops.shape(last["token_ids"])[1]
        memory_length = 0 if memory is None else ops.shape(memory[1])[1]
        return self._context(
            [x[:, :-1] for x in hidden],
            mask[:, :-1],
            num_steps,
            memory_length,
            self._segments(features, memory_length, num_tokens, num_steps),
        )

    def _parts(self, features, size):
        """Split a prompt's features into parts of `size` tokens.

        If `size` is None, the prompt is a single part.
        """
        token_ids = ops.cast(features["token_ids"], "int32")
        inputs = {"token_ids": token_ids}
        if features.get("segment_ids") is not None:
            inputs["segment_ids"] = features["segment_ids"]
        padding = features.get("padding_mask")
        if padding is None:
            padding = ops.ones_like(token_ids)
        inputs["padding_mask"] = ops.cast(padding, "bool")
        if self.config.reverse_half_batch:
            # Otherwise the backbone would read half of the prompts backwards.
            inputs["is_reversed"] = ops.zeros_like(token_ids[:, 0])
        if self._has_query:
            rank = ops.zeros_like(token_ids) + CONTEXT_RANK
            inputs["factorization_rank"] = rank
        if size is None:
            return [inputs]
        return [
            {
                name: x[:, begin : begin + size] if x.ndim > 1 else x
                for name, x in inputs.items()
            }
            for begin in range(0, token_ids.shape[1], size)
        ]

    def _first_memory(self, features):
        """Make the memories before the prompt and their mask, or None.

        The result is (L tensors [B, M, D], bool [B, M]). If `features` has no
        memories, a model with `same_length` and M > 0 gets a masked memory of M
        tokens, and any other model gets None.
        """
        batch_size = ops.shape(features["token_ids"])[0]
        memories = features.get("memories")
        if memories is not None:
            mask = features.get("memory_mask")
            if mask is None:
                length = ops.shape(memories[0])[1]
                mask = ops.ones([batch_size, length], "bool")
            return memories, mask
        if not self._sees_same_length:
            return None
        # In such a model each token attends to a fixed number of keys, so the
        # memory must exist even if it is empty.
        config = self.config
        shape = [batch_size, config.memory_length]
        empty = ops.zeros([*shape, config.hidden_dim])
        return [empty] * config.num_layers, ops.zeros(shape, "bool")

    def _read_part(self, features, memory):
        """Compute the layer inputs for the memory and one part of the prompt.

        Returns:
            (L layer inputs [B, K, D]; mask, bool [B, K]). The memory and the
            part together have K tokens.
        """
        mask = features["padding_mask"]
        if memory is not None:
            names = ("memories", "memory_mask")
            features = {**features, **dict(zip(names, memory, strict=True))}
        outputs = self.backbone(features, training=False, layer_inputs=True)
        hidden = list(outputs["layer_inputs"])
        if memory is None:
            return hidden, mask
        hidden = [
            ops.concatenate([ops.cast(old, new.dtype), new], axis=1)
            for old, new in zip(memory[0], hidden, strict=True)
        ]
        return hidden, ops.concatenate([memory[1], mask], axis=1)

    def _context(self, hidden, mask, num_steps, memory_length, segments):
        attentions = [block.attention for block in self.backbone.blocks]
        num_keys = ops.shape(mask)[1]
        encoding = relative_position_encoding(
            num_steps,
            num_keys + num_steps,
            self.config.hidden_dim,
            self.config.clamp_length,
            dtype=score_dtype(hidden[0].dtype),
        )
        encoding = ops.cast(encoding, hidden[0].dtype)[None]
        pairs = list(zip(attentions, hidden, strict=True))
        context = {
            "keys": [a.key_projection(x) for a, x in pairs],
            "values": [a.value_projection(x) for a, x in pairs],
            "positions": [
                a.position_projection(encoding)[0] for a in attentions
            ],
            "mask": mask,
            "memory_length": ops.convert_to_tensor(memory_length, "int32"),
        }
        if segments is not None:
            context["segments"] = segments
        return context

    def _segments(self, features, memory_length, size, num_steps):
        """Make int32 segments [B, C + S + 1] of all keys and the next token."""
        if features.get("segment_ids") is None:
            return None
        segments = ops.cast(features["segment_ids"], "int32")[:, -size:]
        following = next_segment(features, segments)
        # Tokens in memory have the segment 0.
        segments = ops.pad(segments, [[0, 0], [memory_length, 0]])
        return ops.concatenate(
            [segments, ops.repeat(following, num_steps, axis=1)], axis=1
        )

    def step(self, context, cache, token_ids, index):
        backbone, config = self.backbone, self.config
        batch_size, num_keys = ops.shape(context["mask"])
        rows = backbone.token_embedding(
            ops.reshape(token_ids, [batch_size, -1])
        )[:, :, None]  # [B, R, 1, D]
        if self._has_query:
            query = ops.cast(backbone.mask_embedding, rows.dtype)
            query = ops.broadcast_to(query, ops.shape(rows))
            rows = ops.concatenate([rows, query], axis=2)
        shape = ops.shape(rows)  # [B, R, Q, D]
        num_slots = ops.shape(cache["keys"][0])[2]
        mask = self._mask(context, index, num_slots, shape[2])
        other_segment = None
        if "segments" in context:
            segments = context["segments"]
            begin = num_keys + index
            of_rows = ops.slice(
                segments, [0, begin], [batch_size, shape[2]]
            )  # [B, Q]
            of_keys = segments[:, None, : num_keys + num_slots]
            other_segment = (of_keys != of_rows[:, :, None])[:, None, None]
        new_keys, new_values = [], []
        for layer, block in enumerate(backbone.blocks):
            attention = block.attention
            content = ops.reshape(rows[:, :, 0], [-1, 1, config.hidden_dim])
            key, value = (
                put_in_slot(cache[name][layer], index, projection(content))
                for name, projection in (
                    ("keys", attention.key_projection),
                    ("values", attention.value_projection),
                )
            )
            new_keys.append(key)
            new_values.append(value)
            attended = self._attend(
                attention,
                rows,
                [context[x][layer] for x in ("keys", "values", "positions")],
                [by_row(x, batch_size) for x in (key, value)],
                index,
                mask,
                other_segment,
            )
            flat = ops.reshape(rows, [batch_size, -1, config.hidden_dim])
            rows = ops.reshape(block.finish(flat, attended), shape)
        last = ops.reshape(rows[:, :, -1], [-1, 1, config.hidden_dim])
        logits = self.model.logits(last)[:, 0]
        return logits, {"keys": new_keys, "values": new_values}

    def _mask(self, context, index, num_slots, num_rows):
        """Make the mask, bool [B, 1, 1, Q, C + S], True = may attend."""
        batch_size, num_keys = ops.shape(context["mask"])
        slots = ops.arange(num_slots, dtype="int32")[None] <= index
        slots = ops.broadcast_to(slots, [batch_size, num_slots])
        mask = ops.concatenate([context["mask"], slots], axis=1)[:, None]
        if self._sees_same_length:
            # A row attends to itself and to the M keys before it.
            row = num_keys + index - context["memory_length"]
            row = row + ops.arange(num_rows, dtype="int32")[:, None]
            key = ops.arange(num_keys + num_slots, dtype="int32")
            mask = ops.logical_and(mask, key >= row)
        return mask[:, None, None]

    def _attend(
        self, attention, rows, context, new, index, mask, other_segment
    ):
        """Compute a step's attention [B, R Q, D]; see `RelativeAttention`."""
        batch_size, num_rows, size, _ = ops.shape(rows)
        key, value, position = context
        heads, head_dim = attention.num_heads, attention.head_dim
        flat = ops.reshape(rows, [batch_size, -1, self.config.hidden_dim])
        query = attention.query_projection(flat)  # [B, N, R Q, H]
        query = ops.reshape(
            query, [batch_size, heads, num_rows, size, head_dim]
        )

        def with_bias(name):
            bias = ops.cast(getattr(attention.biases, name), query.dtype)
            return (query + bias[:, None, None]) * head_dim**-0.5

        by_distance = ops.einsum(
            "bnrqh,nwh->bnrqw", with_bias("position_bias"), position
        )
        # The table of distances begins with the distance from slot S to key 0.
        num_slots = ops.shape(new[0])[3]
        width = ops.shape(key)[2] + num_slots
        scores = ops.concatenate(
            [
                ops.slice(
                    by_distance,
                    [0, 0, 0, row, num_slots - index - row],
                    [batch_size, heads, num_rows, 1, width],
                )
                for row in range(size)
            ],
            axis=3,
        )
        if other_segment is not None:
            encoding = ops.cast(attention.segment_encoding, query.dtype)
            difference = ops.einsum(
                "bnrqh,nh->bnrq",
                with_bias("segment_bias"),
                encoding[1] - encoding[0],
            )
            scores = scores + ops.where(
                other_segment,
                difference[..., None],
                ops.zeros((), query.dtype),
            )
        attended = attend(
            with_bias("content_bias"), (key, value), new, scores, mask
        )
        attended = ops.reshape(attended, [batch_size, heads, -1, head_dim])
        return attention.output_projection(attended)
