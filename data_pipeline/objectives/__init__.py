"""Readers of objectives: classes that make targets and inputs from records.

`READERS` has a class for each objective name. The objective's loss has the same
name in `xlnet_tf.objectives`. docs/objectives.md shows how to add an objective.
"""

import importlib

from data_pipeline.objectives.reader import ObjectiveReader

# Dict of names to module and class. The first use imports them and TensorFlow.
READERS = {
    "permutation": "permutation.PermutationReader",
    "causal": "causal.CausalReader",
    "masked": "masked.MaskedReader",
    "pseudo_masked": "pseudo_masked.PseudoMaskedReader",
}

__all__ = ["READERS", "ObjectiveReader", "make_reader"]


def make_reader(objective="permutation"):
    """Make the reader of an objective.

    Args:
        objective: ObjectiveReader, or a key of `READERS`.

    Returns:
        ObjectiveReader.

    Raises:
        ValueError: the name is unknown.
    """
    if isinstance(objective, ObjectiveReader):
        return objective
    if objective not in READERS:
        raise ValueError(
            f"`objective` must be one of {', '.join(READERS)}, or an "
            f"ObjectiveReader. Received: objective={objective!r}."
        )
    module, name = READERS[objective].split(".")
    module = importlib.import_module(f"data_pipeline.objectives.{module}")
    return getattr(module, name)()
