"""Small sets of records, made without text, for tests of their readers."""

import os

import numpy as np

from data_pipeline.objectives import permutation
from data_pipeline.records import schema as features
from data_pipeline.records import writer as records
from data_pipeline.records.manifest import Manifest
from data_pipeline.records.manifest import Shard
from data_pipeline.tokenization import symbols

TOKENS, REUSE, TARGETS, VOCABULARY = 22, 11, 5, 97
RECORDS = 37  # of `write_set`


def random_values(
    num_records, seed=0, tokens=TOKENS, reuse=REUSE, targets=TARGETS
):
    """Arrays of records; the first token of each tells its number."""
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(9, VOCABULARY, (num_records, tokens))
    token_ids[:, 0] = 9 + np.arange(num_records) % (VOCABULARY - 9)
    middle = rng.integers(reuse + 1, tokens - 4, num_records)
    rows = np.arange(num_records)
    token_ids[rows, middle] = symbols.SEP_ID
    token_ids[:, -2:] = symbols.SEP_ID, symbols.CLS_ID
    segment_ids = (np.arange(tokens) > middle[:, None]).astype(int)
    segment_ids[:, -1] = 2
    is_target = np.zeros((num_records, tokens), bool)
    for row in range(num_records):
        # Some rows have fewer targets than there is room for.
        count = targets - row % 3
        is_target[row, rng.permutation(tokens)[:count]] = True
    return {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "is_target": is_target,
        "is_reversed": rng.integers(0, 2, (num_records, 1)),
        "is_next": rng.integers(0, 2, (num_records, 1)),
    }


def frozen_values(values, reuse=REUSE, targets=TARGETS):
    """`perm_mask` and `target_mapping` for records, drawn once."""
    token_ids = values["token_ids"].astype(np.int32)
    num_records, tokens = token_ids.shape
    shuffles = permutation.draw_shuffles(
        7,
        np.zeros(num_records, np.int64),
        np.arange(num_records),
        tokens,
        reuse,
        reuse,
    )
    rank = permutation.factorization_rank(
        token_ids, values["is_target"], shuffles, reuse
    )
    real = permutation.real_targets(token_ids, values["is_target"])
    positions, _, weights = permutation.select_targets(token_ids, real, targets)
    return {
        "perm_mask": permutation.perm_mask(rank, real).numpy(),
        "target_mapping": permutation.target_mapping(
            positions, weights, tokens
        ).numpy(),
    }


def write_set(
    directory,
    shard_records=(13, 8, 16),
    validation=0,
    form="compact",
    overwrite=False,
    tokens=TOKENS,
    reuse=REUSE,
    targets=TARGETS,
    vocabulary=VOCABULARY,
):
    """Writes a set; returns the values of its training records."""
    stored = features.stored_features(tokens, targets, vocabulary, form)
    values = random_values(
        sum(shard_records) + validation, 0, tokens, reuse, targets
    )
    if form == "frozen":
        values |= frozen_values(values, reuse, targets)
    frames = records.encode_records(values, stored)
    splits, names, begin = {}, {}, 0
    with records.RecordSetWriter(directory, overwrite) as writer:
        for split, counts in (
            ("train", shard_records),
            ("validation", (validation,) if validation else ()),
        ):
            for number, count in enumerate(counts):
                file = f"{split}-{number:05d}.tfrecord"
                names[file] = f"part-{split}-{number}"
                written = records.write_shard(
                    writer.temporary_path(names[file]),
                    [frames[begin : begin + count]],
                )
                begin += count
                shard = Shard(file, *written, "forward")
                splits.setdefault(split, []).append(shard)
        manifest = Manifest(
            sequence_length=tokens,
            reuse_length=reuse,
            permutation_length=max(reuse, tokens - reuse),
            num_predict=targets,
            tokens_per_target=4,
            spans="words",
            form=form,
            both_directions=False,
            end_of_document=True,
            seed=3,
            tokenizer={
                "sha256": "0a" * 32,
                "vocabulary_size": vocabulary,
                "lowercase": False,
                "file": "m.model",
            },
            special_ids=symbols.SPECIAL_IDS,
            record_bytes=records.record_bytes(stored),
            features=stored,
            splits={split: tuple(shards) for split, shards in splits.items()},
            totals={"documents": 1},
        )
        writer.finish(manifest, names, b"a model")
    return values


def flip_byte(path, offset):
    """Damages one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))


def cut(path, size):
    """Cuts a file off."""
    os.truncate(path, size)


def take(data, count, **options):
    """The first batches of a PretrainingData, as arrays."""
    dataset = data.dataset(**options).take(count)
    return list(dataset.as_numpy_iterator())


def numbers(batch):
    """Which records a batch holds: their first token tells."""
    return (batch["token_ids"][:, 0] - 9).tolist()


def join(elements):
    """Batches as one."""
    return {
        name: np.concatenate([element[name] for element in elements])
        for name in elements[0]
    }
