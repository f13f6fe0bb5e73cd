"""Small sets of records: of random values, and built from a small text."""

import contextlib
import dataclasses
import hashlib
import json
import unittest.mock

import numpy as np

from data_pipeline import build_records
from data_pipeline.base import command_line
from data_pipeline.base.checksums import add_checksums
from data_pipeline.objectives import permutation
from data_pipeline.records import part
from data_pipeline.records import schema
from data_pipeline.records import tfrecord
from data_pipeline.records import writer
from data_pipeline.records.manifest import Manifest
from data_pipeline.text.documents import PartPlanner
from data_pipeline.tokenization import symbols
from tests.support.artefacts import TOKENIZER
from tests.support.samples import tiny_sentences

TOKENS, REUSE, TARGETS, VOCABULARY = 22, 11, 5, 97
RECORDS = 37  # of `write_set`
PART = 9000  # characters of a part of `small_parts`


def random_values(
    num_records, seed=0, tokens=TOKENS, reuse=REUSE, targets=TARGETS
):
    """Arrays of records; the first token of record n is 9 + n."""
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
    """`perm_mask` and `target_mapping` of records."""
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
    tokenizer=None,
    seed=0,
):
    """Write a set of records; return their values.

    `tokenizer` is the records' tokenizer. It has more pieces than the records
    use.
    """
    if tokenizer:
        vocabulary = tokenizer.vocabulary_size
    stored = schema.stored_features(tokens, targets, vocabulary, form)
    values = random_values(
        sum(shard_records) + validation, seed, tokens, reuse, targets
    )
    if form == "frozen":
        values |= frozen_values(values, reuse, targets)
    frames = tfrecord.encode_records(values, stored)
    splits, names, begin = {}, {}, 0
    model = tokenizer.model_proto if tokenizer else b"a model"
    with writer.RecordSetWriter(directory, model, overwrite) as record_set:
        for split, counts in (
            ("train", shard_records),
            ("validation", (validation,) if validation else ()),
        ):
            for number, count in enumerate(counts):
                file = f"{split}-{number:05d}.tfrecord"
                names[file] = f"part-{split}-{number}"
                shard = part.write_shard(
                    record_set.building / names[file],
                    [frames[begin : begin + count]],
                )
                begin += count
                splits.setdefault(split, []).append(
                    dataclasses.replace(shard, file=file)
                )
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
                "sha256": tokenizer.digest if tokenizer else "0a" * 32,
                "vocabulary_size": vocabulary,
                "lowercase": False,
                "keep_accents": False,
                "file": "m.model",
            },
            special_ids=symbols.SPECIAL_IDS,
            record_bytes=tfrecord.record_bytes(stored),
            features=stored,
            splits={split: tuple(shards) for split, shards in splits.items()},
            totals={"documents": 1},
            text_format="running",
        )
        record_set.finish(manifest, names)
    return values


def change_manifest(path, **changes):
    """Change or add fields of a manifest, and update its SHA-256."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    add_checksums(path.parent, [path.name])


def change_plan(path, **changes):
    """Change fields of a build.json."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_byte(path, offset):
    """Damage a byte of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))


def take(data, count, **options):
    """First batches of a PretrainingData, as arrays."""
    dataset = data.dataset(**options).take(count)
    return list(dataset.as_numpy_iterator())


def numbers(batch):
    """Numbers of the records in a batch; see `random_values`."""
    return (batch["token_ids"][:, 0] - 9).tolist()


def join(elements):
    """Concatenate batches."""
    return {
        name: np.concatenate([element[name] for element in elements])
        for name in elements[0]
    }


def write_corpus(directory, files=1, documents=40):
    """Write `spiece.model`, and text with 20 sentences per document."""
    directory.mkdir()
    (directory / "spiece.model").write_bytes(TOKENIZER.read_bytes())
    lines = list(tiny_sentences(20 * documents))
    texts = ["\n".join(lines[i : i + 20]) for i in range(0, 20 * documents, 20)]
    size = documents // files
    for number in range(files):
        text = "\n\n".join(texts[number * size : (number + 1) * size])
        file = directory / f"{'abc'[number]}.txt"
        file.write_text(text, encoding="utf-8")
    return directory


def record_options(corpus, output, *more):
    """Options of `build_records` for the corpus, in this process."""
    return [
        *("--input", str(corpus / "*.txt")),
        *("--tokenizer", str(corpus / "spiece.model")),
        *("--output", str(output)),
        *("--sequence-length", "64", "--processes", "1"),
        *map(str, more),
    ]


def run_build(corpus, output, *more):
    """Run the command `build_records`; return its exit status."""
    return command_line.run(
        build_records.main, record_options(corpus, output, *more)
    )


@contextlib.contextmanager
def small_parts():
    """Limit parts to a few documents, so that small texts have many parts."""
    before = PartPlanner.__init__.__defaults__
    PartPlanner.__init__.__defaults__ = (PART,)
    yield
    PartPlanner.__init__.__defaults__ = before


@contextlib.contextmanager
def stopped_after(parts):
    """Stop builds, as by Ctrl-C, after this number of parts."""
    build_part, built = part.build_part, []

    def stop(*arguments):
        if len(built) == parts:
            raise KeyboardInterrupt
        built.append(build_part(*arguments))
        return built[-1]

    with unittest.mock.patch.object(part, "build_part", stop):
        yield


def digests(directory):
    """SHA-256 of each file in a directory, without hidden ones."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }
