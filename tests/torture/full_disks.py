"""A disk that is full ends a run with one line; with room, the run goes on.

The run's directory is a small file system in memory, full at a random moment:
in a checkpoint, its memory or digests, in the log, the best weights or the
model. It is then enlarged, and the same command ends as a run that nobody
disturbed, to the bit. Mounting needs the rights of root.
"""

import contextlib
import subprocess

from tests.support import killed_runs

TRIALS = 20


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    with mounted(directory / "disk", 64):
        pass  # before anything takes time
    command = killed_runs.pretraining(directory / "input")
    problem = command.finish(directory / "whole")
    if problem:
        raise RuntimeError(f"the run that nobody disturbs: {problem}")
    expected = killed_runs.end_of(directory / "whole")
    size = sum(
        file.stat().st_size
        for file in (directory / "whole").rglob("*")
        if file.is_file()
    )
    for _ in range(count):
        kilobytes = generator.randint(16, size // 1024)
        with mounted(directory / "disk", kilobytes) as disk:
            label, problem = _trial(command, disk, expected)
            yield label, problem and f"{problem} (a disk of {kilobytes} KB)"


@contextlib.contextmanager
def mounted(directory, kilobytes):
    """Context of a directory that is a small file system in memory.

    Raises:
        PermissionError: if nothing may be mounted here.
    """
    directory.mkdir(exist_ok=True)
    try:
        _mount(directory, f"size={kilobytes}k", "tmpfs")
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError("nothing can be mounted here") from error
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def _mount(directory, options, kind=None):
    more = ["-t", kind, kind] if kind else []
    subprocess.run(
        ["mount", "-o", options, *more, directory],
        check=True,
        capture_output=True,
    )


def _trial(command, disk, expected):
    """(label, problem) of a run on a disk that is too small."""
    log = disk.parent / "log"  # a full disk takes no log
    log.unlink(missing_ok=True)
    (disk / "log").symlink_to(log)
    problem = command.finish(disk)
    lines = log.read_text().splitlines()
    last = lines[-1] if lines else ""
    if problem is None:
        label = "large enough"
    elif last.startswith("error: the disk is full while writing"):
        label = f"full, {killed_runs.where(disk, log.read_text())}"
        _mount(disk, "remount,size=64m")
        problem = command.finish(disk)
        if any("skipped" in line for line in log.read_text().splitlines()):
            problem = "a checkpoint was left damaged"
    else:
        label, problem = "full elsewhere", f"it says {last[:300]!r}"
    return label, problem or killed_runs.differs(expected, disk)
