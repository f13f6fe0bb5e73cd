"""Batches for pretraining: contents, order, any start, any split of rows."""

import itertools
import os
import pathlib
import resource
import shutil
import socket

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline import pretraining
from data_pipeline.base import files
from data_pipeline.objectives import permutation
from data_pipeline.objectives.released import parse_released
from data_pipeline.objectives.released import released_batch
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import reading
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.reading import parse_records
from data_pipeline.records.schema import BATCH
from data_pipeline.records.schema import RecordSettings
from tests.support.equality import assert_equal
from tests.support.record_fixtures import RECORDS
from tests.support.record_fixtures import REUSE
from tests.support.record_fixtures import TARGETS
from tests.support.record_fixtures import TOKENS
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import join
from tests.support.record_fixtures import numbers
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set
from tests.support.run_fixtures import write_records


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records") / "set"
    return directory, write_set(directory, validation=6)


def test_contract(made):
    for literal, replica_batch in itertools.product((False, True), (3, 6)):
        dataset = PretrainingData(made[0], 6).dataset(
            literal=literal, replica_batch=replica_batch
        )
        sizes = {"B": replica_batch, "T": TOKENS, "P": TARGETS}
        expected = {
            name: tf.TensorSpec(
                [sizes[letter] for letter in feature.shape], feature.dtype
            )
            for name, feature in BATCH.items()
        }
        if literal:
            del expected["factorization_rank"], expected["target_positions"]
            for name, row in (("perm_mask", "T"), ("target_mapping", "P")):
                shape = [replica_batch, sizes[row], TOKENS]
                expected[name] = tf.TensorSpec(shape, tf.float32)
        assert dataset.element_spec == expected
        # Else iterators sleep at their end.
        assert dataset.options().autotune.enabled is False


def test_values_are_the_stored_ones(made):
    _, values = made
    data = PretrainingData(made[0], 4)
    assert (data.num_records, data.steps_per_epoch) == (RECORDS, 9)
    for step, batch in enumerate(take(data, 9)):
        rows = np.arange(4) * 9 + step
        for name in ("token_ids", "segment_ids"):
            np.testing.assert_array_equal(batch[name], values[name][rows])
        for name in ("is_reversed", "is_next"):
            np.testing.assert_array_equal(batch[name], values[name][rows, 0])
        for i, row in enumerate(rows):
            tokens = values["token_ids"][row]
            real = values["is_target"][row] & (tokens != 3) & (tokens != 4)
            expected = np.flatnonzero(real)
            count = len(expected)
            assert batch["target_weights"][i].sum() == count
            assert batch["target_positions"][i, :count].tolist() == (
                expected.tolist()
            )
            assert batch["target_ids"][i, :count].tolist() == (
                tokens[expected].tolist()
            )
            assert not batch["target_ids"][i, count:].any()


def test_order_of_records(made):
    """The formula in the docstring of PretrainingData."""
    data = PretrainingData(made[0], 4)
    batches = take(data, 3 * 9)
    offsets = [numbers(batch)[0] for batch in batches[::9]]
    # A record is left over in each epoch, not always the same.
    assert offsets[0] == 0 and len(set(offsets)) == 3
    for index, batch in enumerate(batches):
        epoch, step = divmod(index, 9)
        expected = (offsets[epoch] + np.arange(4) * 9 + step) % RECORDS
        assert numbers(batch) == expected.tolist()
    shard_starts = {0, 13, 21}
    seen = set()
    for step, batch in enumerate(batches):
        for number, continues in zip(
            numbers(batch), batch["is_continuation"], strict=True
        ):
            starts = step % 9 == 0 or number in shard_starts
            assert continues == (not starts)
            seen.add(number)
    assert shard_starts <= seen


def test_where_the_records_of_a_step_are_stored(made, tmp_path):
    """Their numbers in the files, of those that are left out too."""
    whole = PretrainingData(made[0], 4)
    begins = {"train-00000": 0, "train-00001": 13, "train-00002": 21}
    copy = shutil.copytree(made[0], tmp_path / "copy")
    shard = copy / "train-00001.tfrecord"
    flip_byte(shard, 3 * whole.manifest.frame_bytes + 20)
    damaged = PretrainingData(copy, 4, skip_corrupt=True)
    assert damaged.num_records == RECORDS - 1
    for data in (whole, damaged):
        for step, batch in enumerate(take(data, 3 * data.steps_per_epoch)):
            found = [
                begins[pathlib.Path(file).stem] + record
                for file, record in data.sources(step)
            ]
            assert found == numbers(batch)


