"""The features that an objective takes from a batch of records.

A record holds the true tokens and the places that were drawn as targets when
it was built. An objective that predicts other places draws them anew.

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
        name: str, of the registry `data_pipeline.objectives.READERS`; the same
            as that of the loss in `xlnet_tf.objectives`.
        takes_literal: bool, whether `features` has a literal form.
        reads_words: bool, whether `features` needs `starts_word` bool [B, T]
            beside what the records hold.
    """

    name: typing.ClassVar[str | None] = None
    takes_literal = False
    reads_words = False

    def check(self, manifest):
        """Check that records hold what the objective needs.

        Args:
            manifest: data_pipeline.records.manifest.Manifest.

        Raises:
            ValueError: they do not.
        """

    def num_targets(self, manifest):
        """int, P, the most targets of a sequence."""
        return manifest.num_predict

    def first_half_length(self, manifest):
        """Number of first tokens that see none of those behind.

        Of rows of content, and of targets there, in a backbone that reads
        `factorization_rank`.

        Args:
            manifest: Manifest.

        Returns:
            int, 0 if they may.
        """
        return 0

    def features(self, records, manifest, draw, literal=False):
        """Features of a batch beside those that all objectives have.

        Called in a graph of `tf.data`. A name that all have, such as
        `token_ids`, is replaced.

        Args:
            records: dict of `data_pipeline.records.reading.parse_records`.
            manifest: Manifest.
            draw: Draw.
            literal: bool, whether masks are given as released.

        Returns:
            dict of str to tensor of static shape but for B.
        """
        raise NotImplementedError
