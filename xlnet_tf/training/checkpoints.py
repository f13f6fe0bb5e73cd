"""Checkpoints, from which a run resumes bit for bit.

A checkpoint consists of these files:

- `ckpt-STEP.index` and `ckpt-STEP.data-*`, TensorFlow's files of the weights,
  the optimizer and the step. The number of the step determines the random
  numbers and the order of the data.
- `memory-STEP-rows-*.npz`, the memory of earlier segments, see `MemoryRows`.
- `ckpt-STEP.sha256`, the SHA-256 digests of the checkpoint's other files. This
  file is written last.

This module finds checkpoints by listing the files in the directory. It also
writes the file `checkpoint`, by which TensorFlow's tools find the newest
checkpoint. This module reads `checkpoint` only to distinguish a checkpoint that
lost files from a checkpoint that was never finished.
"""

import re
import tempfile
import time
import uuid
import zipfile
import zlib

import numpy as np
import tensorflow as tf

from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import remove
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import written_whole
from data_pipeline.base.limits import first_line
from xlnet_tf.training.devices import check_together
from xlnet_tf.training.devices import checkpoint_options
from xlnet_tf.training.devices import holds_anywhere
from xlnet_tf.training.devices import wait_for_peers
from xlnet_tf.training.devices import worker_index

