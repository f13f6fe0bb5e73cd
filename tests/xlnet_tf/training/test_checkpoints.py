"""Checkpoints with memory: intervals, damage, other numbers of replicas.

That a resumed run equals an uninterrupted one is in `test_pretraining.py`.
"""

import errno
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.checkpoints import TinyRun
from tests.support.equality import assert_equal
from tests.support.record_fixtures import flip_byte
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import one_device
from xlnet_tf.training import checkpoints
from xlnet_tf.training.checkpoints import has_steps
from xlnet_tf.training.checkpoints import remove_leftovers


def test_memory_moves_to_another_number_of_replicas(tmp_path):
    two = TinyRun(tmp_path, two_replicas())
    for replica, value in enumerate(
        two.strategy.experimental_local_results(two.memory.memories[0].value)
    ):
        noise = np.random.RandomState(replica).randn(*value.shape)
        value.assign(noise.astype("float32"))
    two.pretend(2).checkpoints.save()
    one = TinyRun(tmp_path, one_device())
    one.restore()
    rows = np.concatenate(
        [
            value.numpy()
            for value in two.strategy.experimental_local_results(
                two.memory.memories[0].value
            )
        ]
    )
    assert np.abs(rows).max() > 0
    np.testing.assert_array_equal(one.memory.memories[0].value.numpy(), rows)


def test_no_checkpoint_means_a_fresh_start(tmp_path):
    assert TinyRun(tmp_path / "new").restore() is None


def test_saves_at_the_interval_once_a_step_and_keeps_the_newest(tmp_path):
    process = TinyRun(tmp_path, interval=2, keep=2)
    saved = []
    for _ in range(7):
        process.pretend(1)
        saved.append(process.checkpoints.save_if_due())
    assert saved == [False, True, False, True, False, True, False]
    assert process.checkpoints.save()
    assert process.checkpoints.save() is False
    left = sorted(path.name for path in tmp_path.glob("ckpt-*.index"))
    assert left == ["ckpt-6.index", "ckpt-7.index"]
    memories = sorted(path.name for path in tmp_path.glob("memory-*"))
    assert memories == ["memory-6-rows-0-4.npz", "memory-7-rows-0-4.npz"]
    for step in (6, 7):
        digests = tmp_path / f"ckpt-{step}.sha256"
        names = [x.split("  ")[1] for x in digests.read_text().splitlines()]
        assert names == [
            f"ckpt-{step}.data-00000-of-00001",
            f"ckpt-{step}.index",
            f"memory-{step}-rows-0-4.npz",
        ]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == str(tmp_path / "ckpt-7")
    assert len(state.all_model_checkpoint_paths) == 2


