"""A disk that is full ends a command with one line; with room, it goes on.

The directory is a small file system in memory, full at a random moment of a
run (in a checkpoint, its memory or digests, in the log, the best weights, the
adapters, an export or the model), or of a save in one of the formats. It is
then enlarged, and the same command ends as a run that nobody disturbed, to the
bit, or writes a directory whose digests are right. Mounting needs the rights of
root.
"""

import contextlib
import dataclasses
import subprocess

from data_pipeline.base.checksums import verify_checksums
from tests.support import forked_commands
from tests.support import killed_runs
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer

TRIALS = 40
_CONVERT = "xlnet_tf.convert", "--from", "--to"
# What is saved -> module, its options of input and output, and others.
_SAVES = {
    "a preset": (*_CONVERT, "--format", "keras"),
    "a preset in float16": (*_CONVERT, "--dtype", "float16"),
    "Hugging Face's files": (*_CONVERT, "--format", "hf"),
    "a TensorFlow 1 checkpoint": (*_CONVERT, "--format", "tf1"),
    "an export": ("saved_models.export", "--model", "--output"),
}


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    with mounted(directory / "disk", 64):
        pass  # before anything takes time
    kinds = [
        _Save(name, directory) if is_save else _Run(name, directory)
        for is_save, names in ((False, _COMMANDS), (True, _SAVES))
        for name in names
    ]
    for number in range(count):
        # Half of them are saves: runs have several.
        is_save = number % 2 == 1
        kind = generator.choice([x for x in kinds if x.is_save == is_save])
        kilobytes = generator.randint(16, kind.size() // 1024)
        with mounted(directory / "disk", kilobytes) as disk:
            label, problem = kind.trial(disk)
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


def _with_exports(directory):
    return killed_runs.pretraining(directory, exports=True)


def _with_adapters(directory):
    command = killed_runs.finetuning(directory)
    options = [*command.options, "--lora-rank", 8]
    return dataclasses.replace(command, options=options)


_COMMANDS = {
    "pretraining with exports": _with_exports,
    "fine-tuning with adapters": _with_adapters,
}


class _Run:
    """A run, of which a checkpoint, the best weights or the model fill a disk.

    Args:
        name: str, a key of `_COMMANDS`.
        directory: path, for what is made once.
    """

    is_save = False

    def __init__(self, name, directory):
        self._name = name
        self._input = directory / f"input of {name}"
        self._whole = directory / name

    def size(self):
        """Bytes of the files of a run that nobody disturbs, made once."""
        if not self._whole.exists():
            self._command = _COMMANDS[self._name](self._input)
            problem = self._command.finish(self._whole)
            if problem:
                raise RuntimeError(f"the run that nobody disturbs: {problem}")
            self._expected = killed_runs.end_of(self._whole)
        return _size(self._whole)

    def trial(self, disk):
        """(label, problem) of a run on a disk that is too small."""
        log = disk.parent / "log"  # a full disk takes no log
        log.unlink(missing_ok=True)
        (disk / "log").symlink_to(log)
        problem = self._command.finish(disk)
        said = log.read_text()
        if problem is None:
            label = "large enough"
        elif _is_one_line(said):
            label = f"full, {killed_runs.where(disk, said)}"
            _mount(disk, "remount,size=64m")
            problem = self._command.finish(disk)
            if "skipped" in log.read_text():
                problem = "a checkpoint was left damaged"
        else:
            label, problem = "full elsewhere", f"it says {said[-300:]!r}"
        if problem is None:
            problem = killed_runs.differs(self._expected, disk)
        return f"{self._name}: {label}", problem


class _Save:
    """A command that writes a model in some format.

    Args:
        name: str, a key of `_SAVES`.
        directory: path, for what is made once.
    """

    is_save = True

    def __init__(self, name, directory):
        self._name = name
        self._model = directory / "model"
        self._whole = directory / name

    def size(self):
        """Bytes of what it writes, which is done once."""
        if not self._model.exists():
            shared_model().save_to_preset(
                self._model, tokenizer=tiny_tokenizer()
            )
        if not self._whole.exists():
            status, said = self._write(self._whole)
            if status:
                raise RuntimeError(f"the save that nobody disturbs: {said}")
        return _size(self._whole)

    def trial(self, disk):
        """(label, problem) of a save on a disk that is too small."""
        status, said = self._write(disk)
        label, problem = "large enough", None
        if status:
            label = "full"
            left = [str(x.relative_to(disk)) for x in disk.rglob("*")]
            if status != 1 or not _is_one_line(said):
                problem = f"status {status}, it says {said[-300:]!r}"
            elif left:
                problem = f"it leaves {left}"
            else:
                _mount(disk, "remount,size=64m")
                status, said = self._write(disk)
                if status:
                    problem = f"with room it says {said[-300:]!r}"
        if problem is None and not verify_checksums(disk / "1"):
            problem = "it has no digests"
        return f"{self._name}: {label}", problem

    def _write(self, directory):
        """(exit status, output) of the command that writes to DIRECTORY/1."""
        module, given, made, *options = _SAVES[self._name]
        log = self._model.parent / "log"
        log.unlink(missing_ok=True)
        argv = [given, self._model, made, directory / "1", *options]
        with forked_commands.started(module, argv, log) as process:
            process.join()
            return process.exitcode, log.read_text()


def _is_one_line(said):
    """Whether a command that ended says in one line that the disk is full."""
    is_quiet = "Traceback" not in said and "Exception ignored" not in said
    last = (said.splitlines() or [""])[-1]
    return is_quiet and last.startswith("error: the disk is full while writing")


def _size(directory):
    files = (file for file in directory.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)
