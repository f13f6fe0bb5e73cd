"""The memory of a run in files beside its checkpoints, by rows of the batch.

The memory differs from replica to replica, so each worker writes its rows. The
file's name says which, so that a run of another number of workers can read
them.
"""

import re
import zipfile
import zlib

import numpy as np
import tensorflow as tf

from xlnet_tf.files import as_path
from xlnet_tf.files import local_copy
from xlnet_tf.files import written_whole
from xlnet_tf.training.strategy import worker_index

# What NumPy and zipfile raise for a damaged file, beside ValueError.
_DAMAGE = (EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


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
            arrays = _read(file)
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

    def _files(self, step):
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
            if name not in arrays:
                raise ValueError(f"the file of memory has no array {name}.")
            array = arrays[name]
            for replica, local in enumerate(self._local(variable)):
                part = array[replica * rows : (replica + 1) * rows]
                local.assign(tf.cast(part, local.dtype))


def _read(file):
    """dict of the arrays of a file."""
    with local_copy(file) as local:
        try:
            with np.load(local) as arrays:
                return dict(arrays.items())
        except _DAMAGE as error:
            raise ValueError(f"{file} is damaged: {error}.") from error
