"""Readers of objectives: targets, orders and replaced tokens of records.

`READERS` has a class for each objective, under the name of its loss in
`xlnet_tf.objectives`. docs/objectives.md shows how to add one.
"""

import importlib

from data_pipeline.objectives.reader import ObjectiveReader

# Name -> module and class, which load TensorFlow on first use.
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
        objective: ObjectiveReader, or a name in `READERS`.

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
