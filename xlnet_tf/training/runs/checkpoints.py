"""Checkpoints of a run, from which it resumes bit for bit.

A checkpoint of a step consists of `ckpt-STEP.index` and `ckpt-STEP.data-*`,
weights, optimizer and step by TensorFlow, of `memory-STEP-rows-*.npz`, see
`memory_rows.py`, and of `ckpt-STEP.sha256`, the digests of all these, which is
written last. Runs of earlier versions have digests of some in `SHA256SUMS`, or
none. Data order and random numbers follow from the step.

Which checkpoints there are is read from the directory. `checkpoint`, the file
by which TensorFlow finds the newest one, is written for its tools; here it only
tells a checkpoint that lost its files from one that was never finished.
"""

import re
import shutil
import tempfile
import time
import uuid

import tensorflow as tf

from xlnet_tf.files import as_path
from xlnet_tf.files import is_unfinished
from xlnet_tf.files import remove
from xlnet_tf.files import write_bytes
from xlnet_tf.files.checksums import CHECKSUMS_FILE
from xlnet_tf.files.checksums import add_checksums
from xlnet_tf.files.checksums import verify_checksums
from xlnet_tf.files.limits import first_line
from xlnet_tf.training.strategy import checkpoint_options
from xlnet_tf.training.strategy import holds_anywhere
from xlnet_tf.training.strategy import is_chief
from xlnet_tf.training.strategy import wait_for_peers

STATE_FILE = "checkpoint"  # TensorFlow's name
_STEP = "(0|[1-9][0-9]*)"
_DIGESTS, _INDEX, _DATA, _MEMORY = range(4)  # in the order of removal
_PARTS = {
    _DIGESTS: re.compile(rf"ckpt-{_STEP}\.sha256"),
    _INDEX: re.compile(rf"ckpt-{_STEP}\.index"),
    _DATA: re.compile(rf"ckpt-{_STEP}\.data-\d{{5}}-of-\d{{5}}"),
    _MEMORY: re.compile(rf"memory-{_STEP}-rows-\d+-\d+\.npz"),
}
_NAMED = re.compile(rf'"(?:[^"]*/)?ckpt-{_STEP}"')
# Names that TensorFlow writes to before it renames them.
_TEMPORARY = re.compile(
    rf"ckpt-{_STEP}_temp.*|ckpt-{_STEP}\.index\.tempstate\d+"
    rf"|{STATE_FILE}\.tmp.*"
)
_DAMAGE = (
    tf.errors.OpError,
    # A cut data file is an IndexError, a damaged name a UnicodeDecodeError
    # (a ValueError); objects that are not in the file, an AssertionError.
    IndexError,
    ValueError,
    AssertionError,
    KeyError,
    OSError,
)
# Errors of the machine, after which the files may be whole.
_NOT_DAMAGE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


