"""Decoder of a BERT that was trained with pseudo masks, as in UniLM.

A pseudo token [P] at the next position predicts the next token. [P] attends to
all earlier tokens and to itself. The next step replaces [P] by the chosen
token.

Shapes: see `decoder`. C = T - 1, because the context lacks the last token of
the prompt. S is the maximum number of steps plus 1, for the slot of [P].
"""

from keras import ops

from xlnet_tf.generation.decoders.decoder import Decoder
from xlnet_tf.generation.decoders.decoder import attend
from xlnet_tf.generation.decoders.decoder import by_row
from xlnet_tf.generation.decoders.decoder import next_segment
from xlnet_tf.generation.decoders.decoder import put_in_slot
from xlnet_tf.model.bert.inputs import real_positions


class BertDecoder(Decoder):
    """Decoder of a model with a BertBackbone; see `Decoder`."""

    further_slots = 1  # slot of [P]

    def read(self, features, num_steps, segment_length=None):
        token_ids = ops.cast(features["token_ids"], "int32")
        padding = features.get("padding_mask")
        if padding is None:
            padding = ops.ones_like(token_ids)
        real = ops.cast(padding, "int32")
        positions = real_positions(real)
        inputs = {
            "token_ids": token_ids,
            "padding_mask": real,
            "position_ids": positions,
        }
        segments = features.get("segment_ids")
        if segments is None:
            segments = ops.zeros_like(token_ids)
        following = next_segment(features, segments)
        inputs["segment_ids"] = segments
        hidden = self.backbone(inputs, training=False, layer_inputs=True)
        hidden = [x[:, :-1] for x in hidden["layer_inputs"]]
        attentions = [block.attention for block in self.backbone.blocks]
        pairs = list(zip(attentions, hidden, strict=True))
        slots = ops.arange(num_steps + self.further_slots, dtype="int32")
        return {
            "keys": [self._heads(a.key_projection, x) for a, x in pairs],
            "values": [self._heads(a.value_projection, x) for a, x in pairs],
            "mask": ops.cast(real[:, :-1], "bool"),
            # [B, C + S]
            "positions": ops.concatenate(
                [positions[:, :-1], positions[:, -1:] + slots], axis=1
            ),
            # [B, 2], for the prompt's last token and new tokens
            "segments": ops.concatenate(
                [ops.cast(segments[:, -1:], "int32"), following], axis=1
            ),
        }

    def _heads(self, projection, rows):
        """Project `rows` [B, n, D] to heads [B, N, n, H]."""
        config = self.config
        batch_size, num_rows = ops.shape(rows)[:2]
        shape = [batch_size, num_rows, config.num_heads, config.head_dim]
        return ops.transpose(ops.reshape(projection(rows), shape), [0, 2, 1, 3])

    def step(self, context, cache, token_ids, index):
        backbone, config = self.backbone, self.config
        batch_size, num_keys = ops.shape(context["mask"])
        token_ids = ops.reshape(token_ids, [batch_size, -1])
        num_rows = ops.shape(token_ids)[1]
        pseudo = self.model.pseudo_mask_id
        tokens = ops.stack(
            [token_ids, ops.zeros_like(token_ids) + pseudo], axis=2
        )  # [B, R, 2]
        positions = context["positions"]
        row_positions = ops.slice(
            positions, [0, num_keys + index], [batch_size, 2]
        )
        segments = context["segments"]
        segments = ops.stack(
            [
                ops.where(index == 0, segments[:, 0], segments[:, 1]),
                segments[:, 1],
            ],
            axis=1,
        )
        segments = ops.minimum(segments, max(config.num_segments - 1, 0))
        rows = backbone.embed(
            ops.reshape(tokens, [batch_size, -1]),
            ops.tile(row_positions, [1, num_rows]),
            ops.tile(segments, [1, num_rows]),
        )  # [B, 2 R, D]
        num_slots = ops.shape(cache["keys"][0])[2]
        bias = ops.zeros((), rows.dtype)
        if backbone.relative_position_bias is not None:
            bias = backbone.relative_position_bias(positions, row_positions)
            bias = bias[:, :, None]  # [B, N, 1, 2, C + S]
        mask = self._mask(context, index, num_slots)
        new_keys, new_values = [], []
        for layer, block in enumerate(backbone.blocks):
            attention = block.attention
            key, value = (
                self._put_both(cache[name][layer], index, projection, rows)
                for name, projection in (
                    ("keys", attention.key_projection),
                    ("values", attention.value_projection),
                )
            )
            new_keys.append(key)
            new_values.append(value)
            query = self._heads(attention.query_projection, rows)
            query = ops.reshape(
                query * config.head_dim**-0.5,
                [batch_size, config.num_heads, num_rows, 2, config.head_dim],
            )
            attended = attend(
                query,
                [context[name][layer] for name in ("keys", "values")],
                [by_row(x, batch_size) for x in (key, value)],
                bias,
                mask,
            )
            attended = ops.transpose(attended, [0, 2, 3, 1, 4])
            width = config.num_heads * config.head_dim
            attended = attention.output_projection(
                ops.reshape(attended, [batch_size, 2 * num_rows, width])
            )
            rows = block.finish(rows, attended)
        rows = ops.reshape(rows, [-1, 2, config.hidden_dim])
        logits = self.model.logits(rows[:, 1:])[:, 0]
        return logits, {"keys": new_keys, "values": new_values}

    def _put_both(self, cache, index, projection, rows):
        """Write the keys or values of the new token and of [P] to a cache.

        The cache has the shape [B R, N, S, H].
        """
        config = self.config
        rows = ops.reshape(rows, [-1, 2, config.hidden_dim])
        both = self._heads(projection, rows)  # [B R, N, 2, H]
        cache = put_in_slot(cache, index, both[:, :, :1])
        return put_in_slot(cache, index + 1, both[:, :, 1:])

    def _mask(self, context, index, num_slots):
        """Make the mask, bool [B, 1, 1, 2, C + S], True = may attend."""
        batch_size, num_keys = ops.shape(context["mask"])
        last = index + ops.arange(2, dtype="int32")[:, None]
        slots = ops.arange(num_slots, dtype="int32") <= last  # [2, S]
        slots = ops.broadcast_to(slots[None], [batch_size, 2, num_slots])
        known = ops.broadcast_to(
            context["mask"][:, None], [batch_size, 2, num_keys]
        )
        return ops.concatenate([known, slots], axis=2)[:, None, None]
