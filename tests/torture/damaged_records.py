"""Damaged records are refused before the first step, or named and left out.

Whatever the damage, no batch has other values than those of the whole set.
"""

import json
import os
import shutil

import numpy as np
import tensorflow as tf

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set

TRIALS = 200
# Shards of equal and of other sizes, so that files can change places.
_SHARDS = (6, 9, 6, 4)


def trials(count, directory, generator):
    """Yields (label, problem) of each trial; see `tests.torture`."""
    whole, other = directory / "whole", directory / "other"
    write_set(whole, _SHARDS)
    write_set(other, _SHARDS, seed=1)
    expected = take(PretrainingData(whole, 1), sum(_SHARDS))
    kinds = list(DAMAGE.items())
    for number in range(count):
        label, damage = kinds[number % len(kinds)]
        damaged = shutil.copytree(whole, directory / "damaged")
        names = damage(damaged, other, generator)
        for skip_corrupt in (False, True):
            problem = _problem(damaged, expected, names, skip_corrupt)
            if problem is not None:
                break
        shutil.rmtree(damaged)
        yield label, problem


def _problem(directory, expected, names, skip_corrupt):
    """What broke when damaged records were read, str, or None."""
    try:
        data = PretrainingData(directory, 1, skip_corrupt=skip_corrupt)
        batches = take(data, data.num_records)
    except (ValueError, FileNotFoundError) as error:
        return _problem_of_message(str(error), names)
    except tf.errors.DataLossError:
        try:
            data.explain_data_loss()
        except ValueError as error:
            return _problem_of_message(str(error), names)
        return "data were lost, and nothing says where"
    skipped = {_place(bad) for bad in data.skipped}
    if len(skipped) < len(data.skipped) or (
        len(batches) + len(skipped) != len(expected)
    ):
        return f"{len(batches)} records, and {len(skipped)} were left out"
    for bad in data.skipped:
        if (problem := _problem_of_message(str(bad), names)) is not None:
            return problem
    kept = [x for n, x in enumerate(expected) if n not in skipped]
    for number, (found, right) in enumerate(zip(batches, kept, strict=True)):
        for name in right:
            if name != "is_continuation" and not np.array_equal(
                found[name], right[name]
            ):
                return f"batch {number} has other {name}, silently"
    return None


def _place(bad):
    """Number of a record among those of all shards."""
    shard = int(bad.file.removesuffix(".tfrecord")[-5:])
    return sum(_SHARDS[:shard]) + bad.record


def _problem_of_message(message, names):
    if "\n" in message:
        return f"an error of several lines: {message!r}"
    if not any(name in message for name in names):
        return f"none of {names} is named: {message}"
    return None


def _pick(generator):
    return f"train-{generator.randrange(len(_SHARDS)):05d}.tfrecord"


def _frame(directory):
    return read_manifest(directory, check_shards=False).frame_bytes


def _flip(path, generator):
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)
    return [path.name]


def _flip_shard(directory, other, generator):
    return _flip(directory / _pick(generator), generator)


def _flip_manifest(directory, other, generator):
    return _flip(directory / MANIFEST, generator)


def _cut(directory, other, generator):
    name = _pick(generator)
    size = os.path.getsize(directory / name)
    os.truncate(directory / name, generator.randrange(size))
    return [name]


def _cut_between_records(directory, other, generator):
    name, frame = _pick(generator), _frame(directory)
    records = os.path.getsize(directory / name) // frame
    os.truncate(directory / name, frame * generator.randrange(records))
    return [name]


def _zero_the_end(directory, other, generator):
    name = _pick(generator)
    size = os.path.getsize(directory / name)
    os.truncate(directory / name, generator.randrange(size))
    os.truncate(directory / name, size)
    return [name]


def _lose(directory, other, generator):
    name = _pick(generator)
    (directory / name).unlink()
    return [name]


def _lose_a_record(directory, other, generator):
    name, frame = _pick(generator), _frame(directory)
    content = (directory / name).read_bytes()
    begin = frame * generator.randrange(len(content) // frame)
    (directory / name).write_bytes(content[:begin] + content[begin + frame :])
    return [name]


def _double_a_record(directory, other, generator):
    name, frame = _pick(generator), _frame(directory)
    content = (directory / name).read_bytes()
    begin = frame * generator.randrange(len(content) // frame)
    (directory / name).write_bytes(content[: begin + frame] + content[begin:])
    return [name]


def _double(directory, other, generator):
    """A shard stands in the place of another one, of any size."""
    names = [f"train-{n:05d}.tfrecord" for n in range(len(_SHARDS))]
    source, target = generator.sample(names, 2)
    shutil.copy(directory / source, directory / target)
    return [target]


def _swap(directory, other, generator):
    """Two shards of one size, 0 and 2, have changed their names."""
    names = ["train-00000.tfrecord", "train-00002.tfrecord"]
    one, two = (directory / name for name in names)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    return names


def _replace(directory, other, generator):
    name = _pick(generator)
    shutil.copy(other / name, directory / name)
    return [name]


def _replace_and_flip(directory, other, generator):
    name, frame = _pick(generator), _frame(directory)
    content = bytearray((other / name).read_bytes())
    content[frame + generator.randrange(frame)] ^= 0x10  # in record 1
    (directory / name).write_bytes(content)
    return [name]


def _flip_sums(directory, other, generator):
    return _flip(directory / CHECKSUMS_FILE, generator)


def _old_manifest(directory, other, generator):
    """Of a set of the same sizes, text and seed, or with other settings."""
    shutil.copy(other / MANIFEST, directory / MANIFEST)
    return [MANIFEST]


def _old_manifest_and_sums(directory, other, generator):
    shutil.copy(other / CHECKSUMS_FILE, directory / CHECKSUMS_FILE)
    _old_manifest(directory, other, generator)
    return ["train-0000"]


def _change_a_field(directory, other, generator):
    path = directory / MANIFEST
    fields = json.loads(path.read_text(encoding="utf-8"))
    name = generator.choice(["seed", "tokens_per_target"])
    fields[name] += 1
    path.write_text(json.dumps(fields), encoding="utf-8")
    return [MANIFEST]


DAMAGE = {
    "a bit of a shard flipped": _flip_shard,
    "a bit of the manifest flipped": _flip_manifest,
    "a bit of the checksums flipped": _flip_sums,
    "a shard cut": _cut,
    "a shard cut between records": _cut_between_records,
    "the end of a shard zeroed": _zero_the_end,
    "a shard lost": _lose,
    "a record lost": _lose_a_record,
    "a record doubled": _double_a_record,
    "a shard doubled": _double,
    "two shards swapped": _swap,
    "a shard of another set": _replace,
    "a shard of another set, flipped": _replace_and_flip,
    "the manifest of another set": _old_manifest,
    "manifest and checksums of another set": _old_manifest_and_sums,
    "a field of the manifest changed": _change_a_field,
}