def test_start_step_is_skipping(made):
    data = PretrainingData(made[0], 4)
    batches = take(data, 29)
    for start in (1, 8, 9, 25):
        started = take(data, 4, start_step=start)
        assert_equal(started, batches[start : start + 4])


def test_any_split_of_rows_is_the_same(made):
    data = PretrainingData(made[0], 6, seed=4)
    expected = take(data, 8, start_step=3, num_parallel_calls=1)
    for workers, replica_batch, calls in (
        (1, 2, 9),
        (2, 3, 1),
        (3, 2, tf.data.AUTOTUNE),
    ):
        rows = 6 // workers
        parts = rows // replica_batch
        read = [
            take(
                data,
                8 * parts,
                start_step=3,
                first_row=worker * rows,
                num_rows=rows,
                replica_batch=replica_batch,
                num_parallel_calls=calls,
            )
            for worker in range(workers)
        ]
        joined = [
            join([e for w in read for e in w[i * parts : (i + 1) * parts]])
            for i in range(8)
        ]
        assert_equal(joined, expected)


def test_epochs_permute_anew(tmp_path):
    write_set(tmp_path, (24,))
    data = PretrainingData(tmp_path, 4)
    epochs = [join(take(data, 6, start_step=6 * e)) for e in range(3)]
    ranks = []
    for epoch in epochs:
        order = np.argsort(epoch["token_ids"][:, 0])
        assert (epoch["token_ids"][order, 0] - 9).tolist() == list(range(24))
        ranks.append(epoch["factorization_rank"][order])
    # A few records have so few targets that an order is drawn twice.
    assert (ranks[0] != ranks[1]).any(1).mean() > 0.8
    assert (ranks[1] != ranks[2]).any(1).mean() > 0.8


def test_seed_changes_permutations_only(made):
    first = take(PretrainingData(made[0], 4, seed=0), 3)
    other = take(PretrainingData(made[0], 4, seed=1), 3)
    for one, two in zip(first, other, strict=True):
        changed = {n for n in one if (one[n] != two[n]).any()}
        assert changed == {"factorization_rank"}


def test_permutation_does_not_depend_on_the_batch(made):
    by_four = join(take(PretrainingData(made[0], 4), 9))
    by_one = join(take(PretrainingData(made[0], 1), 36))
    order = np.argsort(by_four["token_ids"][:, 0])
    np.testing.assert_array_equal(
        by_four["factorization_rank"][order], by_one["factorization_rank"]
    )
    # The index of a record counts through all shards.
    np.testing.assert_array_equal(
        by_one["factorization_rank"],
        permutation.draw_ranks(
            0,
            np.zeros(36, int),
            np.arange(36),
            by_one["token_ids"],
            made[1]["is_target"][:36],
            REUSE,
            REUSE,
        ),
    )


def test_literal_is_the_compact_spelt_out(made):
    data = PretrainingData(made[0], 4)
    for compact, literal in zip(
        take(data, 3), take(data, 3, literal=True), strict=True
    ):
        rank = compact["factorization_rank"]
        mapping = literal["target_mapping"]
        is_target = mapping.sum(1).astype(bool)
        highest = np.where(is_target, rank - 1, rank)
        np.testing.assert_array_equal(
            literal["perm_mask"], rank[:, None] > highest[:, :, None]
        )
        expected = np.eye(TOKENS)[compact["target_positions"]]
        expected *= compact["target_weights"][:, :, None]
        np.testing.assert_array_equal(mapping, expected)
        # Both give the same under the released names.
        assert_equal([released_batch(compact)], [released_batch(literal)])
        released = released_batch(literal)
        assert {name: value.shape for name, value in released.items()} == {
            **dict.fromkeys(("input_k", "seg_id", "input_q"), (4, TOKENS)),
            "perm_mask": (4, TOKENS, TOKENS),
            "target_mapping": (4, TARGETS, TOKENS),
            **dict.fromkeys(("target", "target_mask"), (4, TARGETS)),
        }
        np.testing.assert_array_equal(released["input_q"], is_target)
        np.testing.assert_array_equal(
            released["target_mask"], compact["target_weights"]
        )


