"""Text -> TFRecord -> tf.data; knows nothing of the model.

`data_pipeline.base` is the ground floor of all three packages.

Names are imported when they are first used, so that the commands answer
`--help` without loading SentencePiece or TensorFlow.
"""

import importlib
import typing

_MODULES = {
    "MixedPretrainingData": "mixing",
    "PretrainingData": "pretraining",
    "Tokenizer": "tokenization.tokenizer",
    "read_examples": "tasks.reading",
}

# What `__getattr__` gives, for type checkers and editors.
if typing.TYPE_CHECKING:
    from data_pipeline.mixing import (
        MixedPretrainingData as MixedPretrainingData,
    )
    from data_pipeline.pretraining import PretrainingData as PretrainingData
    from data_pipeline.tasks.reading import read_examples as read_examples
    from data_pipeline.tokenization.tokenizer import Tokenizer as Tokenizer

__all__ = [*_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(
            f"module 'data_pipeline' has no attribute {name!r}"
        )
    module = importlib.import_module(f"data_pipeline.{_MODULES[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
