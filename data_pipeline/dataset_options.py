"""Options of every tf.data data set of this project."""

import tensorflow as tf


def dataset_options():
    """tf.data options without autotuning.

    In TensorFlow 2.20 the thread of tf.data's autotuning misses its
    cancellation: an iterator that ends after 40 seconds may wait for 40 more,
    the iterator of every evaluation too. Without autotuning,
    `tf.data.AUTOTUNE` means as many calls at a time as there are cores.

    Returns:
        tf.data.Options.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options
