"""Strategy with two replicas on two CPU devices, for repeated use."""

import itertools

import tensorflow as tf

_key_bases = itertools.count(1000, 1000)


def two_replicas():
    """Make a MirroredStrategy whose sums have numbers of their own.

    TensorFlow numbers the sums of every strategy from 100 up and remembers
    their shapes for the life of the process, so that a second strategy on the
    same devices fails with "Shape mismatch in the collective instance 100".
    """
    keys = {"_collective_key_base": next(_key_bases)}
    kind = type("MirroredStrategy", (tf.distribute.MirroredStrategy,), keys)
    return kind(["CPU:0", "CPU:1"])
