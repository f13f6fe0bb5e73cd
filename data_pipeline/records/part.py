"""A part of the text -> its shards.

All random draws of a part follow from the seed, the split and the number of the
part, so its bytes do not depend on the process that builds it.
"""

import hashlib
import itertools
import typing

import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.files import written_whole
from data_pipeline.records import schema
from data_pipeline.records import tfrecord
from data_pipeline.records import writer
from data_pipeline.records.sequences import build_sequences
from data_pipeline.records.sequences import join_documents
from data_pipeline.records.sequences import reverse_stream
from data_pipeline.records.targets import sample_targets
from data_pipeline.tokenization.symbols import UNKNOWN
from data_pipeline.tokenization.symbols import UNKNOWN_ID

_COPY_BYTES = 1 << 24


class BuiltPart(typing.NamedTuple):
    """Shards of a part, with counts of its text."""

    shards: list  # of (split, direction, temporary path, WrittenShard)
    documents: int
    characters: int
    tokens: int
    unknown: int
    written_unknown: int  # occurrences of a literal <unk> in the text
    targets: int  # of all records


def build_part(split, number, part, path, tokenizer, settings):
    """Tokenize a part, cut it into sequences, and write its shards.

    Args:
        split: str.
        number: int, the part's number in its split.
        part: list of Document.
        path: str, the prefix of the temporary paths of its shards.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.

    Returns:
        BuiltPart.
    """
    sentences = [document.sentences() for document in part]
    stream = join_documents(
        *tokenizer.encode_flat(list(itertools.chain.from_iterable(sentences))),
        np.array(list(map(len, sentences)), np.int64),
        settings.end_of_document,
    )
    stored = schema.stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    shards, targets = [], 0
    for direction in settings.directions:
        values = _record_values(
            stream, split, number, direction, tokenizer.starts_word, settings
        )
        if not len(values["is_next"]):
            continue
        targets += int(np.count_nonzero(values["is_target"]))
        shard_path = f"{path}-{direction}"
        # Stored permutations are drawn with this number instead of an epoch.
        stream_number = (
            4 * number
            + 2 * schema.SPLITS.index(split)
            + schema.DIRECTIONS.index(direction)
        )
        chunks = _encoded_chunks(values, stored, stream_number, settings)
        written = writer.write_shard(shard_path, chunks)
        shards.append((split, direction, shard_path, written))
    return BuiltPart(
        shards,
        len(part),
        sum(len(document.text) for document in part),
        len(stream.token_ids),
        int(np.count_nonzero(stream.token_ids == UNKNOWN_ID)),
        sum(document.text.count(UNKNOWN) for document in part),
        targets,
    )


def few_targets(built, num_predict):
    """The number of targets, if less than half of their places are filled.

    Args:
        built: list of BuiltPart.
        num_predict: int, places of a record.

    Returns:
        dict, empty if there are more.
    """
    targets = sum(part.targets for part in built)
    num_records = sum(x[-1].records for part in built for x in part.shards)
    if 2 * targets >= num_predict * num_records:
        return {}
    return {"targets": targets}


def join_shards(shards, most_bytes):
    """Join shards of successive parts while they fit into a size.

    Args:
        shards: list of (temporary path, WrittenShard), of one split and
            direction, in order.
        most_bytes: int, or None to join none. A shard that is larger stays.

    Yields:
        (temporary path, WrittenShard, starts): where the shard is, its size
        and checksums, and a tuple of the records where parts begin behind the
        first, empty for a shard of one part.
    """
    group, size = [], 0
    for path, written in shards:
        if group and (most_bytes is None or size + written.bytes > most_bytes):
            yield _joined(group)
            group, size = [], 0
        group.append((path, written))
        size += written.bytes
    if group:
        yield _joined(group)


def _joined(group):
    if len(group) == 1:
        return *group[0], ()
    first, last = group[0][1], group[-1][1]
    path = f"{group[0][0]}-joined"
    digest = hashlib.sha256()
    with written_whole(path) as temporary, temporary.open("wb") as file:
        for part, _ in group:
            with as_path(part).open("rb") as source:
                while block := source.read(_COPY_BYTES):
                    file.write(block)
                    digest.update(block)
    records = [written.records for _, written in group]
    return (
        path,
        writer.WrittenShard(
            sum(records),
            sum(written.bytes for _, written in group),
            digest.hexdigest(),
            first.first_crc32c,
            last.last_crc32c,
        ),
        tuple(itertools.accumulate(records[:-1])),
    )


def _record_values(stream, split, number, direction, starts_word, settings):
    """Arrays of all records of a part in one direction."""
    backward = direction == "backward"
    rng = np.random.default_rng(
        [settings.seed, schema.SPLITS.index(split), number, int(backward)]
    )
    if backward:
        stream = reverse_stream(stream)
    sequences = build_sequences(
        stream, settings.sequence_length, settings.reuse_length, rng
    )
    is_target = sample_targets(
        sequences.token_ids,
        starts_word,
        rng,
        settings.reuse_length,
        settings.num_predict,
        settings.tokens_per_target,
        settings.spans,
        is_reversed=backward,
    )
    return {
        **sequences._asdict(),
        "is_target": is_target,
        "is_reversed": np.full(len(is_target), backward, np.uint8),
    }


def _encoded_chunks(values, stored, stream_number, settings):
    at_once = tfrecord.records_at_once(stored)
    for begin in range(0, len(values["is_next"]), at_once):
        chunk = {
            name: value[begin : begin + at_once]
            for name, value in values.items()
        }
        if settings.frozen:
            chunk |= _drawn_permutations(chunk, begin, stream_number, settings)
        yield tfrecord.encode_records(chunk, stored)


def _drawn_permutations(chunk, first_record, stream_number, settings):
    """Masks and target mappings of records, to be stored."""
    import tensorflow as tf

    from data_pipeline.objectives import permutation

    token_ids = tf.constant(chunk["token_ids"])
    is_target = tf.constant(chunk["is_target"])
    real = permutation.real_targets(token_ids, is_target)
    index = tf.range(first_record, first_record + len(chunk["token_ids"]))
    rank = permutation.factorization_rank(
        token_ids,
        is_target,
        permutation.draw_shuffles(
            settings.seed,
            tf.fill(index.shape, stream_number),
            index,
            settings.sequence_length,
            settings.reuse_length,
            settings.permutation_length,
        ),
        settings.reuse_length,
    )
    positions, _, weights = permutation.select_targets(
        token_ids, real, settings.num_predict
    )
    return {
        "perm_mask": permutation.perm_mask(rank, real).numpy(),
        "target_mapping": permutation.target_mapping(
            positions, weights, settings.sequence_length
        ).numpy(),
    }
