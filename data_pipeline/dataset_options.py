"""How tf.data runs every data set of this project."""

import tensorflow as tf


def dataset_options():
    """Options without the model that tf.data tunes itself by.

    That model's thread misses its cancellation and sleeps on (TensorFlow 2.20):
    an iterator that ends after 40 seconds may wait for 40 more, that of every
    evaluation too (`benchmarks/iterator_ends.py`). Without it,
    `tf.data.AUTOTUNE` means as many calls at a time as there are cores.

    Returns:
        tf.data.Options.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options
