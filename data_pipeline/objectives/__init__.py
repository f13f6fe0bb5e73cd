"""What objectives take from records: targets, orders and replaced tokens.

`READERS` has a class for each objective, by the name that its loss has in
`xlnet_tf.objectives`. docs/objectives.md says how to add one.
"""

from data_pipeline.objectives.causal import CausalReader
from data_pipeline.objectives.masked import MaskedReader
from data_pipeline.objectives.permutation import PermutationReader
from data_pipeline.objectives.pseudo_masked import PseudoMaskedReader
from data_pipeline.objectives.reader import ObjectiveReader

READERS = {
    reader.name: reader
    for reader in (
        PermutationReader,
        CausalReader,
        MaskedReader,
        PseudoMaskedReader,
    )
}


def make_reader(objective="permutation"):
    """Make the reader of an objective.

    Args:
        objective: ObjectiveReader, or a name in `READERS`.

    Returns:
        ObjectiveReader.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(objective, ObjectiveReader):
        return objective
    if objective not in READERS:
        raise ValueError(
            f"`objective` must be one of {', '.join(READERS)}, or an "
            f"ObjectiveReader. Received: objective={objective!r}."
        )
    return READERS[objective]()
