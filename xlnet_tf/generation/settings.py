"""Settings of generation, and the special tokens of generated texts."""

import dataclasses

import numpy as np

from data_pipeline.base import settings
from data_pipeline.base.settings import setting
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_DOCUMENT_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import SPECIAL_IDS


@dataclasses.dataclass(frozen=True)
class GenerationSettings(settings.Settings):
    """Settings of generation, also options of `python -m xlnet_tf.generate`.

    The default is greedy search: each step chooses the likeliest token.
    If `sample` is True, or `temperature`, `top_k` or `top_p` is not the
    default, tokens are drawn at random. If `num_beams` is above 1, beam search
    finds the texts.

    Args:
        max_new_tokens: int, maximum number of new tokens per text. Default 64.
        min_new_tokens: int, minimum number of new tokens before a text may end.
            Default 0.
        num_sequences: int, number of texts per prompt, best first. Beam search
            may find fewer texts. More than one text needs sampling or beam
            search. Default 1.
        sample: bool, whether to draw tokens at random even with the default
            `temperature`, `top_k` and `top_p`. Default False.
        temperature: float, divisor of the logits before a token is drawn.
            Default 1.
        top_k: int, number of likeliest tokens to draw from. Default 0: all
            tokens.
        top_p: float. A token is drawn from the smallest set of likeliest tokens
            whose probabilities sum up to `top_p`. Default 1.
        repetition_penalty: float. For tokens that occurred before, in the
            prompt or the text, positive logits are divided by the penalty, and
            negative logits are multiplied by the penalty, as in CTRL
            (https://arxiv.org/abs/1909.05858). Default 1.
        no_repeat_ngram: int, size of n-grams that may occur only once in the
            prompt and the text together. Default 0: no limit.
        num_beams: int, number of beams in beam search. Default 1.
        length_penalty: float, alpha of https://arxiv.org/abs/1609.08144: a
            text's score is its log-probability divided by
            ((5 + tokens) / 6)^alpha. Default 0.
        early_stopping: bool, whether beam search stops as soon as `num_beams`
            texts have ended. Default False: the search continues until no other
            text can be better.
        stop: tuple of str, the stop strings. A text ends before the first stop
            string.
        seed: int, seed of the random tokens. With the same seed the texts are
            the same for any batch size. Default 0.
        max_prompt_tokens: int, maximum number of tokens in a prompt; longer
            prompts are refused. Default 4096.
        segment_length: int, number of prompt tokens read at a time. These
            tokens may attend to the memories, which are the states of the last
            `memory_length` tokens before them. Default None: all tokens at
            once.
        batch_size: int, number of prompts per batch. Default 8.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range, or settings contradict each
            other.
    """

    max_new_tokens: int = setting(
        64, "maximum tokens of a generated text", settings.POSITIVE
    )
    min_new_tokens: int = setting(
        0, "tokens before a text may end", settings.NOT_NEGATIVE
    )
    num_sequences: int = setting(
        1, "texts per prompt, best first", settings.POSITIVE
    )
    sample: bool = setting(False, "draw tokens at random")
    temperature: float = setting(
        1.0,
        "divide the logits by this before drawing a token",
        settings.POSITIVE,
    )
    top_k: int = setting(
        0,
        "draw from this many likeliest tokens; 0: from all",
        settings.NOT_NEGATIVE,
    )
    top_p: float = setting(
        1.0,
        "draw from the fewest tokens whose probabilities sum up to this",
        settings.FRACTION_ABOVE_0,
    )
    repetition_penalty: float = setting(
        1.0,
        "above 1: make tokens that occurred before less likely",
        settings.POSITIVE,
    )
    no_repeat_ngram: int = setting(
        0,
        "size of n-grams that may occur only once; 0: no limit",
        settings.NOT_NEGATIVE,
    )
    num_beams: int = setting(1, "beams of beam search", settings.POSITIVE)
    length_penalty: float = setting(
        0.0, "above 0: longer texts score higher", settings.NOT_NEGATIVE
    )
    early_stopping: bool = setting(
        False, "stop when as many texts have ended as there are beams"
    )
    stop: tuple[str, ...] = setting(
        (), "a text ends before the first of these strings"
    )
    seed: int = setting(0, "seed of the random tokens", settings.NOT_NEGATIVE)
    max_prompt_tokens: int = setting(
        4096, "refuse longer prompts", settings.POSITIVE
    )
    segment_length: int | None = setting(
        None,
        "read a prompt in segments of this many tokens, with memory (default: "
        "all at once)",
        settings.POSITIVE,
    )
    batch_size: int = setting(8, "prompts per batch", settings.POSITIVE)

    def __post_init__(self):
        super().__post_init__()
        if not all(self.stop):
            raise ValueError(
                "`stop` must be strings of at least one character. "
                f"Received: stop={list(self.stop)}."
            )
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                "`min_new_tokens` must not be above `max_new_tokens`. "
                f"Received: {self.min_new_tokens} and {self.max_new_tokens}."
            )
        if self.samples and self.num_beams > 1:
            raise ValueError(
                "beam search draws nothing at random: leave `num_beams`, or "
                "`sample`, `temperature`, `top_k` and `top_p`, out. Received: "
                f"num_beams={self.num_beams}."
            )
        if not self.samples and self.num_sequences > self.num_beams:
            raise ValueError(
                "several texts for a prompt need as many beams (`num_beams`), "
                "or random ones (`sample`). Received: "
                f"num_sequences={self.num_sequences}."
            )

    @property
    def samples(self):
        """Whether tokens are drawn at random."""
        given = self.temperature != 1 or self.top_k > 0 or self.top_p != 1
        return self.sample or given


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Special tokens of generated texts.

    Shapes: V = `vocabulary_size`, the size of the model's vocabulary.

    Attributes:
        num_pieces: int, number of the tokenizer's pieces. A model's vocabulary
            may be larger.
        end_ids: tuple of int, ids of the tokens that end a text.
    """

    num_pieces: int
    end_ids: tuple = (SEP_ID, CLS_ID, END_OF_DOCUMENT_ID)

    def ends(self, vocabulary_size):
        """Mark the tokens that end a text, bool array [V]."""
        return np.isin(np.arange(vocabulary_size), self.end_ids)

    def blocked(self, vocabulary_size):
        """Mark the tokens that are never generated, bool array [V]."""
        token = np.arange(vocabulary_size)
        special = np.isin(token, list(SPECIAL_IDS.values()))
        is_end = self.ends(vocabulary_size)
        return (special & ~is_end) | (token >= self.num_pieces)
