"""XLNet for TensorFlow and Keras 3.

Names are imported when they are first used, so that the commands answer
`--help` without loading Keras. The classes are registered with Keras as soon as
both packages are imported, in either order, so that
`keras.models.load_model` finds them.
"""

import importlib
import importlib.util
import os
import sys
import typing

import wrapt

from xlnet_tf.version import __version__

_MODULES = {
    "AdamW": "optimizer",
    "StatefulMemory": "model.memory",
    "WarmupSchedule": "optimizer",
    "BertBackbone": "model.bert.backbone",
    "BertConfig": "config",
    "XLNetBackbone": "model.backbone",
    "XLNetConfig": "config",
    "XLNetMultiLabelClassifier": "tasks.multi_label_classifier",
    "XLNetMultipleChoice": "tasks.choices",
    "XLNetMultipleChoicePreprocessor": "preprocessing.choices",
    "XLNetPretrainer": "objectives.pretrainer",
    "XLNetQuestionAnswering": "tasks.question_answering",
    "XLNetQuestionAnsweringPreprocessor": "preprocessing.questions",
    "XLNetRanker": "tasks.choices",
    "XLNetRankerPreprocessor": "preprocessing.choices",
    "XLNetSeq2Seq": "tasks.seq2seq",
    "XLNetSeq2SeqPreprocessor": "preprocessing.seq2seq",
    "XLNetSpanClassifier": "tasks.question_answering",
    "XLNetTextClassifier": "tasks.text_classifier",
    "XLNetTextClassifierPreprocessor": "preprocessing.texts",
    "XLNetTextRegressor": "tasks.text_regressor",
    "XLNetTokenClassifier": "tasks.token_classifier",
    "XLNetTokenClassifierPreprocessor": "preprocessing.tokens",
    "load": "loading",
}
_FOLDERS = ("objectives", "pictures")


# What `__getattr__` gives, for type checkers and editors.
if typing.TYPE_CHECKING:
    from xlnet_tf import objectives as objectives
    from xlnet_tf import pictures as pictures
    from xlnet_tf.config import BertConfig as BertConfig
    from xlnet_tf.config import XLNetConfig as XLNetConfig
    from xlnet_tf.loading import load as load
    from xlnet_tf.model.backbone import XLNetBackbone as XLNetBackbone
    from xlnet_tf.model.bert.backbone import BertBackbone as BertBackbone
    from xlnet_tf.model.memory import StatefulMemory as StatefulMemory
    from xlnet_tf.objectives.pretrainer import (
        XLNetPretrainer as XLNetPretrainer,
    )
    from xlnet_tf.optimizer import AdamW as AdamW
    from xlnet_tf.optimizer import WarmupSchedule as WarmupSchedule
    from xlnet_tf.preprocessing.choices import (
        XLNetMultipleChoicePreprocessor as XLNetMultipleChoicePreprocessor,
    )
    from xlnet_tf.preprocessing.choices import (
        XLNetRankerPreprocessor as XLNetRankerPreprocessor,
    )
    from xlnet_tf.preprocessing.questions import (
        XLNetQuestionAnsweringPreprocessor as XLNetQuestionAnsweringPreprocessor,  # noqa: E501
    )
    from xlnet_tf.preprocessing.seq2seq import (
        XLNetSeq2SeqPreprocessor as XLNetSeq2SeqPreprocessor,
    )
    from xlnet_tf.preprocessing.texts import (
        XLNetTextClassifierPreprocessor as XLNetTextClassifierPreprocessor,
    )
    from xlnet_tf.preprocessing.tokens import (
        XLNetTokenClassifierPreprocessor as XLNetTokenClassifierPreprocessor,
    )
    from xlnet_tf.tasks.choices import (
        XLNetMultipleChoice as XLNetMultipleChoice,
    )
    from xlnet_tf.tasks.choices import XLNetRanker as XLNetRanker
    from xlnet_tf.tasks.multi_label_classifier import (
        XLNetMultiLabelClassifier as XLNetMultiLabelClassifier,
    )
    from xlnet_tf.tasks.question_answering import (
        XLNetQuestionAnswering as XLNetQuestionAnswering,
    )
    from xlnet_tf.tasks.question_answering import (
        XLNetSpanClassifier as XLNetSpanClassifier,
    )
    from xlnet_tf.tasks.seq2seq import XLNetSeq2Seq as XLNetSeq2Seq
    from xlnet_tf.tasks.text_classifier import (
        XLNetTextClassifier as XLNetTextClassifier,
    )
    from xlnet_tf.tasks.text_regressor import (
        XLNetTextRegressor as XLNetTextRegressor,
    )
    from xlnet_tf.tasks.token_classifier import (
        XLNetTokenClassifier as XLNetTokenClassifier,
    )


def _check_neighbours():
    """Refuse files of the user that stand before packages of this project.

    Raises:
        ImportError: it names the file.
    """
    for name, part in (("data_pipeline", "base"), ("saved_models", "client")):
        spec = importlib.util.find_spec(name)
        folders = spec.submodule_search_locations or () if spec else ()
        if spec and not any(
            os.path.isdir(os.path.join(folder, part)) for folder in folders
        ):
            found = list(folders)[0] if folders else spec.origin
            raise ImportError(
                f"{found} is imported instead of the package {name} of "
                "xlnet_tf: rename it, or start Python in another folder."
            )


_check_neighbours()

__all__ = ["__version__", *_FOLDERS, *_MODULES]


def __getattr__(name):
    if name in _FOLDERS:
        return importlib.import_module(f"xlnet_tf.{name}")
    if name not in _MODULES:
        advice = ""
        if name.endswith("Tokenizer"):
            advice = (
                "; the tokenizer is `data_pipeline.Tokenizer`, and that of a "
                "model `model.preprocessor.tokenizer`"
            )
        raise AttributeError(
            f"module 'xlnet_tf' has no attribute {name!r}{advice}"
        )
    module = importlib.import_module(f"xlnet_tf.{_MODULES[name]}")
    globals()[name] = getattr(module, name)
    if "keras" in sys.modules:
        _import_classes()
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})


def _import_classes():
    """Import every class, which registers it with Keras by its name."""
    for module in sorted(set(_MODULES.values())):
        importlib.import_module(f"xlnet_tf.{module}")


@wrapt.when_imported("keras")
def _register_with_keras(keras):
    ours = [m for n, m in sys.modules.items() if n.startswith("xlnet_tf.")]
    if any(getattr(m.__spec__, "_initializing", False) for m in ours):
        # One of these modules is importing Keras and is incomplete;
        # `__getattr__`, which imports it, imports the others afterwards.
        return
    _import_classes()
