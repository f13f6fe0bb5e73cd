"""Base class of readers, which make the features of an objective.

A record stores the true tokens and the target positions that were drawn when
the record was built. A reader uses these positions or chooses other targets.

Shapes: B batch, T tokens of the sequence, P targets.
"""

import dataclasses
import typing
from typing import Any
from typing import NamedTuple


class Draw(NamedTuple):
    """Inputs that determine all random draws of a batch.

    `seed` is an int. `epoch` is an int64 tensor [], the epoch of the batch.
    `record_index` is an int64 tensor [B], the index of each record in the
    split.
    """

    seed: int
    epoch: Any
    record_index: Any


@dataclasses.dataclass(frozen=True)
class ObjectiveReader:
    """Base class of readers, which make the features of an objective.

    Attributes:
        name: str, key in the registry `data_pipeline.objectives.READERS`. The
            loss in `xlnet_tf.objectives` has the same name.
        takes_literal: bool, whether `features` supports `literal=True`.
        reads_words: bool, whether `features` needs `starts_word` (bool [B, T]).
            Records do not store `starts_word`. PretrainingData computes it with
            the tokenizer.
    """

    name: typing.ClassVar[str | None] = None
    takes_literal = False
    reads_words = False

    def check(self, manifest):
        """Refuse records that do not fit the objective.

        Args:
            manifest: data_pipeline.records.manifest.Manifest.

        Raises:
            ValueError: the records do not fit.
        """

    def num_targets(self, manifest):
        """Maximum number of targets of a sequence, P, int."""
        return manifest.num_predict

    def first_half_length(self, manifest):
        """Length of the prefix that cannot attend to tokens after the prefix.

        In XLNetBackbone, this limit applies to all tokens of the prefix in the
        content stream, and to the targets in the prefix in the query stream.

        Args:
            manifest: Manifest.

        Returns:
            int, 0 if there is no such prefix.
        """
        return 0

    def features(self, records, manifest, draw, literal=False):
        """Make the objective's own features of a batch.

        The method is called in a graph of `tf.data`. The batch also has the
        features that all objectives share, such as `token_ids`. A returned
        feature with the same name replaces the shared feature.

        Args:
            records: dict from `data_pipeline.records.reading.parse_records`.
            manifest: Manifest.
            draw: Draw.
            literal: bool, whether to return `perm_mask` and `target_mapping`,
                the masks of the release.

        Returns:
            dict of str to tensor. All axes except B are static.
        """
        raise NotImplementedError
