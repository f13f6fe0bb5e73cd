"""Names, shapes and dtypes of the features of records and batches.

The build of records (`data_pipeline.records.build`) and the reader
(`data_pipeline.pretraining`) share these tables. This module does not import
TensorFlow.

Shapes: B batch, T tokens of the sequence, P targets.
"""

import dataclasses
import math
import re
import typing

from data_pipeline.base.settings import FRACTION_BELOW_1
from data_pipeline.base.settings import NOT_NEGATIVE
from data_pipeline.base.settings import POSITIVE
from data_pipeline.base.settings import Settings
from data_pipeline.base.settings import setting
from data_pipeline.objectives.blocks import block_length
from data_pipeline.objectives.blocks import half_lengths

SPLITS = ("train", "validation")
SPANS = ("words", "subwords", "single_words")
DIRECTIONS = ("forward", "backward")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MOST_SHARD_BYTES = 2**62


class BatchFeature(typing.NamedTuple):
    """Tensor of a batch: shape (letters such as "BT"), dtype and meaning."""

    shape: str
    dtype: str
    meaning: str


class StoredFeature(typing.NamedTuple):
    """Feature of a record. If `packed`, its values are stored as bits."""

    dtype: str
    shape: tuple
    packed: bool = False

    @property
    def num_values(self):
        """Number of values of the feature, int."""
        return math.prod(self.shape)

    @property
    def num_bytes(self):
        """Number of bytes of the stored feature, int."""
        if self.packed:
            return (self.num_values + 7) // 8
        return (
            self.num_values * {"uint8": 1, "uint16": 2, "int32": 4}[self.dtype]
        )


BATCH = {
    "token_ids": BatchFeature("BT", "int32", "[reused half | A sep B sep cls]"),
    "segment_ids": BatchFeature("BT", "int32", "0 reused and A, 1 B, 2 cls"),
    "factorization_rank": BatchFeature(
        "BT",
        "int32",
        "content stream of i attends to j iff rank j <= rank i, query stream "
        "iff rank j < rank i; -1 = context of the first half",
    ),
    "target_positions": BatchFeature(
        "BP", "int32", "in text order, 0 = padding"
    ),
    "target_ids": BatchFeature(
        "BP", "int32", "the tokens to predict, 0 = padding"
    ),
    "target_weights": BatchFeature(
        "BP", "float32", "1 = a target, 0 = padding"
    ),
    "is_reversed": BatchFeature("B", "bool", "the row is reversed"),
    "is_continuation": BatchFeature(
        "B", "bool", "the record continues the row's record of the step before"
    ),
    "is_next": BatchFeature("B", "bool", "B follows A in the text"),
}


def stored_features(
    sequence_length, num_predict, vocabulary_size, form="compact"
):
    """Define the features of a record, all of fixed length.

    All records of a set therefore have the same size, and the offset of a
    record in its shard follows from the record's number.

    Args:
        sequence_length: int, T.
        num_predict: int, P.
        vocabulary_size: int. Ids are stored in two bytes if the vocabulary is
            small enough.
        form: "compact", or "frozen", which adds `perm_mask` and
            `target_mapping` as bits.

    Returns:
        dict of str to StoredFeature.
    """
    token_dtype = "uint16" if vocabulary_size <= 1 << 16 else "int32"
    stored = {
        "token_ids": StoredFeature(token_dtype, (sequence_length,)),
        "segment_ids": StoredFeature("uint8", (sequence_length,)),
        "is_target": StoredFeature("uint8", (sequence_length,)),
        "is_reversed": StoredFeature("uint8", (1,)),
        "is_next": StoredFeature("uint8", (1,)),
    }
    if form == "frozen":
        square = (sequence_length, sequence_length)
        stored["perm_mask"] = StoredFeature("uint8", square, packed=True)
        stored["target_mapping"] = StoredFeature(
            "uint8", (num_predict, sequence_length), packed=True
        )
    return stored


def split_goal(num_predict, sequence_length, reuse_length):
    """Divide the targets between the reused half and the new half.

    The numbers of targets are proportional to the lengths of the halves. For
    equal lengths, they are `num_predict - num_predict // 2` and `num_predict //
    2`, as in the release.

    Returns:
        tuple of int, the numbers of targets in the reused and in the new half.
    """
    new = num_predict * (sequence_length - reuse_length) // sequence_length
    return num_predict - new, new