class RunCheckpoints(tf.train.CheckpointManager):
    """Checkpoints with memory; a damaged one falls back to the one before.

    A CheckpointManager because Orbit asks for one. Nothing of it is used: it
    learns from the state file which checkpoints there are, and fails or forgets
    them where that file is damaged.

    Args:
        checkpoint: tf.train.Checkpoint with `step`.
        directory: path that the chief writes to and all workers restore from.
        memory_rows: MemoryRows.
        strategy: tf.distribute.Strategy. The workers that are not the chief
            take part in saving, because variables are read together, but write
            to a temporary directory.
        interval: int, steps between checkpoints.
        max_to_keep: int.
        seconds: float, age of the newest checkpoint at which the next is due
            before the interval has passed, or None (default) for none.

    Attributes:
        skipped: list of str, what is damaged in the checkpoints that were
            passed over.
    """

    # Attributes here, and not the properties of TensorFlow's class.
    checkpoint = directory = checkpoint_interval = latest_checkpoint = None

    def __init__(
        self,
        checkpoint,
        directory,
        memory_rows,
        strategy,
        interval,
        max_to_keep,
        seconds=None,
    ):
        self.checkpoint = checkpoint
        self.directory = as_path(directory)
        self.checkpoint_interval = interval
        self.skipped = []
        self._memory_rows = memory_rows
        self._strategy = strategy
        self._max_to_keep = max_to_keep
        self._options = checkpoint_options(strategy)
        self._is_chief = is_chief(strategy)
        self._scratch = None if self._is_chief else tempfile.mkdtemp()
        self._seconds = seconds
        self._saved_at = time.monotonic()
        self._last_step = None
        self._damaged = set()  # steps of checkpoints that were passed over

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """Saves memory, checkpoint and digests; None where none is due."""
        step = int(self.checkpoint.step.numpy())
        since = step - (self._last_step or 0)
        if step == self._last_step:
            return None
        is_due = since >= self.checkpoint_interval
        if check_interval and not is_due and not self._is_old():
            return None
        if self._is_chief:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._make_way(step)
        wait_for_peers(self._strategy)
        self._memory_rows.save(step)
        prefix = f"{self._scratch}/ckpt"
        if self._is_chief:
            prefix = str(self.directory / f"ckpt-{step}")
        self.checkpoint.save_counter.assign_add(1)
        self.checkpoint.write(prefix, self._options)
        # The digests of the others' rows of memory are among those written.
        wait_for_peers(self._strategy)
        self._last_step, self._saved_at = step, time.monotonic()
        self._damaged.discard(step)
        self.latest_checkpoint = str(self.directory / f"ckpt-{step}")
        if self._is_chief:
            files = _files(self.directory)
            names = [x for x in files[step] if not _PARTS[_DIGESTS].match(x)]
            add_checksums(self.directory, names, f"ckpt-{step}.sha256")
            self._keep_newest(step, files)
        return self.latest_checkpoint

    def _is_old(self):
        """Whether the time between checkpoints is over, at any worker: bool.

        They save together, and their clocks differ.
        """
        if self._seconds is None:
            return False
        is_over = time.monotonic() - self._saved_at >= self._seconds
        return holds_anywhere(self._strategy, is_over)

    def _make_way(self, step):
        """Removes what is left of an earlier save of this step."""
        _remove_files(self.directory, _files(self.directory).get(step, ()))
        for path in list(self.directory.iterdir()):
            part = _part(path.name)
            if part and part[1] == step:  # a directory, which is not ours
                path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex}"))

    def _keep_newest(self, step, files):
        """Notes the newest checkpoints, and removes older and damaged ones.

        Damaged ones of later steps stay until they are reached once more.
        """
        steps = sorted(x for x in files if x <= step)
        whole = [x for x in steps if f"ckpt-{x}.index" in files[x]]
        whole = [x for x in whole if x not in self._damaged]
        kept = whole[-self._max_to_keep :]
        lines = [f'model_checkpoint_path: "ckpt-{step}"\n']
        lines += [f'all_model_checkpoint_paths: "ckpt-{x}"\n' for x in kept]
        write_bytes(self.directory / STATE_FILE, "".join(lines).encode())
        for old in sorted(set(steps) - set(kept)):
            _remove_files(self.directory, files[old])
        if (self.directory / CHECKSUMS_FILE).is_file():
            add_checksums(self.directory, [])  # drops those of removed files

    def restore_or_initialize(self):
        """Restores the newest checkpoint that is whole.

        Returns:
            str, the checkpoint's prefix, or None if there is none at all.

        Raises:
            RuntimeError: if there are checkpoints and none can be restored.
            OSError, tf.errors.OpError: if the machine failed to read a file.
        """
        if self._last_step is not None:  # restored before
            return self.latest_checkpoint
        self.skipped = []
        for step in reversed(steps_of(self.directory)):
            prefix = str(self.directory / f"ckpt-{step}")
            try:
                self._restore(step, prefix)
            except _DAMAGE as error:
                if _is_of_machine(error):
                    raise
                self.skipped.append(f"{prefix}: {first_line(error)}")
                self._damaged.add(step)
                continue
            self._last_step = step
            self.latest_checkpoint = prefix
            return prefix
        if self.skipped:
            raise RuntimeError(
                "there are checkpoints and none can be restored, so nothing "
                "was started over them. Move them away to start afresh. "
                f"{' | '.join(self.skipped)}"
            )
        return None

    def _restore(self, step, prefix):
        files = _files(self.directory).get(step, [])
        listing = f"ckpt-{step}.sha256"
        if listing in files:
            listed = verify_checksums(self.directory, listing=listing)
            unlisted = set(files) - {listing, *listed}
            if unlisted:
                raise ValueError(
                    f"{listing} is damaged: it lacks {min(unlisted)}."
                )
        else:  # of an earlier version, or a kill came before the digests
            verify_checksums(self.directory, files)
        if f"ckpt-{step}.index" not in files:
            raise ValueError(f"ckpt-{step}.index is missing.")
        status = self.checkpoint.restore(prefix, self._options)
        status.assert_existing_objects_matched()
        self._memory_rows.restore(step)

    def sync(self):
        """Returns at once: nothing is written in the background."""

    def close(self):
        """Removes the temporary directory of a worker that is not the chief."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def has_steps(directory):
    """bool, whether a directory has a checkpoint of a step after 0."""
    return any(steps_of(directory))


def steps_of(directory):
    """list of int in order, the steps whose checkpoints were once complete.

    Without an index or digests, such a step is one that the state file or the
    digests of an earlier version name.
    """
    directory = as_path(directory)
    complete = {
        step
        for step, names in _files(directory).items()
        if any(_part(name)[0] in (_DIGESTS, _INDEX) for name in names)
    }
    return sorted(complete | _named_steps(directory))


def remove_leftovers(directory):
    """Removes what a killed run had not finished writing.

    Args:
        directory: path of checkpoints to which nobody writes now.
    """
    directory = as_path(directory)
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if is_unfinished(path) or _TEMPORARY.fullmatch(path.name):
            remove(path)
    steps = set(steps_of(directory))
    for step, names in _files(directory).items():
        if step not in steps:
            _remove_files(directory, names)


def _part(name):
    """Part of a checkpoint, and its step, by a file's name; or None.

    Other files may begin in the same way.
    """
    for part, pattern in _PARTS.items():
        if match := pattern.fullmatch(name):
            return part, int(match[1])
    return None


def _files(directory):
    """dict of each step to the sorted names of its files."""
    found = {}
    if directory.is_dir():
        for path in directory.iterdir():
            part = _part(path.name)
            if part and path.is_file():
                found.setdefault(part[1], []).append(path.name)
    return {step: sorted(names) for step, names in found.items()}


def _named_steps(directory):
    """set of the steps that TensorFlow's state file or `SHA256SUMS` names."""
    steps = set()
    state, sums = directory / STATE_FILE, directory / CHECKSUMS_FILE
    if state.is_file():
        text = state.read_bytes().decode(errors="replace")
        steps |= {int(match[1]) for match in _NAMED.finditer(text)}
    if sums.is_file():
        for line in sums.read_bytes().decode(errors="replace").splitlines():
            part = _part(line[66:])
            if part and part[0] == _INDEX:
                steps.add(part[1])
    return steps


def _remove_files(directory, names):
    """Removes files of a checkpoint, the digests first and the memory last."""
    for name in sorted(names, key=_part):
        (directory / name).unlink(missing_ok=True)


def _is_of_machine(error):
    """Whether an error says nothing about what the files hold, bool."""
    if isinstance(error, OSError):
        is_missing = isinstance(error, FileNotFoundError)
        return error.errno is not None and not is_missing
    return isinstance(error, _NOT_DAMAGE)
