"""Tokens that end a generated text, and tokens that are never generated."""

import dataclasses

import numpy as np

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_DOCUMENT_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import SPECIAL_IDS


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Special tokens of generated texts.

    Attributes:
        num_pieces: int, pieces of the tokenizer; a model may have more tokens.
        end_ids: tuple of int, tokens that end a text.
    """

    num_pieces: int
    end_ids: tuple = (SEP_ID, CLS_ID, END_OF_DOCUMENT_ID)

    def ends(self, vocabulary_size):
        """bool array [V], tokens that end a text."""
        return np.isin(np.arange(vocabulary_size), self.end_ids)

    def blocked(self, vocabulary_size):
        """bool array [V], tokens that no text gets."""
        token = np.arange(vocabulary_size)
        special = np.isin(token, list(SPECIAL_IDS.values()))
        is_end = self.ends(vocabulary_size)
        return (special & ~is_end) | (token >= self.num_pieces)