def test_frozen_gives_what_is_stored(tmp_path):
    values = write_set(tmp_path, form="frozen")
    data = PretrainingData(tmp_path, 4)
    for literal in (False, True):
        for step, batch in enumerate(take(data, 9, literal=literal)):
            rows = np.arange(4) * 9 + step
            for name in ("perm_mask", "target_mapping"):
                assert batch[name].dtype == np.float32
                np.testing.assert_array_equal(batch[name], values[name][rows])
    later = join(take(data, 9, start_step=9))
    np.testing.assert_array_equal(
        later["perm_mask"], values["perm_mask"][numbers(later)]
    )


def test_validation_split(made):
    data = PretrainingData(made[0], 3, split="validation")
    assert data.steps_per_epoch == 2
    read = [n for batch in take(data, 2) for n in numbers(batch)]
    assert sorted(read) == list(range(37, 43))


def test_parse_eagerly_and_in_map(made):
    directory, values = made
    manifest = read_manifest(directory)
    path = str(directory / "train-00000.tfrecord")
    serialized = tf.data.TFRecordDataset(path).batch(13)
    eager = parse_records(next(iter(serialized)), manifest)
    mapped = next(iter(serialized.map(lambda s: parse_records(s, manifest))))
    assert_equal([eager], [mapped])
    np.testing.assert_array_equal(eager["token_ids"], values["token_ids"][:13])
    np.testing.assert_array_equal(eager["is_next"], values["is_next"][:13, 0])
    assert eager["is_next"].dtype == mapped["is_next"].dtype == tf.bool


def released_example(values, row):
    tokens = values["token_ids"][row]
    content = {
        "input": tokens,
        "is_masked": values["is_target"][row],
        "target": np.roll(tokens, -1),
        "seg_id": values["segment_ids"][row],
        "label": values["is_next"][row],
    }
    example = tf.train.Example()
    for name, value in content.items():
        feature = example.features.feature[name]
        feature.int64_list.value.extend(int(v) for v in value)
    return example.SerializeToString()


def test_released_records(made):
    directory, values = made
    path = str(directory / "train-00000.tfrecord")
    ours = parse_records(
        next(iter(tf.data.TFRecordDataset(path).batch(13))),
        read_manifest(directory),
    )
    serialized = tf.constant([released_example(values, i) for i in range(13)])
    eager = parse_released(serialized, TOKENS, ours["is_reversed"])
    mapped = next(
        iter(
            tf.data.Dataset.from_tensors(serialized).map(
                lambda s: parse_released(s, TOKENS)
            )
        )
    )
    assert eager.keys() == mapped.keys() == ours.keys()
    for name in ours:
        assert eager[name].dtype == mapped[name].dtype == ours[name].dtype
        np.testing.assert_array_equal(eager[name], ours[name])
    assert not mapped["is_reversed"].numpy().any()


