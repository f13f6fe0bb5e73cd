"""Public names, which `__init__.py` imports when they are first used."""

from .mixing import MixedPretrainingData as MixedPretrainingData
from .pretraining import PretrainingData as PretrainingData
from .tasks.reading import read_examples as read_examples
from .tokenization.tokenizer import Tokenizer as Tokenizer
