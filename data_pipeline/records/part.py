"""One part of the text -> its shards.

All that is random in a part follows from the seed, its split and its number,
so a part gives the same bytes wherever and whenever it is built.
"""

import itertools
import typing

import numpy as np

from data_pipeline.records import schema as features
from data_pipeline.records import sequences as segments
from data_pipeline.records import targets
from data_pipeline.records import writer as records
from data_pipeline.tokenization import symbols


class BuiltPart(typing.NamedTuple):
    """What one part has become."""

    shards: (
        list  # of (split, direction, temporary path, records, bytes, sha256)
    )
    documents: int
    characters: int
    tokens: int
    unknown: int


def build_part(
    split, number, part, path, tokenizer, settings, write=records.write_shard
):
    """Tokenizes a part, cuts it into sequences, and writes its shards.

    Args:
        split: str.
        number: int, the part's number in its split.
        part: list of Document.
        path: str, the temporary path that the shards' names begin with.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        write: callable that takes a path and chunks of framed records, and
            returns what `records.write_shard` does.

    Returns:
        BuiltPart.
    """
    sentences = [document.sentences() for document in part]
    stream = segments.join_documents(
        *tokenizer.encode_flat(list(itertools.chain.from_iterable(sentences))),
        np.array(list(map(len, sentences)), np.int64),
        settings.end_of_document,
    )
    stored = features.stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    shards = []
    for direction in settings.directions:
        values = _record_values(
            stream, split, number, direction, tokenizer.starts_word, settings
        )
        if not len(values["is_next"]):
            continue
        target = f"{path}-{direction}"
        # Split, part and direction take the place of an epoch.
        stream_number = (
            4 * number
            + 2 * features.SPLITS.index(split)
            + features.DIRECTIONS.index(direction)
        )
        chunks = _encoded_chunks(values, stored, stream_number, settings)
        shards.append((split, direction, target, *write(target, chunks)))
    return BuiltPart(
        shards,
        len(part),
        sum(len(document.text) for document in part),
        len(stream.token_ids),
        int(np.count_nonzero(stream.token_ids == symbols.UNKNOWN_ID)),
    )


def _record_values(stream, split, number, direction, starts_word, settings):
    """The arrays of all records of a part in one direction."""
    backward = direction == "backward"
    rng = np.random.default_rng(
        [settings.seed, features.SPLITS.index(split), number, int(backward)]
    )
    if backward:
        stream = segments.reverse_stream(stream)
    sequences = segments.build_sequences(
        stream, settings.sequence_length, settings.reuse_length, rng
    )
    is_target = targets.sample_targets(
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
    at_once = records.records_at_once(stored)
    for begin in range(0, len(values["is_next"]), at_once):
        chunk = {
            name: value[begin : begin + at_once]
            for name, value in values.items()
        }
        if settings.frozen:
            chunk |= _frozen(chunk, begin, stream_number, settings)
        yield records.encode_records(chunk, stored)


def _frozen(chunk, first_record, stream_number, settings):
    """Draws the permutations of records for good."""
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
