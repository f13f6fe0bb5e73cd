"""Training objectives of pretraining, and their names.

docs/objectives.md shows how to add an objective.
"""

from xlnet_tf.objectives.causal import Causal
from xlnet_tf.objectives.masked import Masked
from xlnet_tf.objectives.next_sentence import NextSentence
from xlnet_tf.objectives.objective import Objective
from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.permutation import Permutation
from xlnet_tf.objectives.pseudo_masked import PseudoMasked

OBJECTIVES = {
    "permutation": Permutation,
    "causal": Causal,
    "masked": Masked,
    "pseudo_masked": PseudoMasked,
    "next_sentence": NextSentence,
}

__all__ = [
    "OBJECTIVES",
    "Causal",
    "Masked",
    "NextSentence",
    "Objective",
    "Permutation",
    "PseudoMasked",
    "TokenPrediction",
]