def test_arguments_that_do_not_fit(made, tmp_path):
    write_set(tmp_path)
    for directory, batch_size, split, message in (
        (made[0], 0, "train", "`batch_size` must be .* split, 37"),
        (made[0], 38, "train", "`batch_size` must be .* split, 37"),
        (made[0], 1, "test", "`split` must be .* validation"),
        (tmp_path, 1, "validation", "`split` must be one .*: train"),
    ):
        with pytest.raises(ValueError, match=message):
            PretrainingData(directory, batch_size, split)
    data = PretrainingData(made[0], 4)
    for options, message in (
        ({"first_row": 3, "num_rows": 2}, "`first_row` and `num_rows` must"),
        ({"num_rows": 0}, "`first_row` and `num_rows` must"),
        ({"replica_batch": 3}, "`replica_batch` must divide"),
        ({"start_step": -1}, "`start_step` must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            data.dataset(**options)


def test_a_bert_reads_forward_alone(tmp_path):
    settings = RecordSettings(sequence_length=TOKENS, both_directions=True)
    directory = write_records(tmp_path, settings, num_sentences=60)
    PretrainingData(directory, 1, objective="masked")
    with pytest.raises(ValueError, match="half of the records .* backwards"):
        PretrainingData(directory, 1, objective="masked", layout="bert")


def test_batch_as_large_as_the_set(made):
    data = PretrainingData(made[0], RECORDS)
    assert data.steps_per_epoch == 1
    for batch in take(data, 3):
        assert sorted(numbers(batch)) == list(range(RECORDS))
        assert not batch["is_continuation"].any()


def test_large_batches_need_few_files_and_threads(tmp_path):
    """2,048 rows, and as many held out, where 1,024 files may be open."""
    write_set(tmp_path, (2000, 2100, 9), validation=2048)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        iterators = [
            iter(PretrainingData(tmp_path, 2048, split).dataset())
            for split in ("train", "validation")
        ]
        for _ in range(3):
            batches = [next(iterator) for iterator in iterators]
            assert len(os.listdir("/proc/self/fd")) < 200
            assert len(os.listdir("/proc/self/task")) < 500
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(len(batch["token_ids"]) == 2048 for batch in batches)


def test_blocks_of_any_size_give_the_same(made, monkeypatch):
    """However many steps are read ahead at a time."""
    data = PretrainingData(made[0], 4)
    expected = take(data, 12, start_step=5)
    for most in (1, 2, 4, 7):
        monkeypatch.setattr(pretraining, "_MOST_STEPS", most)
        assert_equal(take(data, 12, start_step=5), expected)


def test_records_of_another_working_directory(made, monkeypatch, tmp_path):
    """A tf.data service reads in its own; the path is sent as a whole."""
    monkeypatch.chdir(made[0].parent)
    data = PretrainingData(made[0].name, 4)
    monkeypatch.chdir(tmp_path)
    assert numbers(take(data, 1)[0]) == [0, 9, 18, 27]


def test_a_service_that_does_not_answer_is_said(made, monkeypatch):
    """TensorFlow would wait for it for ever."""
    with socket.socket() as other:  # bound, and so free for nobody else
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        monkeypatch.setattr(reading, "_SERVICE_SECONDS", 0.3)
        with pytest.raises(ConnectionError, match=f"answers at grpc.*:{port}"):
            PretrainingData(made[0], 4, service=f"grpc://127.0.0.1:{port}")
        other.listen()
        PretrainingData(made[0], 4, service=f"grpc://127.0.0.1:{port}")
    for address in ("127.0.0.1:5000", "grpc://host", "grpc://h:5/x", ""):
        with pytest.raises(ValueError, match="grpc://HOST:PORT. Received"):
            PretrainingData(made[0], 4, service=address)
    with pytest.raises(ConnectionError, match="answers at grpc://localhost:9"):
        PretrainingData(made[0], 4, service="grpc://localhost:99999")


def test_records_in_a_bucket(made, bucket):
    files.copy_tree(made[0], f"{bucket}/set")
    data = PretrainingData(f"{bucket}/set", 4)
    assert_equal(take(data, 10), take(PretrainingData(made[0], 4), 10))
    data.explain_data_loss()  # nothing to explain
    shard = files.as_path(f"{bucket}/set/train-00000.tfrecord")
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.unlink()  # the file system in memory would append
    shard.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="ram://.*00000.tfrecord: record 0 at"):
        data.explain_data_loss()
    data = PretrainingData(f"{bucket}/set", 4, skip_corrupt=True)
    assert data.num_records == RECORDS - 1
    take(data, 10)
    shard.unlink()
    with pytest.raises(
        FileNotFoundError, match="the manifest names this shard"
    ):
        PretrainingData(f"{bucket}/set", 4)
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        PretrainingData(f"{bucket}/other", 4)


def test_no_python_in_the_input_pipeline():
    for module in (pretraining, reading, permutation):
        text = pathlib.Path(module.__file__).read_text(encoding="utf-8")
        for forbidden in ("py_function", "numpy_function", "from_generator"):
            assert forbidden not in text
