"""Compiled steps on disk: whole, of this machine, and the same numbers."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records
from xlnet_tf.training import compilation_cache as module
from xlnet_tf.training.compilation_cache import compilation_cache

# Prints the sum of a compiled product; TensorFlow starts inside the context.
PROGRAM = """
import sys
from xlnet_tf.training.compilation_cache import compilation_cache
with compilation_cache(sys.argv[1]):
    import tensorflow as tf
    product = tf.function(lambda x: tf.reduce_sum(x @ x), jit_compile=True)
    print(float(product(tf.ones([8, 8]))))
"""


def run_program(directory):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def kept(directory):
    """The files of a cache, which has one machine."""
    (machine,) = directory.iterdir()
    return sorted(machine.iterdir())


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """dict of name to bytes, of a cache with one program, and its folder."""
    directory = tmp_path_factory.mktemp("cache")
    result = run_program(directory)
    assert result.stdout == "512.0\n", result.stderr
    (file,) = kept(directory)
    return file.parent.name, file.name, file.read_bytes()


@pytest.fixture
def directory(tmp_path, filled):
    """A cache with that program."""
    machine, name, data = filled
    (tmp_path / machine).mkdir()
    (tmp_path / machine / name).write_bytes(data)
    return tmp_path


def test_what_is_kept_is_used(directory, filled):
    machine, name, data = filled
    assert run_program(directory).stdout == "512.0\n"
    assert [file.name for file in kept(directory)] == [name]
    # A file that says it is whole and is not shows that it is read.
    (directory / machine / name).unlink()
    data = data[: len(data) // 2]
    digest = hashlib.sha256(data).hexdigest()
    stem = name.rsplit(".", 2)[0]
    (directory / machine / f"{stem}.{digest}.xla").write_bytes(data)
    result = run_program(directory)
    assert result.returncode != 0
    assert "Read less bytes than requested" in result.stderr


@pytest.mark.parametrize("damage", ("cut short", "other bytes", "empty"))
def test_damaged_files_are_replaced(directory, filled, damage):
    machine, name, data = filled
    file = directory / machine / name
    middle = len(data) // 2
    file.write_bytes(
        {
            "cut short": data[:middle],
            "other bytes": data[:middle] + b"\x55" * 400 + data[middle + 400 :],
            "empty": b"",
        }[damage]
    )
    result = run_program(directory)
    assert result.stdout == "512.0\n", result.stderr
    (file,) = kept(directory)
    assert hashlib.sha256(file.read_bytes()).hexdigest() in file.name


def test_a_file_that_goes_away_costs_nothing(directory, filled):
    machine, name, _ = filled
    file = directory / machine / name
    file.unlink()
    file.symlink_to(directory / "nowhere")  # it is listed, and not there
    assert run_program(directory).stdout == "512.0\n"


def test_other_files_are_left_alone(directory, filled):
    machine, name, _ = filled
    (directory / machine / "notes.txt").write_text("mine")
    (directory / machine / f".{name}.half").write_bytes(b"half")
    assert run_program(directory).stdout == "512.0\n"
    assert len(kept(directory)) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),
        ("cores", {0, 1, 2, 3, 4, 5, 6}),
        ("version", "1.2.3"),
        ("processor", "flags : none\n"),
    ],
)
def test_another_machine_has_another_folder(monkeypatch, tmp_path, name, value):
    here = module._machine()
    assert module._machine() == here
    if name == "XLA_FLAGS":
        monkeypatch.setenv(name, value)
    elif name == "cores":
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _: value, raising=False
        )
    elif name == "version":
        monkeypatch.setattr(
            module.importlib.metadata, "version", lambda _: value
        )
    else:
        (tmp_path / "cpuinfo").write_text(value)
        monkeypatch.setattr(module, "_PROCESSORS", tmp_path / "cpuinfo")
    assert module._machine() != here


def test_environment_is_as_before(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_min_cluster_size=3")
    with compilation_cache(tmp_path):
        first, second = os.environ["TF_XLA_FLAGS"].split()
        own = second.removeprefix("--tf_xla_persistent_cache_directory=")
        assert first == "--tf_xla_min_cluster_size=3"
        assert os.path.isdir(own) and own != str(tmp_path)
    assert os.environ["TF_XLA_FLAGS"] == "--tf_xla_min_cluster_size=3"
    assert not os.path.exists(own)
    monkeypatch.delenv("TF_XLA_FLAGS")
    with pytest.raises(KeyError), compilation_cache(tmp_path):
        raise KeyError
    assert "TF_XLA_FLAGS" not in os.environ


def test_without_a_directory_nothing_happens(monkeypatch):
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    with compilation_cache(None):
        assert "TF_XLA_FLAGS" not in os.environ


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match="must be a directory"),
        compilation_cache(tmp_path / "file"),
    ):
        pass


def test_a_full_disk_costs_only_what_was_compiled(
    tmp_path, monkeypatch, capsys
):
    def full(file, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_bytes", full)
    with compilation_cache(tmp_path):
        own = os.environ["TF_XLA_FLAGS"].rpartition("=")[2]
        with open(os.path.join(own, "program.pb"), "wb") as file:
            file.write(b"compiled")
    error = capsys.readouterr().err
    assert error.startswith("warning: what was compiled was not kept in ")
    assert "No space left" in error


def test_train_learns_the_same(tmp_path):
    """A run that compiles and one that finds all compiled, to the bit."""
    records = write_records(tmp_path / "data")
    configs = write_configs(tmp_path, jit_compile=True)
    logs, files = [], []
    for name in ("first", "second"):
        argv = arguments(
            records,
            tmp_path / name,
            *configs,
            *("--compilation-cache", tmp_path / "cache"),
        )
        subprocess.run(
            [sys.executable, "-m", "xlnet_tf.train", *argv],
            check=True,
            timeout=300,
        )
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        logs.append([json.loads(line) for line in lines])
        files.append([file.name for file in kept(tmp_path / "cache")])
    for log in logs:
        for line in log:
            line.pop("tokens_per_second", None)
            line.pop("rows_per_second", None)
    assert logs[0] == logs[1]
    # The gradient, and the update.
    assert len(files[0]) >= 2
    assert files[0] == files[1]
