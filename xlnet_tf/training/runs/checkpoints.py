"""Checkpoints of a run, from which it resumes bit for bit.

A TensorFlow checkpoint holds weights, optimizer and step. The memory differs
from replica to replica, so each worker writes its rows of the memory to a file
beside the checkpoint. The file's name says which rows, so that a run of another
number of workers can read them. `SHA256SUMS` has the digests of these files
and of TensorFlow's index, which holds those of all tensors. Data order and
random numbers follow from the step. `Run.open_directory` in `run.py` refuses to
resume another run, and `Run.restore` reads the newest checkpoint that is whole.
"""

import re
import shutil
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

from xlnet_tf.files import add_checksums
from xlnet_tf.files import as_path
from xlnet_tf.files import local_copy
from xlnet_tf.files import verify_checksums
from xlnet_tf.files import written_whole
from xlnet_tf.training.strategy import checkpoint_options

_DAMAGE = (
    tf.errors.OpError,
    # A cut data file is an IndexError, a damaged name a UnicodeDecodeError
    # (a ValueError); objects that are not in the file, an AssertionError.
    IndexError,
    ValueError,
    AssertionError,
    OSError,
    KeyError,
    zipfile.BadZipFile,
)


class MemoryRows:
    """Saves and restores the rows of memory that this process holds.

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
        """Writes this process's rows, whole or not at all."""
        if self._memory is None:
            return
        first, last = self._row_range()
        file = self._directory / f"memory-{step}-rows-{first}-{last}.npz"
        with written_whole(file) as temporary, temporary.open("wb") as handle:
            np.savez(handle, **self._arrays())

    def restore(self, step):
        """Reads this process's rows from whichever files hold them.

        Raises:
            FileNotFoundError: if some rows are in no file.
            ValueError: if a file is damaged or of another shape.
        """
        if self._memory is None:
            return
        first, last = self._row_range()
        rows = {}
        for file, file_first, file_last in self._files(step):
            if file_first >= last or file_last <= first:
                continue
            with local_copy(file) as local, np.load(local) as arrays:
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

    def delete_but(self, steps):
        """Removes this process's files of all other steps."""
        first, last = self._row_range() if self._memory else (0, 0)
        for file in self._directory.glob(f"memory-*-rows-{first}-{last}.npz"):
            if int(file.name.split("-")[1]) not in steps:
                file.unlink(missing_ok=True)

    def _row_range(self):
        replicas = self._strategy.num_replicas_in_sync
        local = len(self._local(self._memory.is_real))
        workers = replicas // local
        worker = _worker_index(self._strategy) if workers > 1 else 0
        rows = local * self._memory.batch_size
        return worker * rows, (worker + 1) * rows

    def _files(self, step):
        pattern = re.compile(rf"memory-{step}-rows-(\d+)-(\d+)\.npz")
        for file in sorted(self._directory.iterdir()):
            match = pattern.fullmatch(file.name)
            if match:
                yield file, int(match[1]), int(match[2])

    def _local(self, variable):
        return self._strategy.experimental_local_results(variable.value)

    def _variables(self):
        names = [f"memory_{i}" for i in range(len(self._memory.memories))]
        variables = dict(zip(names, self._memory.memories, strict=True))
        return {**variables, "is_real": self._memory.is_real}

    def _arrays(self):
        # float32 holds every bfloat16, for which NumPy has no file format.
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
            array = arrays[name]
            for replica, local in enumerate(self._local(variable)):
                part = array[replica * rows : (replica + 1) * rows]
                local.assign(tf.cast(part, local.dtype))


def has_steps(directory):
    """bool, whether a directory has a checkpoint of a step after 0."""
    return any(_step(path) for path in _indices(directory))


class RunCheckpoints(tf.train.CheckpointManager):
    """Checkpoints with memory; a damaged one falls back to the one before.

    Args:
        checkpoint: tf.train.Checkpoint with `step`.
        directory: path that the chief writes to and all workers restore from.
        memory_rows: MemoryRows.
        strategy: tf.distribute.Strategy.
        interval: int, steps between checkpoints.
        max_to_keep: int.
        is_chief: bool. The other workers take part in saving, because variables
            are read together, but write to a temporary directory.
    """

    def __init__(
        self,
        checkpoint,
        directory,
        memory_rows,
        strategy,
        interval,
        max_to_keep,
        is_chief,
    ):
        self._found_in = as_path(directory)
        self._options = checkpoint_options(strategy)
        self._is_chief = is_chief
        self._scratch = None if is_chief else tempfile.mkdtemp()
        super().__init__(
            checkpoint,
            str(directory) if is_chief else self._scratch,
            max_to_keep=max_to_keep,
            step_counter=checkpoint.step,
            checkpoint_interval=interval,
        )
        self._memory_rows = memory_rows
        self._last_step = None

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """Saves the memory, then the checkpoint; None where none is due."""
        step = int(self._step_counter.numpy())
        since = step - (self._last_step or 0)
        if step == self._last_step:
            return None
        if check_interval and since < self.checkpoint_interval:
            return None
        self._memory_rows.save(step)
        path = super().save(
            checkpoint_number=step, check_interval=False, options=self._options
        )
        self._last_step = step
        # The directory is listed: a worker that is not the chief does not know
        # which checkpoints the chief deleted.
        kept = {_step(path) for path in _indices(self._found_in)}
        self._memory_rows.delete_but(kept | {step})
        if self._is_chief:
            add_checksums(self._found_in, self._names(step))
        return path

    def _names(self, step):
        """Names of the files of a checkpoint that have digests."""
        patterns = (f"ckpt-{step}.index", f"memory-{step}-rows-*.npz")
        return sorted(x.name for p in patterns for x in self._found_in.glob(p))

    def restore_or_initialize(self):
        """Restores the newest checkpoint that is whole.

        The directory is listed instead of reading its `checkpoint` file: a
        damaged one would mean a silent start from the beginning.

        Returns:
            str, the checkpoint's prefix, or None if there is none at all.

        Raises:
            RuntimeError: if there are checkpoints and none can be restored.
        """
        if self._last_step is not None:  # restored before
            return self.latest_checkpoint
        found = sorted(_indices(self._found_in), key=_step)
        failures = []
        for index in reversed(found):
            prefix = str(index).removesuffix(".index")
            step = _step(prefix)
            try:
                verify_checksums(self._found_in, self._names(step))
                status = self.checkpoint.restore(prefix, self._options)
                status.assert_existing_objects_matched()
                self._memory_rows.restore(step)
            except _DAMAGE as error:
                reason = str(error).strip().splitlines() or [repr(error)]
                failures.append(f"{prefix}: {reason[0][:200]}")
                continue
            self._last_step = step
            self.skipped = failures
            return prefix
        if failures:
            raise RuntimeError(
                "there are checkpoints and none can be restored, so nothing "
                "was started over them. Move them away to start afresh. "
                f"{' | '.join(failures)}"
            )
        self.skipped = []
        return None

    def close(self):
        """Removes the temporary directory of a worker that is not the chief."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def is_chief(strategy):
    """Whether this process writes the files that all workers share."""
    return _worker_index(strategy) == 0


def _worker_index(strategy):
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_id is None:
        return 0
    return int(resolver.task_id)


def _indices(directory):
    """Paths of the index files, each of a whole checkpoint."""
    return directory.glob("ckpt-*.index") if directory.is_dir() else []


def _step(path):
    return int(re.search(r"ckpt-(\d+)", str(path))[1])
