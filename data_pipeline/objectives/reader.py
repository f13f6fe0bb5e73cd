"""Features of an objective from a batch of records.

A record holds the true tokens and the target positions that were drawn when it
was built. An objective that predicts other positions draws them anew.

Shapes: B batch, T tokens of the sequence, P targets.
"""

import dataclasses
import typing
from typing import Any
from typing import NamedTuple


class Draw(NamedTuple):
    """Inputs that determine the random draws of a batch.

    `seed` is an int; `epoch` and `record_index` are int64 tensors [B].
    """

    seed: int
    epoch: Any
    record_index: Any


@dataclasses.dataclass(frozen=True)
class ObjectiveReader:
    """Base of the objectives' readers.

    Attributes:
        name: str, key in the registry `data_pipeline.objectives.READERS`; the
            loss in `xlnet_tf.objectives` has the same name.
        takes_literal: bool, whether `features` has a literal form.
        reads_words: bool, whether `features` also needs `starts_word` bool
            [B, T], which records lack.
    """

    name: typing.ClassVar[str | None] = None
    takes_literal = False
    reads_words = False

    def check(self, manifest):
        """Check that records fit the objective.

        Args:
            manifest: data_pipeline.records.manifest.Manifest.

        Raises:
            ValueError: they do not.
        """

    def num_targets(self, manifest):
        """Most targets of a sequence, P, int."""
        return manifest.num_predict

    def first_half_length(self, manifest):
        """Length of the prefix that cannot attend to later tokens.

        This holds for content rows, and for targets in the prefix, in a
        backbone that reads `factorization_rank`.

        Args:
            manifest: Manifest.

        Returns:
            int, 0 if they may.
        """
        return 0

    def features(self, records, manifest, draw, literal=False):
        """Features of a batch beside the features of all objectives.

        It is called in a graph of `tf.data`. A common feature, such as
        `token_ids`, is replaced if it is returned.

        Args:
            records: dict of `data_pipeline.records.reading.parse_records`.
            manifest: Manifest.
            draw: Draw.
            literal: bool, whether to return masks as released.

        Returns:
            dict of str to tensor; all axes but B are static.
        """
        raise NotImplementedError
