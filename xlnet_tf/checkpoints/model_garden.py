"""Model Garden's TensorFlow 2 checkpoints."""

from xlnet_tf.checkpoints.tensorflow import TensorFlowSource


class ModelGardenSource(TensorFlowSource):
    """PLACEHOLDER"""
