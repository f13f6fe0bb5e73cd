"""Saves that fail in the middle, as on a full disk.

A limit on the size of files stands for the disk, which no test can fill without
the rights of root. `full_disks` of `make torture` fills one.
"""

import contextlib
import errno
import gc
import resource
import sys

import pytest
from keras.src.saving import saving_lib

from data_pipeline.base.directories import written_directory
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import written_whole
from xlnet_tf import XLNetTextClassifier


@contextlib.contextmanager
def largest_file(size):
    """Context in which no file gets more bytes than `size`."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def swallowed(monkeypatch):
    """Messages of the exceptions that destructors raise, list."""
    messages = []
    monkeypatch.setattr(sys, "unraisablehook", messages.append)
    return messages


SAVES = {
    "preset": lambda model, path: model.save_to_preset(path),
    "half a preset": lambda model, path: model.save_to_preset(
        path, dtype="float16"
    ),
    "adapters.lora.h5": lambda model, path: model.save_lora_weights(path),
    "model.weights.h5": lambda model, path: model.save_weights(path),
    "model.keras": lambda model, path: model.save(path),
}


@pytest.fixture(scope="module")
def adapted(models):
    """A task with adapters, and files of more than 50 KB."""
    model = models(
        XLNetTextClassifier, {"vocabulary_size": 1000}, num_classes=4
    ).without_lora()
    model.enable_lora(32)
    return model


@pytest.mark.parametrize(
    "name, is_memory_short",
    [*((name, False) for name in SAVES), ("model.keras", True)],
)
def test_a_failed_save_leaves_what_was_there(
    name, is_memory_short, adapted, tmp_path, monkeypatch, swallowed
):
    """HDF5 wrote on in its destructors, until the process crashed."""
    monkeypatch.setattr(
        saving_lib, "is_memory_sufficient", lambda model: not is_memory_short
    )
    path = tmp_path / name
    for size in (0, 4000, 40000):
        with largest_file(size), pytest.raises(OSError) as caught:
            SAVES[name](adapted, path)
        assert caught.value.errno == errno.EFBIG
        assert str(caught.value.filename).startswith(str(path))
        assert not list(tmp_path.iterdir())
        del caught
        gc.collect()
    SAVES[name](adapted, path)
    content = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    with largest_file(20000), pytest.raises(OSError):
        SAVES[name](adapted, path)
    gc.collect()
    now = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    assert now == content
    assert not swallowed


def test_errors_of_libraries_about_a_full_disk_name_the_file(tmp_path):
    """Those of safetensors and TensorFlow are no OSError and name none."""
    file = tmp_path / "a"
    for number in (errno.ENOSPC, errno.EDQUOT):
        reason = {
            errno.ENOSPC: "No space left on device",
            errno.EDQUOT: "Disk quota exceeded",
        }[number]
        with pytest.raises(OSError, match=f"No space left.*{file}") as caught:
            with written_whole(file) as temporary:
                raise RuntimeError(f"{temporary}; {reason} (os error 28)")
        assert caught.value.errno == errno.ENOSPC
    with pytest.raises(RuntimeError, match="another"), written_whole(file):
        raise RuntimeError("another")
    # A file below a directory keeps its name there.
    for target in (file, tmp_path):  # the second cannot be renamed
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(OSError) as caught:
            with written_directory(target, lambda name: False) as new:
                new.mkdir(exist_ok=True)
                raise OSError(errno.ENOSPC, "full", str(new / "inner"))
        assert caught.value.filename == str(target / "inner")
    with pytest.raises(OSError) as caught:
        with written_directory(tmp_path, lambda name: False) as new:
            write_bytes(new / "inner", b"x" * 10000)
            with largest_file(100):
                write_bytes(new / "other", b"x" * 10000)
    assert caught.value.filename == str(tmp_path / "other")
    assert [x.name for x in tmp_path.iterdir()] == ["folder"]


def test_a_link_leads_to_the_file_that_is_saved(adapted, tmp_path):
    for name in ("model.keras", "model.weights.h5"):
        file, link = tmp_path / f"other-{name}", tmp_path / name
        link.symlink_to(file)
        SAVES[name](adapted, link)
        assert link.is_symlink() and file.stat().st_size > 40000
