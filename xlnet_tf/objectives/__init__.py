"""Training objectives, by name.

docs/objectives.md says how to add one.
"""

import warnings

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


def make_objectives(objective=None, next_sentence_weight=0.0):
    """Make the objectives of a pretrainer.

    Args:
        objective: Objective, a name in `OBJECTIVES`, a dict of `get_config`,
            or a list of these. Default None: `Permutation()`.
        next_sentence_weight: float; if positive, `NextSentence` of that weight
            is added unless the list has one. Default 0.

    Returns:
        tuple of Objective.

    Raises:
        ValueError: if a name is unknown, comes twice, or needs another
            objective, two predict tokens, or the weight is negative.
    """
    if next_sentence_weight < 0:
        raise ValueError(
            "`next_sentence_weight` must not be negative. Received: "
            f"next_sentence_weight={next_sentence_weight}."
        )
    if objective is None:
        objective = Permutation()
    if not isinstance(objective, (list, tuple)):
        objective = [objective]
    objectives = [_make(value) for value in objective]
    names = [value.name for value in objectives]
    if next_sentence_weight and NextSentence.name not in names:
        objectives.append(NextSentence(next_sentence_weight))
    if not names or len(names) != len(set(names)):
        raise ValueError(
            "`objective` must name one objective or several different ones. "
            f"Received: objective={names}."
        )
    if sum(isinstance(value, TokenPrediction) for value in objectives) > 1:
        raise ValueError(
            "`objective` must have one objective that predicts tokens, for "
            "each takes its own features and outputs. Received: "
            f"objective={names}."
        )
    if objectives[0].name == NextSentence.name:
        raise ValueError(
            "next-sentence prediction weighs rows by their targets, so it "
            "needs another objective before it, such as `Permutation()`. "
            f"Received: objective={names}."
        )
    return tuple(objectives)


def configs_of(objectives):
    """The configs of objectives, list of dict, as a file keeps them.

    Args:
        objectives: sequence of Objective.
    """
    for one in objectives:
        known = OBJECTIVES.get(one.name)
        if known not in (None, type(one)):
            warnings.warn(
                f"{type(one).__name__} has the name of {known.__name__}, "
                f"{one.name!r}, and is loaded as such. Give it a name of its "
                "own, and add it to `OBJECTIVES` before loading.",
                stacklevel=3,
            )
    return [one.get_config() for one in objectives]


def _make(value):
    if isinstance(value, Objective):
        return value
    arguments = {"name": value} if isinstance(value, str) else dict(value)
    name = arguments.pop("name", None)
    if name not in OBJECTIVES:
        raise ValueError(
            f"`objective` must be one of {', '.join(OBJECTIVES)}, or an "
            f"Objective. Received: objective={name!r}."
        )
    return OBJECTIVES[name](**arguments)
