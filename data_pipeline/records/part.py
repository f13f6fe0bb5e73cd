"""Building of the shards of one part of the text, see `records.build`.

A part is written whole or not at all.

All random draws of a part depend only on the seed, the split and the number of
the part. So the bytes do not depend on the process that builds the part.

The files of a part, in the temporary directory of a build:

    train-0-forward     shards, a file for each direction
    train-0.json        counts, and the digest of the part's text
    train-0.sha256      SHA-256 of these files, written last

A part counts as missing if it has no `.sha256` file, or if another file of the
part does not match its digest in the `.sha256` file.
"""

import dataclasses
import hashlib
import itertools
import os
import typing

import numpy as np

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_listing
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import write_json
from data_pipeline.base.files import written_whole
from data_pipeline.records import schema
from data_pipeline.records import tfrecord
from data_pipeline.records.manifest import Shard
from data_pipeline.records.manifest import shard_from_json
from data_pipeline.records.sequences import build_sequences
from data_pipeline.records.sequences import join_documents
from data_pipeline.records.sequences import reverse_stream
from data_pipeline.records.targets import sample_targets
from data_pipeline.tokenization.cleaning import count_accents
from data_pipeline.tokenization.symbols import UNKNOWN
from data_pipeline.tokenization.symbols import UNKNOWN_ID

_COPY_BYTES = 1 << 24
_COUNTS, _LISTING = ".json", ".sha256"


class BuiltPart(typing.NamedTuple):
    """Shards of a part, and counts about its text."""

    split: str
    number: int  # index in the split
    text_digest: str
    shards: list  # list of Shard, one per direction
    documents: int
    characters: int
    tokens: int
    unknown: int
    written_unknown: int  # number of literal <unk> in the text
    dropped_accents: int  # accented characters and single accents
    targets: int  # number in all records
    sentences: int


def finished_part(directory, split, number, documents, tokenizer, settings):
    """Load a finished part if it has the text `documents`, else build it.

    Args:
        directory: str, path of the temporary files.
        split: str.
        number: int, the part's number in its split.
        documents: list of Document, the text of the part.
        tokenizer: Tokenizer.
        settings: RecordSettings with all defaults filled in.

    Returns:
        BuiltPart.
    """
    part = load_part(directory, split, number)
    if part is None or part.text_digest != _text_digest(documents):
        part = build_part(
            directory, split, number, documents, tokenizer, settings
        )
        _save_part(directory, part)
    return part


def load_part(directory, split, number):
    """Load a finished part.

    Args:
        directory, split, number: see `finished_part`.

    Returns:
        BuiltPart, or None if the part is missing or damaged.
    """
    name = f"{split}-{number}"
    try:
        names = verify_checksums(directory, listing=name + _LISTING)
    except ValueError:
        return None
    if name + _COUNTS not in names:
        return None
    content = read_json_object(os.path.join(directory, name + _COUNTS))
    content["shards"] = list(map(shard_from_json, content["shards"]))
    return BuiltPart(**content)


def _save_part(directory, part):
    file = os.path.join(directory, f"{part.split}-{part.number}")
    shards = list(map(dataclasses.asdict, part.shards))
    write_json(file + _COUNTS, {**part._asdict(), "shards": shards})
    digests = {shard.file: shard.sha256 for shard in part.shards}
    digests[os.path.basename(file + _COUNTS)] = sha256_of(file + _COUNTS)
    write_listing(file + _LISTING, digests)


def count_parts(directory):
    """Return the number of finished parts in a directory, int."""
    names = (path.name for path in as_path(directory).iterdir())
    return sum(name.endswith(_LISTING) for name in names)


def _text_digest(documents):
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        digest.update(document.text.encode("utf-8", "surrogatepass"))
        digest.update(f"\0{document.text_format}\0".encode())
    return digest.hexdigest()


def build_part(directory, split, number, documents, tokenizer, settings):
    """Tokenize a part, cut it into sequences, and write its shards.

    Args:
        directory, split, number, documents, tokenizer, settings: see
            `finished_part`.

    Returns:
        BuiltPart.
    """
    sentences = [document.sentences() for document in documents]
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
        # To draw stored permutations, this number replaces the epoch.
        stream_number = (
            4 * number
            + 2 * schema.SPLITS.index(split)
            + schema.DIRECTIONS.index(direction)
        )
        chunks = _encoded_chunks(values, stored, stream_number, settings)
        file = os.path.join(directory, f"{split}-{number}-{direction}")
        shards.append(write_shard(file, chunks, direction))
    accents = 0
    if not tokenizer.keep_accents:
        accents = sum(count_accents(document.text) for document in documents)
    return BuiltPart(
        split,
        number,
        _text_digest(documents),
        shards,
        len(documents),
        sum(len(document.text) for document in documents),
        len(stream.token_ids),
        int(np.count_nonzero(stream.token_ids == UNKNOWN_ID)),
        sum(document.text.count(UNKNOWN) for document in documents),
        accents,
        targets,
        len(stream.sentence_starts) + 1,
    )


def write_shard(path, chunks, direction="forward"):
    """Write records with their TFRecord frames to a shard, atomically.

    Args:
        path: str.
        chunks: iterable of uint8 arrays [n, frame bytes], which together have
            at least one record.
        direction: str.

    Returns:
        Shard.

    Raises:
        OSError: writing fails, for example on a full disk. The error names
            `path`.
    """
    digest, num_records, num_bytes = hashlib.sha256(), 0, 0
    first = last = None
    with written_whole(path) as temporary, temporary.open("wb") as file:
        for frames in filter(len, chunks):
            file.write(frames.data)
            digest.update(frames.data)
            num_records += len(frames)
            num_bytes += frames.nbytes
            last = tfrecord.stored_checksum(frames[-1])
            if first is None:
                first = tfrecord.stored_checksum(frames[0])
    return Shard(
        os.path.basename(path),
        num_records,
        num_bytes,
        digest.hexdigest(),
        direction,
        first,
        last,
    )


def join_shards(directory, shards, most_bytes):
    """Join the shards of successive parts up to a maximum size.

    Args:
        directory: str, path of the temporary files.
        shards: list of Shard in order, all of one split and direction.
        most_bytes: int, maximum size of a joined shard, or None to join no
            shards. A shard above the maximum stays unchanged.

    Yields:
        Shard. Its `starts` are the numbers of the records that begin the second
        and later parts.
    """
    group, size = [], 0
    for shard in shards:
        if group and (most_bytes is None or size + shard.bytes > most_bytes):
            yield _joined(directory, group)
            group, size = [], 0
        group.append(shard)
        size += shard.bytes
    if group:
        yield _joined(directory, group)


def _joined(directory, group):
    if len(group) == 1:
        return group[0]
    file = f"{group[0].file}-joined"
    path = os.path.join(directory, file)
    digest = hashlib.sha256()
    with written_whole(path) as temporary, temporary.open("wb") as target:
        for shard in group:
            part = as_path(os.path.join(directory, shard.file))
            with part.open("rb") as source:
                while block := source.read(_COPY_BYTES):
                    target.write(block)
                    digest.update(block)
    ends = list(itertools.accumulate(shard.records for shard in group))
    return dataclasses.replace(
        group[0],
        file=file,
        records=ends[-1],
        bytes=sum(shard.bytes for shard in group),
        sha256=digest.hexdigest(),
        last_crc32c=group[-1].last_crc32c,
        starts=tuple(ends[:-1]),
    )


def _record_values(stream, split, number, direction, starts_word, settings):
    """Make a part's records in one direction: dict of names to arrays."""
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
    """Draw the permutation masks and target mappings to store with records."""
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
