"""XLNet for TensorFlow and Keras 3.

Importing registers the classes with Keras, so that
`keras.models.load_model` finds them.
"""

from xlnet_tf.backbone import XLNetBackbone
from xlnet_tf.config import XLNetConfig
from xlnet_tf.memory import StatefulMemory
from xlnet_tf.pretrainer import XLNetPretrainer
from xlnet_tf.version import __version__

__all__ = [
    "StatefulMemory",
    "XLNetBackbone",
    "XLNetConfig",
    "XLNetPretrainer",
    "__version__",
]