CHECKPOINTS = "checkpoints"  # name of the directory in a run's output
STATE_FILE = "checkpoint"  # TensorFlow's name
_STEP = "(0|[1-9][0-9]*)"
# Parts of a checkpoint, in the order in which they are removed.
_DIGESTS, _INDEX, _DATA, _MEMORY = range(4)
_PARTS = {
    _DIGESTS: re.compile(rf"ckpt-{_STEP}\.sha256"),
    _INDEX: re.compile(rf"ckpt-{_STEP}\.index"),
    _DATA: re.compile(rf"ckpt-{_STEP}\.data-\d{{5}}-of-\d{{5}}"),
    _MEMORY: re.compile(rf"memory-{_STEP}-rows-\d+-\d+\.npz"),
}
_NAMED = re.compile(rf'"(?:[^"]*/)?ckpt-{_STEP}"')
# Names of TensorFlow's temporary files.
_TEMPORARY = re.compile(
    rf"ckpt-{_STEP}_temp.*|ckpt-{_STEP}\.index\.tempstate\d+"
    rf"|{STATE_FILE}\.tmp.*"
)
_DAMAGE = (
    tf.errors.OpError,
    # A truncated data file raises IndexError. A damaged name raises
    # UnicodeDecodeError, which is a ValueError. Missing objects raise
    # AssertionError.
    IndexError,
    ValueError,
    AssertionError,
    KeyError,
    OSError,
)
# Errors of the machine. After these errors the files may still be complete.
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
# Errors that NumPy and zipfile raise for a damaged file, besides ValueError.
_DAMAGE_OF_MEMORY = (
    EOFError,
    KeyError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


class Checkpoints:
    """Checkpoints of a run: saving, restoring and removing.

    If the newest checkpoint is damaged, an earlier checkpoint is restored.

    To save, all workers must read the variables together. So all workers write
    them: the chief to `directory`, the other workers to temporary directories.

    Args:
        directory: path from which all workers restore.
        run: loop.Run.
        model, optimizer: objects whose variables the checkpoints contain.
        memory: StatefulMemory or None.

    Attributes:
        restored: str, prefix of the restored checkpoint. None if there was no
            checkpoint.
        skipped: list of str, a description of the damage for each skipped
            checkpoint.
    """

    def __init__(self, directory, run, model, optimizer, memory):
        backend, settings = run.backend, run.settings
        self.restored = None
        self.skipped = []
        self._checkpoint = tf.train.Checkpoint(
            step=run.step, **backend.tracked(model, optimizer)
        )
        self._directory = as_path(directory)
        self._memory_rows = backend.memory_rows(
            memory, backend.strategy, self._directory
        )
        self._interval = settings.checkpoint_interval
        self._seconds = settings.checkpoint_time_seconds
        self._most = settings.checkpoints_to_keep
        self._strategy = backend.strategy
        self._options = checkpoint_options(self._strategy)
        self._is_chief = run.is_chief
        # The temporary directory is removed together with this object.
        self._scratch = None if run.is_chief else tempfile.TemporaryDirectory()
        self._saved_at = time.monotonic()
        self._last_step = None
        self._damaged = set()  # steps of skipped checkpoints

    def save_if_due(self):
        """Save a checkpoint if the interval in steps or in time is over.

        Returns:
            bool, whether a checkpoint was saved.
        """
        step = int(self._checkpoint.step.numpy())
        since = step - (self._last_step or 0)
        if since >= self._interval or (since and self._is_old()):
            return self.save()
        return False

    def save(self):
        """Save a checkpoint of the current step, with memory and digests.

        Returns:
            bool, whether a checkpoint was saved. False if this step already has
            a checkpoint.
        """
        step = int(self._checkpoint.step.numpy())
        if step == self._last_step:
            return False
        if self._is_chief:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._make_way(step)
        wait_for_peers(self._strategy)
        self._memory_rows.save(step)
        # An index means that the memory of all workers is there: if one is lost
        # now, all go on from the checkpoint before.
        wait_for_peers(self._strategy)
        if self._is_chief:
            prefix = str(self._directory / f"ckpt-{step}")
        else:
            prefix = f"{self._scratch.name}/ckpt"
        self._checkpoint.save_counter.assign_add(1)
        self._checkpoint.write(prefix, self._options)
        # Wait, because the digests cover the other workers' rows of memory.
        wait_for_peers(self._strategy)
        self._last_step, self._saved_at = step, time.monotonic()
        self._damaged.discard(step)
        if self._is_chief:
            files = _files(self._directory)
            names = [x for x in files[step] if not _PARTS[_DIGESTS].match(x)]
            add_checksums(self._directory, names, f"ckpt-{step}.sha256")
            self._keep_newest(step, files)
        return True

    def _is_old(self):
        """Whether the time limit between checkpoints has passed on any worker.

        Workers save together, so the result must be the same on all workers.
        """
        if self._seconds is None:
            return False
        is_over = time.monotonic() - self._saved_at >= self._seconds
        return holds_anywhere(self._strategy, is_over)

    def _make_way(self, step):
        """Remove the files that an earlier save of this step has left."""
        _remove_files(self._directory, _files(self._directory).get(step, ()))
        for path in list(self._directory.iterdir()):
            part = _part(path.name)
            # Only a directory with the name of a file is left here.
            if part and part[1] == step:
                path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex}"))

    def _keep_newest(self, step, files):
        """Write the file `checkpoint`; remove old and damaged checkpoints.

        Damaged checkpoints of steps after `step` stay until the run reaches
        their steps again.
        """
        steps = sorted(x for x in files if x <= step)
        whole = [x for x in steps if f"ckpt-{x}.index" in files[x]]
        whole = [x for x in whole if x not in self._damaged]
        kept = whole[-self._most :]
        lines = [f'model_checkpoint_path: "ckpt-{step}"\n']
        lines += [f'all_model_checkpoint_paths: "ckpt-{x}"\n' for x in kept]
        write_bytes(self._directory / STATE_FILE, "".join(lines).encode())
        for old in sorted(set(steps) - set(kept)):
            _remove_files(self._directory, files[old])

    def restore(self):
        """Restore the newest complete checkpoint.

        Returns:
            str, prefix of the checkpoint, or None if there is no checkpoint.

        Raises:
            RuntimeError: if there are checkpoints and all are damaged, or if
                the workers restored different steps.
            OSError, tf.errors.OpError: if the machine failed to read a file.
        """
        for step in reversed(steps_of(self._directory)):
            prefix = str(self._directory / f"ckpt-{step}")
            try:
                self._restore(step, prefix)
            except _DAMAGE as error:
                if _is_of_machine(error):
                    raise
                self.skipped.append(f"{prefix}: {first_line(error)}")
                self._damaged.add(step)
                continue
            self._last_step, self.restored = step, prefix
            break
        if self.skipped and not self.restored:
            raise RuntimeError(
                "there are checkpoints and none can be restored, so nothing "
                "was started over them. Move them away to start afresh. "
                f"{' | '.join(self.skipped)}"
            )
        check_together(
            self._strategy,
            int(self._checkpoint.step.numpy()),
            "the workers restored different steps, from {0} to {1}: some "
            "checkpoint or memory file is damaged for one of them. Move the "
            f"newest of {self._directory} away and start again.",
        )
        return self.restored

    def _restore(self, step, prefix):
        files = _files(self._directory).get(step, [])
        listing = f"ckpt-{step}.sha256"
        # Without digests, the run was killed before it wrote them.
        if listing in files:
            listed = verify_checksums(self._directory, listing=listing)
            unlisted = set(files) - {listing, *listed}
            if unlisted:
                raise ValueError(
                    f"{listing} is damaged: it lacks {min(unlisted)}."
                )
        if f"ckpt-{step}.index" not in files:
            raise ValueError(f"ckpt-{step}.index is missing.")
        status = self._checkpoint.restore(prefix, self._options)
        status.assert_existing_objects_matched()
        self._memory_rows.restore(step)


def has_steps(directory):
    """Whether a directory has a checkpoint of a step after step 0."""
    return any(steps_of(directory))


def steps_of(directory):
    """List, in order, the steps whose checkpoints were complete at some time.

    A checkpoint was complete if its index or its digests exist, or if the file
    `checkpoint` lists its step. Files of such a checkpoint may be missing now.
    """
    directory = as_path(directory)
    complete = {
        step
        for step, names in _files(directory).items()
        if any(_part(name)[0] in (_DIGESTS, _INDEX) for name in names)
    }
    return sorted(complete | _named_steps(directory))