def test_a_checkpoint_is_due_when_the_newest_is_old(tmp_path, monkeypatch):
    """Where another worker finds it old, too: they save together."""
    clock = [1000.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    process = TinyRun(tmp_path, interval=100, seconds=60)
    saved = []
    for seconds in (59, 1, 59, 0.5, 0.5, 60):
        clock[0] += seconds
        process.pretend(1)
        saved.append(process.checkpoints.save_if_due())
    assert saved == [False, True, False, False, True, True]
    assert process.checkpoints.save_if_due() is False  # of the same step
    process.pretend(1)
    asked = []
    monkeypatch.setattr(
        checkpoints,
        "holds_anywhere",
        lambda strategy, condition: asked.append(condition) or True,
    )
    assert process.checkpoints.save_if_due()
    assert asked == [False]


def test_workers_wait_for_all_memory_before_the_index(tmp_path, monkeypatch):
    """If one is lost in a save, none restores that step."""
    process, seen = TinyRun(tmp_path).pretend(2), []

    def wait(strategy):
        seen.append(
            {path.name.partition("-")[0] for path in tmp_path.iterdir()}
        )

    monkeypatch.setattr(checkpoints, "wait_for_peers", wait)
    process.checkpoints.save()
    assert seen == [set(), {"memory"}, {"memory", "ckpt"}]


def test_the_device_that_writes_and_reads_is_chosen(tmp_path, monkeypatch):
    process = TinyRun(tmp_path).pretend(2)
    process.checkpoints.save()
    elsewhere = tf.train.CheckpointOptions(experimental_io_device="/job:else")
    monkeypatch.setattr(
        checkpoints, "checkpoint_options", lambda strategy: elsewhere
    )
    other = process.checkpoints_of(tmp_path)
    with pytest.raises(RuntimeError, match="none can be restored.*/job:else"):
        other.restore()
    with pytest.raises(tf.errors.InvalidArgumentError, match="/job:else"):
        other.save()


def test_checkpoints_in_a_bucket(bucket):
    """Written, found, deleted and restored, without a local file."""
    directory = f"{bucket}/run/checkpoints"
    process = TinyRun(directory, keep=2)
    assert process.restore() is None
    for variable in process.memory.memories:
        variable.assign(tf.fill(variable.shape, 0.5))
    for _ in range(3):
        process.pretend(2).checkpoints.save_if_due()
    names = set(tf.io.gfile.listdir(directory))
    assert names == {
        "checkpoint",
        *(f"ckpt-{x}.sha256" for x in (4, 6)),
        *(f"ckpt-{x}.index" for x in (4, 6)),
        *(f"ckpt-{x}.data-00000-of-00001" for x in (4, 6)),
        *(f"memory-{x}-rows-0-4.npz" for x in (4, 6)),
    }
    again = TinyRun(directory)
    assert again.restore() == f"{directory}/ckpt-6"
    assert int(again.step) == 6
    assert_equal(process.model.weights, again.model.weights)
    assert_equal(process.memory.memories, again.memory.memories)


def _flip(file):
    flip_byte(file, file.stat().st_size // 2)


def _cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _remove(file):
    file.unlink()


def _empty(file):
    file.write_bytes(b"")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    process = TinyRun(directory)
    for _ in range(2):
        process.pretend(2).checkpoints.save_if_due()
    return directory


def test_a_damaged_newest_falls_back_to_the_one_before(saved, tmp_path):
    """With digests, and without any, where a kill came before them."""
    run = TinyRun(saved)
    data, index = "ckpt-4.data-00000-of-00001", "ckpt-4.index"
    memory, digests = "memory-4-rows-0-4.npz", "ckpt-4.sha256"
    for number, (name, damage, is_bare) in enumerate(
        (
            (data, _flip, False),
            (data, _cut, False),
            (data, _remove, False),
            (data, _cut, True),
            (data, _remove, True),
            (index, _cut, False),
            (index, _empty, False),
            (index, _remove, False),
            (index, _cut, True),
            (index, _remove, True),
            (memory, _flip, False),
            (memory, _cut, False),
            (memory, _remove, False),
            (memory, _flip, True),
            (memory, _empty, True),
            (memory, _remove, True),
            (digests, _flip, False),
            (digests, _cut, False),
            (digests, _empty, False),
        )
    ):
        copy = shutil.copytree(saved, tmp_path / str(number))
        for file in copy.glob("*.sha256") if is_bare else ():
            file.unlink()
        damage(copy / name)
        run.step.assign(0)
        checkpoints = run.checkpoints_of(copy)
        found = checkpoints.restore()
        assert found.endswith("ckpt-2"), (name, damage, is_bare)
        assert int(run.step) == 2
        assert "ckpt-4" in checkpoints.skipped[0]


def test_a_checkpoint_that_lost_all_its_files_is_named(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    for file in [*copy.glob("ckpt-4*"), *copy.glob("memory-4*")]:
        file.unlink()
    run = TinyRun(copy)
    assert run.restore().endswith("ckpt-2")
    assert "ckpt-4.index is missing" in run.checkpoints.skipped[0]
    for file in [*copy.glob("ckpt-2*"), *copy.glob("memory-2*")]:
        file.unlink()
    assert has_steps(copy)
    with pytest.raises(RuntimeError, match="nothing was started over them"):
        run.checkpoints_of(copy).restore()


def test_an_error_of_the_machine_is_not_taken_for_damage(
    saved, tmp_path, monkeypatch
):
    run = TinyRun(saved)

    def fail(error):
        def failing(*arguments, **named):
            raise error

        return failing

    for error in (
        OSError(errno.EIO, "Input/output error", "ckpt-4.index"),
        PermissionError(errno.EACCES, "Permission denied", "ckpt-4.index"),
        MemoryError(),
        tf.errors.ResourceExhaustedError(None, None, "out of memory"),
        tf.errors.UnavailableError(None, None, "the bucket is away"),
        tf.errors.UnknownError(None, None, "Input/output error"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "verify_checksums", fail(error))
            with pytest.raises(type(error)):
                run.checkpoints_of(saved).restore()


def test_files_of_another_save_are_not_mixed(saved, tmp_path):
    """A memory or an index that is whole, and not of this checkpoint."""
    process = TinyRun(saved)
    for name in ("memory-{}-rows-0-4.npz", "ckpt-{}.index"):
        copy = shutil.copytree(saved, tmp_path / name)
        file = copy / name.format(4)
        if name.startswith("memory"):
            arrays = {k: v + 1 for k, v in np.load(file).items()}
            np.savez(file, **arrays)
        else:
            shutil.copy(copy / name.format(2), file)
        checkpoints = process.checkpoints_of(copy)
        assert checkpoints.restore().endswith("ckpt-2"), name
        assert "SHA-256" in checkpoints.skipped[0]


def test_the_state_file_is_not_trusted(saved, tmp_path):
    """Neither to find the newest checkpoint nor to remove old ones."""
    run = TinyRun(saved)

    def garble(file):
        file.write_bytes(b"\xff\xfe all_model_checkpoint_paths {")

    for number, damage in enumerate((_flip, _cut, _remove, _empty, garble)):
        copy = shutil.copytree(saved, tmp_path / str(number))
        damage(copy / "checkpoint")
        checkpoints = run.checkpoints_of(copy, keep=2)
        assert checkpoints.restore().endswith("ckpt-4")
        run.pretend(2)
        checkpoints.save_if_due()
        names = sorted(x.name for x in copy.glob("ckpt-*.index"))
        assert names == ["ckpt-4.index", "ckpt-6.index"]
        assert tf.train.latest_checkpoint(str(copy)).endswith("ckpt-6")


def test_files_with_names_like_ours(saved, tmp_path):
    """They are left alone, and end neither a save nor a restart."""
    copy = shutil.copytree(saved, tmp_path / "copy")
    foreign = ("ckpt-best.index", "ckpt-04.index", "memory-x-rows-0-4.npz")
    for name in (*foreign, "ckpt-6.index", "memory-6-rows-0-4.npz"):
        if "6" in name:
            (copy / name).mkdir()
        (copy / name / "kept" if "6" in name else copy / name).touch()
    run = TinyRun(copy, keep=1)
    remove_leftovers(copy)
    assert run.restore().endswith("ckpt-4")
    run.pretend(2).checkpoints.save_if_due()
    assert TinyRun(copy).restore().endswith("ckpt-6")
    names = {x.name for x in copy.iterdir()}
    assert names >= set(foreign)
    assert len(list(copy.glob("*/kept"))) == 2


def test_a_damaged_newer_one_takes_no_place(saved, tmp_path):
    """Of two that are kept, neither is the damaged one."""
    copy = shutil.copytree(saved, tmp_path / "copy")
    _cut(copy / "ckpt-4.data-00000-of-00001")
    run = TinyRun(copy, interval=1, keep=2)
    assert run.restore().endswith("ckpt-2")
    run.pretend(1).checkpoints.save_if_due()
    names = {x.name for x in copy.glob("ckpt-*.index")}
    assert names == {f"ckpt-{x}.index" for x in (2, 3, 4)}
    run.pretend(2).checkpoints.save_if_due()
    names = {x.name for x in copy.glob("ckpt-*.index")}
    assert names == {f"ckpt-{x}.index" for x in (3, 5)}


def test_leftovers_of_kills_are_removed(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    (copy / "ckpt-6_temp").mkdir()
    for name in (
        "ckpt-6_temp/part-00000-of-00001.data-00000-of-00001",
        "ckpt-6.data-00000-of-00001",
        "ckpt-6.index.tempstate123",
        "memory-6-rows-0-4.npz",
        "memory-0-rows-0-4.npz",
        "checkpoint.tmp01234",
        ".tmp-0123-memory-6-rows-0-4.npz",
    ):
        (copy / name).touch()
    remove_leftovers(copy)
    names = [sorted(x.name for x in y.iterdir()) for y in (saved, copy)]
    assert names[0] == names[1]
    remove_leftovers(tmp_path / "none")


def test_refuses_a_fresh_start_over_damaged_checkpoints(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    for file in copy.glob("*.data-*"):
        _cut(file)
    with pytest.raises(RuntimeError, match="none can be restored"):
        TinyRun(copy).restore()


def test_a_failed_write_leaves_no_memory_file(tmp_path, monkeypatch):
    process = TinyRun(tmp_path).pretend(1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        process.checkpoints.save()
    assert list(tmp_path.glob("memory-*")) == []
    assert list(tmp_path.iterdir()) == []
