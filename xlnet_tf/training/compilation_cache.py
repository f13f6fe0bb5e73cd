"""Compiled steps on disk, so that a run that starts again need not compile.

TensorFlow can keep what XLA compiled in a directory, but trusts what it finds
there: a file that was cut short ends the run, one that was damaged the process,
and so may one for a processor with other instructions. Here every process has
its own copy of those files that are whole and of this machine, and adds what is
new when it ends.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import sys
import tempfile

from xlnet_tf.files import write_bytes

_FLAGS = "TF_XLA_FLAGS"
_PROCESSORS = pathlib.Path("/proc/cpuinfo")
# A file says itself whether it is whole: its name ends with its SHA-256.
_KEPT = re.compile(r"(.+)\.([0-9a-f]{64})\.xla")


@contextlib.contextmanager
def compilation_cache(directory):
    """A context in which compiled functions are read from and added to disk.

    Enter it before TensorFlow does anything: it reads the flag once. Programs
    of a TPU are not kept.

    Args:
        directory: path, made if it is not there, or None for nothing at all.
            Several processes may share it.

    Raises:
        ValueError: if the directory cannot be one.
    """
    if directory is None:
        yield
        return
    directory = pathlib.Path(directory)
    if directory.exists() and not directory.is_dir():
        raise ValueError(
            f"{directory} is a file; the compilation cache must be a directory."
        )
    directory = directory / _machine()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xlnet_tf-compiled-") as name:
        mine = pathlib.Path(name)
        known = _fetch(directory, mine)
        flags = os.environ.get(_FLAGS)
        os.environ[_FLAGS] = " ".join(
            [
                *([flags] if flags else []),
                f"--tf_xla_persistent_cache_directory={mine}",
            ]
        )
        try:
            yield
        finally:
            if flags is None:
                del os.environ[_FLAGS]
            else:
                os.environ[_FLAGS] = flags
            _add(mine, directory, known)


def _machine():
    """A name for all that a compiled program depends on beside itself."""
    processor = platform.processor()
    with contextlib.suppress(OSError):
        lines = _PROCESSORS.read_text(encoding="utf-8").splitlines()
        # Lines of one core; not those that change, such as its clock rate.
        wanted = ("model name", "flags", "Features", "CPU part")
        processor = sorted({x for x in lines if x.startswith(wanted)})
    cores = (
        len(os.sched_getaffinity(0))  # which work is divided by
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    # Its package has several names (tensorflow, tensorflow-cpu, tf-nightly).
    package = importlib.metadata.packages_distributions()["tensorflow"][0]
    version = importlib.metadata.version(package)
    facts = (
        version,
        platform.machine(),
        processor,
        cores,
        os.environ.get("XLA_FLAGS"),
    )
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    return f"tensorflow-{version}-{digest[:12]}"


def _fetch(directory, mine):
    """Copies what is whole; returns the names that TensorFlow gave."""
    known = set()
    for file in directory.iterdir():
        match = _KEPT.fullmatch(file.name)
        if match is None:
            continue
        try:
            data = file.read_bytes()
        except OSError:  # another process found it damaged, or tidied up
            continue
        if hashlib.sha256(data).hexdigest() == match[2]:
            (mine / match[1]).write_bytes(data)
            known.add(match[1])
        else:
            with contextlib.suppress(OSError):
                file.unlink()
    return known


def _add(mine, directory, known):
    """Adds what was compiled meanwhile; says so where it cannot."""
    try:
        for file in mine.iterdir():
            # TensorFlow renames a file when it is whole.
            if file.name not in known and file.suffix == ".pb":
                data = file.read_bytes()
                digest = hashlib.sha256(data).hexdigest()
                write_bytes(directory / f"{file.name}.{digest}.xla", data)
    except OSError as error:
        sys.stderr.write(
            f"warning: what was compiled was not kept in {directory}: {error}\n"
        )
