"""State of a run on JAX: arrays between steps, bytes in a checkpoint."""

import io

import numpy as np
import tensorflow as tf

from xlnet_tf.training.runs.memory_rows import MemoryRows


class Variables(tf.train.experimental.PythonState):
    """Variables of Keras' JAX backend, as TensorFlow's checkpoints keep them.

    Args:
        variables: list of keras.Variable.
        others: list of keras.Variable that are kept behind them, and that
            checkpoints of earlier versions do not hold. Default none.
    """

    def __init__(self, variables, others=()):
        self._variables = [*variables, *others]
        self._least = len(variables)

    def serialize(self):
        # NumPy has no file format for bfloat16, which float32 holds.
        arrays = [np.asarray(x.value) for x in self._variables]
        arrays = [
            x.astype("float32") if x.dtype.name == "bfloat16" else x
            for x in arrays
        ]
        file = io.BytesIO()
        names = [f"{place}" for place in range(len(arrays))]
        np.savez(file, **dict(zip(names, arrays, strict=True)))
        return file.getvalue()

    def deserialize(self, string_value):
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            count = len(arrays.files)
            if count not in (self._least, len(self._variables)):
                raise ValueError(
                    f"it holds {count} variables, not {len(self._variables)}."
                )
            for place, variable in enumerate(self._variables[:count]):
                variable.assign(arrays[f"{place}"])


class JaxMemoryRows(MemoryRows):
    """Rows of a memory, all of which this process holds."""

    def _row_range(self):
        return 0, self._memory.batch_size

    def _arrays(self):
        return {
            name: np.asarray(variable.value).astype("float32")
            for name, variable in self._variables().items()
        }

    def _assign(self, arrays):
        for name, variable in self._variables().items():
            if name not in arrays:
                raise ValueError(f"the file of memory has no array {name}.")
            variable.assign(arrays[name])


def values(variables):
    """list of arrays, the values of variables."""
    return [x.value for x in variables]


def assign(variables, arrays):
    """Gives variables new values, without a copy."""
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