def remove_leftovers(directory):
    """Remove the unfinished checkpoint files of a killed run.

    Args:
        directory: path of the checkpoints. No process may be writing there.
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
    """Parse the name of a checkpoint's file; return (part, step).

    The part is the kind of the file: `_DIGESTS`, `_INDEX`, `_DATA` or
    `_MEMORY`. The result is None for the name of any other file.
    """
    for part, pattern in _PARTS.items():
        if match := pattern.fullmatch(name):
            return part, int(match[1])
    return None


def _files(directory):
    """Make a dict from each checkpoint's step to its sorted file names."""
    files_by_step = {}
    if directory.is_dir():
        for path in directory.iterdir():
            part = _part(path.name)
            if part and path.is_file():
                files_by_step.setdefault(part[1], []).append(path.name)
    return {step: sorted(names) for step, names in files_by_step.items()}


def _named_steps(directory):
    """Return the set of steps that the file `checkpoint` lists."""
    state = directory / STATE_FILE
    if not state.is_file():
        return set()
    text = state.read_bytes().decode(errors="replace")
    return {int(match[1]) for match in _NAMED.finditer(text)}


def _remove_files(directory, names):
    """Remove files of a checkpoint, the digests first and the memory last."""
    for name in sorted(names, key=_part):
        (directory / name).unlink(missing_ok=True)


def _is_of_machine(error):
    """Whether an error is a failure of the machine, not a damaged file."""
    if isinstance(error, OSError):
        is_missing = isinstance(error, FileNotFoundError)
        return error.errno is not None and not is_missing
    return isinstance(error, _NOT_DAMAGE)


class MemoryRows:
    """Files that store the memory of this process's rows of the global batch.

    Each replica has a memory of its own, so each worker writes the memory of
    its replicas' rows. The name of a file contains the range of its rows, so
    that a run with another number of workers finds the rows.

    Args:
        memory: StatefulMemory or None.
        strategy: tf.distribute.Strategy.
        directory: path of the checkpoints, shared by all workers.
    """

    def __init__(self, memory, strategy, directory):
        self._memory = memory
        self._strategy = strategy
        self._directory = as_path(directory)

    def save(self, step):
        """Write the memory of this process's rows atomically."""
        if self._memory is None:
            return
        first, last = self._row_range()
        file = self._directory / f"memory-{step}-rows-{first}-{last}.npz"
        with written_whole(file) as temporary, temporary.open("wb") as handle:
            np.savez(handle, **self._arrays())

    def restore(self, step):
        """Find and read the memory of this process's rows.

        Raises:
            FileNotFoundError: if one of this process's rows is in no file.
            ValueError: if a file is damaged or has arrays of another shape.
        """
        if self._memory is None:
            return
        first, last = self._row_range()
        rows = {}
        for file, file_first, file_last in self._files_of(step):
            if file_first >= last or file_last <= first:
                continue
            arrays = _read_arrays(file)
            for row in range(max(first, file_first), min(last, file_last)):
                rows[row] = {
                    name: array[row - file_first]
                    for name, array in arrays.items()
                }
        missing = sorted(set(range(first, last)) - set(rows))
        if missing:
            raise FileNotFoundError(
                f"{self._directory} has no memory of step {step} for the rows "
                f"{missing}."
            )
        self._assign(
            {
                name: np.stack([rows[row][name] for row in range(first, last)])
                for name in rows[first]
            }
        )

    def _row_range(self):
        replicas = self._strategy.num_replicas_in_sync
        local = len(self._local(self._memory.is_real))
        workers = replicas // local
        worker = worker_index(self._strategy) if workers > 1 else 0
        rows = local * self._memory.batch_size
        return worker * rows, (worker + 1) * rows

    def _files_of(self, step):
        pattern = re.compile(rf"memory-{step}-rows-(\d+)-(\d+)\.npz")
        for file in sorted(self._directory.iterdir()):
            match = pattern.fullmatch(file.name)
            if match and file.is_file():
                yield file, int(match[1]), int(match[2])

    def _local(self, variable):
        return self._strategy.experimental_local_results(variable.value)

    def _variables(self):
        names = [f"memory_{i}" for i in range(len(self._memory.memories))]
        variables = dict(zip(names, self._memory.memories, strict=True))
        return {**variables, "is_real": self._memory.is_real}

    def _arrays(self):
        # NumPy cannot store bfloat16. float32 represents all its values.
        return {
            name: np.concatenate(
                [
                    tf.cast(value, tf.float32).numpy()
                    for value in self._local(variable)
                ]
            )
            for name, variable in self._variables().items()
        }

    def _assign(self, arrays):
        rows = self._memory.batch_size
        for name, variable in self._variables().items():
            if name not in arrays:
                raise ValueError(f"the file of memory has no array {name}.")
            array = arrays[name]
            for replica, local in enumerate(self._local(variable)):
                part = array[replica * rows : (replica + 1) * rows]
                local.assign(tf.cast(part, local.dtype))


def _read_arrays(file):
    """Read all arrays of an .npz file into a dict."""
    with local_copy(file) as local:
        try:
            with np.load(local) as arrays:
                return dict(arrays.items())
        except _DAMAGE_OF_MEMORY as error:
            raise ValueError(f"{file} is damaged: {error}.") from error
