"""XLNet for TensorFlow and Keras 3.

Importing registers the classes with Keras, so that
`keras.models.load_model` finds them.
"""

import os
import sys

if sys.argv and (
    sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("xlnet-")
):
    # One of our commands is starting, and Keras is going to load TensorFlow:
    # data_pipeline/cpp_log.py, which the model does not know.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from xlnet_tf.config import XLNetConfig
from xlnet_tf.loading import load
from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.preprocessing.texts import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.texts import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.preprocessing.texts import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks.choices import XLNetRanker
from xlnet_tf.tasks.classification import XLNetMultipleChoice
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.classification import XLNetTokenClassifier
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.question_answering import XLNetSpanClassifier
from xlnet_tf.version import __version__

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
    "load",
]
