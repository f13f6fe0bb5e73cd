"""A run that stops and goes on equals one that never stopped."""

import shutil

import numpy as np
import orbit
import pytest
import tensorflow as tf

from tests.support.replicas import two_replicas
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretraining_step as training_steps
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.run_checkpoints import MemoryRows
from xlnet_tf.training.run_checkpoints import RunCheckpoints


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
        self.model, self.optimizer, self.memory = training_steps.build(
            config, self.training, self.strategy
        )
        self.step = orbit.utils.create_global_step()
        self.checkpoints = RunCheckpoints(
            tf.train.Checkpoint(
                model=self.model, optimizer=self.optimizer, step=self.step
            ),
            directory,
            MemoryRows(self.memory, self.strategy, directory),
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

    def train(self, steps):
        trainer = training_steps.PretrainingTrainer(
            self.model,
            self.optimizer,
            self.memory,
            training_steps.distribute_records(
                ArrayData(), self.training, self.strategy, int(self.step)
            ),
            self.training,
            self.strategy,
            self.step,
        )
        trainer.train(tf.constant(steps))
        return self

    def arrays(self):
        variables = [*self.model.trainable_variables, *self.optimizer.variables]
        memories = [
            value
            for variable in self.memory.memories
            for value in self.strategy.experimental_local_results(
                variable.value
            )
        ]
        return [v.numpy() for v in (*variables, *memories)]


@pytest.mark.parametrize(
    "make_strategy",
    [one_device, pytest.param(two_replicas, marks=pytest.mark.slow)],
)
def test_resumed_equals_uninterrupted_to_the_bit(tmp_path, make_strategy):
    whole = Process(tmp_path, make_strategy()).train(3)
    assert whole.checkpoints.save(check_interval=False)
    whole.train(2)
    second = Process(tmp_path, make_strategy())
    assert second.restore().endswith("ckpt-3")
    assert int(second.step) == 3
    second.train(2)
    for one, other in zip(whole.arrays(), second.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)


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


def _flip(file, place=0.5):
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 0x40
    file.write_bytes(bytes(data))


def _cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    process = Process(directory)
    for _ in range(2):
        process.pretend(2).checkpoints.save()
    return directory


@pytest.fixture
def two_checkpoints(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ckpt-4.data-00000-of-00001", _flip),
        ("ckpt-4.data-00000-of-00001", _cut),
        ("ckpt-4.data-00000-of-00001", lambda file: file.unlink()),
        ("ckpt-4.index", _cut),
        ("memory-4-rows-0-4.npz", _flip),
        ("memory-4-rows-0-4.npz", _cut),
        ("memory-4-rows-0-4.npz", lambda file: file.unlink()),
    ],
)
def test_a_damaged_newest_falls_back_to_the_one_before(
    two_checkpoints, name, damage
):
    damage(two_checkpoints / name)
    process = Process(two_checkpoints)
    assert process.restore().endswith("ckpt-2")
    assert int(process.step) == 2
    assert "ckpt-4" in process.checkpoints.skipped[0]


@pytest.mark.parametrize("damage", [_flip, _cut, lambda file: file.unlink()])
def test_the_state_file_is_not_trusted(two_checkpoints, damage):
    damage(two_checkpoints / "checkpoint")
    process = Process(two_checkpoints)
    assert process.restore().endswith("ckpt-4")


def test_refuses_a_fresh_start_over_damaged_checkpoints(two_checkpoints):
    for file in two_checkpoints.glob("*.data-*"):
        _cut(file)
    with pytest.raises(RuntimeError, match="none can be restored"):
        Process(two_checkpoints).restore()


def test_a_failed_write_leaves_no_memory_file(tmp_path, monkeypatch):
    process = Process(tmp_path).pretend(1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        process.checkpoints.save(check_interval=False)
    assert list(tmp_path.glob("memory-*")) == []
    assert list(tmp_path.glob("*.temporary")) == []
    assert list(tmp_path.glob("ckpt-*")) == []
