"""Checkpoints with memory: intervals, damage, other numbers of replicas.

That a resumed run equals an uninterrupted one is in `test_pretraining.py`.
"""

import shutil

import numpy as np
import orbit
import pytest
import tensorflow as tf

from tests.support.replicas import two_replicas
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.runs import checkpoints
from xlnet_tf.training.runs.checkpoints import MemoryRows
from xlnet_tf.training.runs.checkpoints import RunCheckpoints


def one_device():
    return tf.distribute.OneDeviceStrategy("CPU:0")


class Process:
    """What one process of a run holds; a new one stands for a restart."""

    def __init__(self, directory, strategy=None, interval=2, keep=3):
        self.strategy = strategy or one_device()
        self.training = TrainingConfig(
            steps=20, warmup_steps=2, batch_size=4, learning_rate=1e-2
        )
        config = tiny_config(num_layers=1, dropout=0.2, attention_dropout=0.1)
        self.model, self.optimizer, self.memory = pretraining_step.build(
            config, self.training, self.strategy
        )
        self.step = orbit.utils.create_global_step()
        self.checkpoints = self.checkpoints_of(directory, interval, keep)

    def checkpoints_of(self, directory, interval=2, keep=3):
        return RunCheckpoints(
            tf.train.Checkpoint(
                model=self.model, optimizer=self.optimizer, step=self.step
            ),
            directory,
            MemoryRows(self.memory, self.strategy, directory),
            self.strategy,
            interval,
            keep,
            is_chief=True,
        )

    def restore(self):
        return self.checkpoints.restore_or_initialize()

    def pretend(self, steps):
        """Counts steps without making them, which costs nothing."""
        self.step.assign_add(steps)
        return self


def test_memory_moves_to_another_number_of_replicas(tmp_path):
    two = Process(tmp_path, two_replicas())
    for replica, value in enumerate(
        two.strategy.experimental_local_results(two.memory.memories[0].value)
    ):
        noise = np.random.RandomState(replica).randn(*value.shape)
        value.assign(noise.astype("float32"))
    two.pretend(2).checkpoints.save(check_interval=False)
    one = Process(tmp_path, one_device())
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
    assert Process(tmp_path / "new").restore() is None


def test_saves_at_the_interval_once_a_step_and_keeps_the_newest(tmp_path):
    process = Process(tmp_path, interval=2, keep=2)
    saved = []
    for _ in range(7):
        process.pretend(1)
        saved.append(process.checkpoints.save() is not None)
    assert saved == [False, True, False, True, False, True, False]
    assert process.checkpoints.save(check_interval=False)
    assert process.checkpoints.save(check_interval=False) is None
    left = sorted(path.name for path in tmp_path.glob("ckpt-*.index"))
    assert left == ["ckpt-6.index", "ckpt-7.index"]
    memories = sorted(path.name for path in tmp_path.glob("memory-*"))
    assert memories == ["memory-6-rows-0-4.npz", "memory-7-rows-0-4.npz"]
    digests = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert sorted(x.split("  ")[1] for x in digests) == [*left, *memories]


def test_the_device_that_writes_and_reads_is_chosen(tmp_path, monkeypatch):
    process = Process(tmp_path).pretend(2)
    process.checkpoints.save(check_interval=False)
    elsewhere = tf.train.CheckpointOptions(experimental_io_device="/job:else")
    monkeypatch.setattr(
        checkpoints, "checkpoint_options", lambda strategy: elsewhere
    )
    other = process.checkpoints_of(tmp_path)
    with pytest.raises(RuntimeError, match="none can be restored.*/job:else"):
        other.restore_or_initialize()
    with pytest.raises(tf.errors.InvalidArgumentError, match="/job:else"):
        other.save(check_interval=False)


def test_checkpoints_in_a_bucket(bucket):
    """Written, found, deleted and restored, without a local file."""
    directory = f"{bucket}/run/checkpoints"
    process = Process(directory, keep=2)
    assert process.restore() is None
    for variable in process.memory.memories:
        variable.assign(tf.fill(variable.shape, 0.5))
    for _ in range(3):
        process.pretend(2).checkpoints.save()
    names = set(tf.io.gfile.listdir(directory))
    assert names == {
        "SHA256SUMS",
        "checkpoint",
        *(f"ckpt-{x}.index" for x in (4, 6)),
        *(f"ckpt-{x}.data-00000-of-00001" for x in (4, 6)),
        *(f"memory-{x}-rows-0-4.npz" for x in (4, 6)),
    }
    again = Process(directory)
    assert again.restore() == f"{directory}/ckpt-6"
    assert int(again.step) == 6
    for one, other in zip(
        [*process.model.weights, *process.memory.memories],
        [*again.model.weights, *again.memory.memories],
        strict=True,
    ):
        np.testing.assert_array_equal(one.value.numpy(), other.value.numpy())


def _flip(file, place=0.5):
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 0x40
    file.write_bytes(bytes(data))


def _cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _remove(file):
    file.unlink()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    process = Process(directory)
    for _ in range(2):
        process.pretend(2).checkpoints.save()
    return directory


def test_a_damaged_newest_falls_back_to_the_one_before(saved, tmp_path):
    process = Process(saved)
    data = "ckpt-4.data-00000-of-00001"
    memory = "memory-4-rows-0-4.npz"
    for number, (name, damage) in enumerate(
        (
            (data, _flip),
            (data, _cut),
            (data, _remove),
            ("ckpt-4.index", _cut),
            (memory, _flip),
            (memory, _cut),
            (memory, _remove),
        )
    ):
        copy = shutil.copytree(saved, tmp_path / str(number))
        damage(copy / name)
        process.step.assign(0)
        checkpoints = process.checkpoints_of(copy)
        assert checkpoints.restore_or_initialize().endswith("ckpt-2"), name
        assert int(process.step) == 2
        assert "ckpt-4" in checkpoints.skipped[0]


def test_files_of_another_save_are_not_mixed(saved, tmp_path):
    """A memory or an index that is whole, and not of this checkpoint."""
    process = Process(saved)
    for name in ("memory-{}-rows-0-4.npz", "ckpt-{}.index"):
        copy = shutil.copytree(saved, tmp_path / name)
        file = copy / name.format(4)
        if name.startswith("memory"):
            arrays = {k: v + 1 for k, v in np.load(file).items()}
            np.savez(file, **arrays)
        else:
            shutil.copy(copy / name.format(2), file)
        checkpoints = process.checkpoints_of(copy)
        assert checkpoints.restore_or_initialize().endswith("ckpt-2"), name
        assert "SHA-256" in checkpoints.skipped[0]
    (copy / "SHA256SUMS").unlink()  # as in a run of an earlier version
    assert process.checkpoints_of(saved).restore_or_initialize()


def test_the_state_file_is_not_trusted(saved, tmp_path):
    process = Process(saved)
    for number, damage in enumerate((_flip, _cut, _remove)):
        copy = shutil.copytree(saved, tmp_path / str(number))
        damage(copy / "checkpoint")
        found = process.checkpoints_of(copy).restore_or_initialize()
        assert found.endswith("ckpt-4")


def test_refuses_a_fresh_start_over_damaged_checkpoints(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    for file in copy.glob("*.data-*"):
        _cut(file)
    with pytest.raises(RuntimeError, match="none can be restored"):
        Process(copy).restore()


def test_a_failed_write_leaves_no_memory_file(tmp_path, monkeypatch):
    process = Process(tmp_path).pretend(1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        process.checkpoints.save(check_interval=False)
    assert list(tmp_path.glob("memory-*")) == []
    assert list(tmp_path.iterdir()) == []
