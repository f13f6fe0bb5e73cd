"""Single records of a set, read in Python from wherever fsspec finds them."""

import concurrent.futures

import numpy as np
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.reading import parse_records
from data_pipeline.records.tfrecord import BadRecord
from data_pipeline.records.tfrecord import read_record

_THREADS = 32  # a bucket takes milliseconds for each record


class DamagedRecord(ValueError):
    """Raised when a record to read is damaged."""


class SingleRecords(PretrainingData):
    """Records by their numbers in a split, as the first epoch has them.

    TensorFlow opens no file, so that the set may lie where it reads none.

    Args:
        directory, split, seed, objective: as of PretrainingData.
    """

    def __init__(self, directory, split, seed, objective):
        super().__init__(
            directory, 1, split=split, seed=seed, objective=objective
        )

    def _check_directory(self):
        return

    def batch(self, numbers):
        """Read records and draw what the objective predicts.

        Args:
            numbers: sequence of int [b], from 0.

        Returns:
            dict of str to array [b, ...], the features of a batch.

        Raises:
            DamagedRecord: it names the first damaged one.
        """
        numbers = np.asarray(numbers, np.int64)
        index, is_first = self._records.locate(tf.constant(numbers))
        records = parse_records(tf.constant(self._read(numbers)), self.manifest)
        epoch = tf.constant(0, tf.int64)
        features = self._features(records, epoch, index, ~is_first, False)
        return {name: value.numpy() for name, value in features.items()}

    def _read(self, numbers):
        """list of bytes, the serialized records."""

        def read(source):
            return read_record(*source, self.manifest.frame_bytes)

        with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
            found = list(threads.map(read, self._records.sources(numbers)))
        for record in found:
            if isinstance(record, BadRecord):
                raise DamagedRecord(
                    f"{record}. Copy the file again from where the set was "
                    "built."
                )
        return found