def check_lengths(
    sequence_length, reuse_length, permutation_length, num_predict
):
    """Check that the lengths of a record set fit together.

    Args:
        sequence_length: int, T.
        reuse_length: int, number of tokens at the start of a sequence that the
            memory keeps for the next sequence.
        permutation_length: int, number of tokens of a block. The tokens of a
            block are permuted together.
        num_predict: int, P.

    Raises:
        ValueError: a length does not fit. The message gives the bounds.
    """
    if sequence_length < 8:
        raise ValueError(
            "`sequence_length` must be at least 8: two <sep>, one <cls> and "
            f"some text. Received: sequence_length={sequence_length}."
        )
    if not 0 <= reuse_length <= sequence_length - 5:
        raise ValueError(
            "`reuse_length` must be between 0 and sequence_length - 5 = "
            f"{sequence_length - 5}, so that A, B, two <sep> and <cls> fit "
            f"behind it. Received: reuse_length={reuse_length}."
        )
    if permutation_length < 1 or permutation_length > max(
        reuse_length, sequence_length - reuse_length
    ):
        raise ValueError(
            "`permutation_length` must be between 1 and the longer half "
            f"({max(reuse_length, sequence_length - reuse_length)}). "
            f"Received: permutation_length={permutation_length}."
        )
    for half in half_lengths(sequence_length, reuse_length):
        if half % block_length(half, permutation_length):
            raise ValueError(
                "`permutation_length` must divide both halves of the sequence, "
                f"{reuse_length} and {sequence_length - reuse_length} tokens. "
                f"Received: permutation_length={permutation_length}. Leave it "
                "out to permute each half as a whole."
            )
    first, second = split_goal(num_predict, sequence_length, reuse_length)
    room = sequence_length - reuse_length - 3
    if num_predict < 1 or first > reuse_length or second > room:
        raise ValueError(
            "`num_predict` must be at least 1 and leave room for <sep> and "
            f"<cls>: {first} targets for {reuse_length} reused tokens and "
            f"{second} for {room} new ones. Received: "
            f"num_predict={num_predict}; usual is sequence_length // 6 = "
            f"{max(1, sequence_length // 6)}."
        )


@dataclasses.dataclass(frozen=True)
class RecordSettings(Settings):
    """Settings of a set of records.

    The method `resolved` replaces None by a default, which depends on other
    settings. Only `shard_size` may stay None. Then no shards are joined.
    """

    sequence_length: int = setting(512, "tokens of a record", POSITIVE)
    reuse_length: int | None = setting(
        None,
        "number of first tokens of a record that memory keeps; the next record "
        "begins this number of tokens later (default half; 0: records do not "
        "overlap, and memory keeps all tokens)",
    )
    num_predict: int | None = setting(
        None,
        "maximum targets of a record (default sequence length / tokens per "
        "target)",
    )
    tokens_per_target: int = setting(
        6, "K of the paper: predict about 1 token in K", POSITIVE
    )
    permutation_length: int | None = setting(
        None,
        "tokens that are permuted together (default half of a record)",
    )
    spans: str = setting(
        "words",
        "targets: spans of whole words, spans of subwords as in the release, "
        "or single words",
        choices=SPANS,
    )
    both_directions: bool = setting(False, "also build reversed records")
    frozen: bool = setting(
        False,
        "draw the permutations once and store `perm_mask` and `target_mapping`",
    )
    end_of_document: bool = setting(True, "end each document with <eod>")
    validation_fraction: float = setting(
        0.0, "share of the documents to hold out", FRACTION_BELOW_1
    )
    seed: int = setting(0, "seed of all random draws", NOT_NEGATIVE)
    shard_size: str | None = setting(
        None,
        "join shards up to this size, such as 256MB (default one shard per 4 "
        "million characters)",
        metavar="SIZE",
    )

    @property
    def shard_bytes(self):
        """Maximum size of a joined shard in bytes; None to join no shards."""
        if self.shard_size is None:
            return None
        match = _SIZE.fullmatch(self.shard_size.strip())
        number = float(match[1]) * _UNITS[match[2].upper()] if match else 0
        if not 1 <= number < _MOST_SHARD_BYTES:
            raise ValueError(
                "`shard_size` must be a number of bytes, such as 256MB or 1GB. "
                f"Received: shard_size={self.shard_size[:40]!r}."
            )
        return int(number)

    @property
    def form(self):
        """Form of the records, "compact" or "frozen"."""
        return "frozen" if self.frozen else "compact"

    @property
    def directions(self):
        """Directions of the records, tuple of str."""
        return DIRECTIONS[: 2 if self.both_directions else 1]

    def resolved(self):
        """Return the settings with every default filled in.

        Returns:
            RecordSettings.

        Raises:
            ValueError: the lengths do not fit together.
        """
        reuse = self.reuse_length
        if reuse is None:
            reuse = self.sequence_length // 2
        permutation = self.permutation_length
        if permutation is None:
            permutation = max(reuse, self.sequence_length - reuse)
        num_predict = self.num_predict
        if num_predict is None:
            num_predict = max(1, self.sequence_length // self.tokens_per_target)
        check_lengths(self.sequence_length, reuse, permutation, num_predict)
        _ = self.shard_bytes  # refuse a bad size before reading text
        return dataclasses.replace(
            self,
            reuse_length=reuse,
            permutation_length=permutation,
            num_predict=num_predict,
        )
