"""Reader of causal language modelling: each token predicts the next token.

The loss is in `xlnet_tf/objectives/causal.py`.

Shapes: B batch, T tokens of the sequence.
"""

import dataclasses

import tensorflow as tf

from data_pipeline.objectives.permutation import functional_tokens
from data_pipeline.objectives.reader import ObjectiveReader


@dataclasses.dataclass(frozen=True)
class CausalReader(ObjectiveReader):
    """Reader whose target for each token is the next token.

    `target_ids` int32 [B, T] has, at each position, the token at the next
    position. `target_weights` float32 [B, T] is 0 for <sep> and <cls>, for the
    tokens directly before these symbols and for the last token of the sequence.
    For all other tokens, the weight is 1.

    In records with a reused half (see `blocks`), text is predicted twice: in
    the new half of a record, and in the reused half of a later record. At the
    second prediction, the memory contains only the text before the reused half,
    not the targets.
    """

    name = "causal"

    def num_targets(self, manifest):
        return manifest.sequence_length

    def first_half_length(self, manifest):
        return manifest.sequence_length // 2

    def features(self, records, manifest, draw, literal=False):
        token_ids = records["token_ids"]
        is_text = ~functional_tokens(token_ids)
        goes_on = is_text[:, 1:] & is_text[:, :-1]
        end = [[0, 0], [0, 1]]
        return {
            "target_ids": tf.pad(token_ids[:, 1:], end),
            "target_weights": tf.pad(tf.cast(goes_on, tf.float32), end),
        }
