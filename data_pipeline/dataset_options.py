"""Options of all tf.data datasets of this project."""

import tensorflow as tf


def dataset_options(is_sharded=True):
    """Return tf.data options without autotuning.

    In TensorFlow 2.20, tf.data's autotuning thread can miss the request to end.
    An iterator that has run for 40 seconds may then need 40 more seconds to
    end. This happens in training and in evaluations. Without autotuning,
    `tf.data.AUTOTUNE` means one parallel call per core.

    Args:
        is_sharded: bool, whether TensorFlow may divide the elements among
            workers. Default True.

    Returns:
        tf.data.Options.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    if not is_sharded:
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
    return options
