"""XLNet for TensorFlow and Keras 3.

Importing registers the classes with Keras, so that
`keras.models.load_model` finds them.
"""

from xlnet_tf import cpp_log

if cpp_log.is_command():
    cpp_log.set_level()  # before Keras loads TensorFlow

from xlnet_tf.backbone import XLNetBackbone
from xlnet_tf.config import XLNetConfig
from xlnet_tf.memory import StatefulMemory
from xlnet_tf.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.classification import XLNetMultipleChoice
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.classification import XLNetTokenClassifier
from xlnet_tf.tasks.preprocessors import XLNetMultipleChoicePreprocessor
from xlnet_tf.tasks.preprocessors import XLNetRankerPreprocessor
from xlnet_tf.tasks.preprocessors import XLNetTextClassifierPreprocessor
from xlnet_tf.tasks.preprocessors import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.question_answering import XLNetSpanClassifier
from xlnet_tf.tasks.question_preprocessor import (
    XLNetQuestionAnsweringPreprocessor,
)
from xlnet_tf.tasks.ranking import XLNetRanker
from xlnet_tf.version import __version__

if cpp_log.is_command():
    cpp_log.apply_to_abseil()

__all__ = [
    "StatefulMemory",
    "XLNetBackbone",
    "XLNetConfig",
    "XLNetMultipleChoice",
    "XLNetMultipleChoicePreprocessor",
    "XLNetPretrainer",
    "XLNetQuestionAnswering",
    "XLNetQuestionAnsweringPreprocessor",
    "XLNetRanker",
    "XLNetRankerPreprocessor",
    "XLNetSpanClassifier",
    "XLNetTextClassifier",
    "XLNetTextClassifierPreprocessor",
    "XLNetTextRegressor",
    "XLNetTokenClassifier",
    "XLNetTokenClassifierPreprocessor",
    "__version__",
]
