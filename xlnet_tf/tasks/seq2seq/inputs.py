"""Inputs of the backbone in which the tokens of a target are predicted.

Shapes: B pairs, T tokens of a sequence, P tokens of a target, D model dim.
"""

from keras import ops

from xlnet_tf.model.bert.inputs import real_positions
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.dropout import random_bits
from xlnet_tf.model.masks import CONTEXT_RANK
from xlnet_tf.tasks.heads import rows_at

MASK_ID = 6
_FIRST_PIECE = 9  # those before are special symbols
# First numbers of the random draws, three each; `model.dropout` has others.
_DRAW_TARGETS, _DRAW_PSEUDO = -11, -21
# Shares of the tokens that are corrupted.
_MASKED, _RANDOM = 0.8, 0.1


class TargetInputs:
    """Inputs for the row that predicts a token, see `XLNetSeq2Seq`.

    Args:
        next_token: str, "query", "content" or "pseudo".
        config: XLNetConfig or BertConfig.
        target_corruption: float, the share of tokens that is corrupted.
        pseudo_mask_id: int, [P].
    """

    def __init__(self, next_token, config, target_corruption, pseudo_mask_id):
        self.config = config
        self.target_corruption = target_corruption
        self.pseudo_mask_id = pseudo_mask_id
        self._make = getattr(self, f"_of_{next_token}")

    def __call__(self, features, positions, training):
        """Inputs of the backbone, and the rows that predict.

        Args:
            features: dict of int32 [B, T]: `token_ids`, `padding_mask` and
                optionally `segment_ids`; in training `dropout_seed`.
            positions: int32 [B, P], places of the target's tokens; where there
                are fewer, the last one again.
            training: bool, whether tokens are corrupted.

        Returns:
            (dict of features, function of the backbone's outputs that gives
            the rows, float [B, P, D]).
        """
        return self._make(features, positions, training)

    def _of_query(self, features, positions, training):
        """The target in the order of the text, a query row for each token."""
        features = {
            **self._with_corruption(features, positions, training),
            "factorization_rank": _ranks(features, positions),
            "target_positions": positions,
        }
        if self.config.reverse_half_batch:
            # Half of the rows would be read backwards.
            features["is_reversed"] = ops.zeros_like(positions[:, 0])
        return features, lambda outputs: outputs["query"]

    def _of_content(self, features, positions, training):
        """The tokens before those of the target predict them."""
        features = self._with_corruption(features, positions, training)
        before = ops.maximum(positions - 1, 0)
        return features, lambda outputs: rows_at(outputs["content"], before)

    def _of_pseudo(self, features, positions, training):
        """A [P] behind the sequence for each token of the target."""
        token_ids, padding = features["token_ids"], features["padding_mask"]
        num_tokens = ops.shape(token_ids)[1]
        of_text, of_pseudo = ops.zeros_like(token_ids), positions * 0
        # Padding repeats the last position: only its first row is a target.
        earlier = ops.pad(positions[:, :-1], [[0, 0], [1, 0]])
        is_real = ops.cast(positions != earlier, "int32")
        place = real_positions(padding)
        at_pseudo = ops.take_along_axis(place, positions, axis=1)
        targets = ops.take_along_axis(token_ids, positions, axis=1)
        pseudo = of_pseudo + self.pseudo_mask_id
        if training:
            seed = features["dropout_seed"]
            pseudo = self._corrupt(targets, pseudo, seed, _DRAW_PSEUDO)
        ranks = _ranks(features, positions)
        steps = ops.take_along_axis(ranks, positions, axis=1)

        def join(*parts):
            return ops.concatenate(parts, axis=1)

        corrupted = self._with_corruption(features, positions, training)
        joined = {
            **corrupted,
            "token_ids": join(corrupted["token_ids"], pseudo),
            "position_ids": join(place, at_pseudo),
            "padding_mask": join(padding, is_real),
            "factorization_rank": join(ranks, steps),
            "is_pseudo": join(of_text, of_pseudo + 1),
        }
        if "segment_ids" in features:
            segments = features["segment_ids"]
            of_targets = ops.take_along_axis(segments, positions, axis=1)
            joined["segment_ids"] = join(segments, of_targets)
        return joined, lambda outputs: outputs["content"][:, num_tokens:]

    def _with_corruption(self, features, positions, training):
        """The features, in training with corrupted tokens of the target."""
        if not training or not self.target_corruption:
            return features
        token_ids, seed = features["token_ids"], features["dropout_seed"]
        chance = _uniform(ops.shape(token_ids), seed, _DRAW_TARGETS)
        is_target = _ranks(features, positions) > CONTEXT_RANK
        corrupted = self._corrupt(
            token_ids, ops.zeros_like(token_ids) + MASK_ID, seed, _DRAW_TARGETS
        )
        is_corrupted = ops.logical_and(
            is_target, chance < self.target_corruption
        )
        return {
            **features,
            "token_ids": ops.where(is_corrupted, corrupted, token_ids),
        }

    def _corrupt(self, token_ids, mask, seed, draw):
        """Tokens of which 80 % are masked and 10 % others; int32 [B, X]."""
        shape = ops.shape(token_ids)
        kind = _uniform(shape, seed, draw - 1)
        others = self.config.vocabulary_size - _FIRST_PIECE
        other = _uniform(shape, seed, draw - 2) * others
        other = ops.minimum(ops.cast(other, "int32"), others - 1) + _FIRST_PIECE
        return ops.where(
            kind < _MASKED,
            mask,
            ops.where(kind < _MASKED + _RANDOM, other, token_ids),
        )


def _ranks(features, positions):
    """int32 [B, T], -1 for the source, then the step of each target token."""
    place = ops.arange(ops.shape(features["token_ids"])[1], dtype="int32")
    return ops.maximum(place[None] - positions[:, :1], CONTEXT_RANK)


def _uniform(shape, seed, draw):
    """float32 tensor in [0, 1)."""
    bits = ops.right_shift(random_bits(shape, fold_in(seed, draw)), 8)
    return ops.cast(bits, "float32") * 2.0**-24
