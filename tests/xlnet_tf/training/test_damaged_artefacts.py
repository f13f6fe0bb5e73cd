"""A flipped bit in whatever a run and an export consist of is found."""

import collections
import random

from tests.torture.damaged_artefacts import flips
from tests.torture.damaged_artefacts import kinds_of


def test_a_flipped_bit_is_found(finetuned, exported, tmp_path):
    """`make torture TORTURE='--only damaged_artefacts'` flips 200 of each."""
    kinds = kinds_of(
        finetuned["classification"], exported["classifier"], tmp_path
    )
    counts = collections.Counter()
    for label, problem in flips(kinds, 3 * len(kinds), random.Random(0)):
        assert problem is None, label
        counts[label] += 1
    assert set(counts.values()) == {3}
