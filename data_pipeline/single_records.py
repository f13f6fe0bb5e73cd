"""Python reader of single records of a set, also at URLs of fsspec."""

import concurrent.futures

import numpy as np
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.reading import parse_records
from data_pipeline.records.tfrecord import BadRecord
from data_pipeline.records.tfrecord import read_record

_THREADS = 32  # each record in a bucket takes milliseconds


class DamagedRecord(ValueError):
    """Error for a record with a wrong checksum or length."""


class SingleRecords(PretrainingData):
    """Single records of a split.

    A record has the targets that training draws in the first epoch. Python
    reads the files, so TensorFlow need not support the path.

    Args:
        directory, split, seed, objective: see PretrainingData.
    """

    def __init__(self, directory, split, seed, objective):
        super().__init__(
            directory, 1, split=split, seed=seed, objective=objective
        )

    def _check_directory(self):
        return

    def batch(self, numbers):
        """Read records and draw the objective's targets.

        Args:
            numbers: sequence of b ints, indices of records in the split.

        Returns:
            dict of feature names to arrays [b, ...].

        Raises:
            DamagedRecord: a record is damaged. The message names the first
                damaged record.
        """
        numbers = np.asarray(numbers, np.int64)
        index, is_first = self._records.locate(tf.constant(numbers))
        records = parse_records(tf.constant(self._read(numbers)), self.manifest)
        epoch = tf.constant(0, tf.int64)
        features = self._features(records, epoch, index, ~is_first, False)
        return {name: value.numpy() for name, value in features.items()}

    def _read(self, numbers):
        """Read the serialized records with these indices: list of bytes."""

        def read(source):
            return read_record(*source, self.manifest.frame_bytes)

        with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
            records = list(threads.map(read, self._records.sources(numbers)))
        for record in records:
            if isinstance(record, BadRecord):
                raise DamagedRecord(
                    f"{record}. Copy the file again from where the set was "
                    "built."
                )
        return records
