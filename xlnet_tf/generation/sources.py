"""Generation of target texts from source texts, for sequence to sequence.

Shapes: B sources, T tokens of a source, K beams, S steps, X targets.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from keras import ops

from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.generator import TextGenerator
from xlnet_tf.generation.search import beam_search
from xlnet_tf.generation.search import begin
from xlnet_tf.generation.search import check_beams
from xlnet_tf.generation.search import extend
from xlnet_tf.generation.search import length_penalty
from xlnet_tf.generation.search import without_rules
from xlnet_tf.generation.settings import Symbols


class SourceGenerator(TextGenerator):
    """Generator of target texts for source texts.

    Sources are encoded as in training: a source that is too long is truncated
    at the end, and [SEP] is appended. `repetition_penalty` and
    `no_repeat_ngram` apply only to the target.

    Args:
        model: XLNetSeq2Seq.
        preprocessor: XLNetSeq2SeqPreprocessor.
        settings: GenerationSettings.

    Raises:
        ValueError: see `TextGenerator`.
    """

    keeps_prompt = False

    def __init__(self, model, preprocessor, settings):
        super().__init__(model, preprocessor.tokenizer, settings)
        self._max_tokens = min(self._max_tokens, preprocessor.source_length)

    def encode(self, prompt):
        """Encode a source as tokens.

        Raises:
            ValueError: if the source has no tokens.
        """
        token_ids = self.tokenizer.encode(prompt)
        if not token_ids:
            raise ValueError(
                "a source must have at least one token; this one is empty: "
                f"{prompt!r}."
            )
        room = self._max_tokens - len(self._begin_ids) - 1
        return [*self._begin_ids, *token_ids[:room], SEP_ID]

    def _batch(self, prompts):
        features, _ = super()._batch(prompts)
        return of_sources(features)

    def _text(self, row):
        text = super()._text(row)
        # A target is a separate text, so it has no leading space.
        text.text = text.text.removeprefix(" ")
        return text


def of_sources(features):
    """Make a Decoder's features, and a history that hides sources from rules.

    With this history, the rules of `search.apply_rules` apply only to targets.

    Args:
        features: dict of `token_ids` and `padding_mask` (int32 [B, T], padded
            on the left).

    Returns:
        (dict of features, history). The history is an int32 tensor of shape [B,
        T]. The last column has the last token, encoded by `without_rules`. All
        other columns have -1.
    """
    token_ids = features["token_ids"]
    num_tokens = ops.shape(token_ids)[1]
    is_last = ops.arange(num_tokens, dtype="int32") == num_tokens - 1
    return (
        {
            "token_ids": token_ids,
            "padding_mask": features["padding_mask"],
            "segment_ids": ops.zeros_like(token_ids),
            "next_segment": ops.zeros_like(token_ids[:, :1]) + SECOND_SEGMENT,
        },
        ops.where(is_last, without_rules(token_ids), -1),
    )


def search_targets(model, features, settings, num_pieces):
    """Find the likeliest target of each source, as `generate` does.

    The search is greedy for one beam, else beam search. Nothing is drawn at
    random, and stop strings do not end a target.

    Args:
        model: XLNetSeq2Seq.
        features: dict, see `of_sources`.
        settings: GenerationSettings.
        num_pieces: int, number of the tokenizer's pieces.

    Returns:
        dict of `tokens` (int32 [B, S], -1 after the end) and `log_probability`
        (float32 [B], natural logarithm).

    Raises:
        ValueError: if there are several beams on JAX.
    """
    decoder = make_decoder(model)
    features, history = of_sources(features)
    steps, symbols = settings.max_new_tokens, Symbols(num_pieces)
    check_beams(settings.num_beams)
    if settings.num_beams == 1:
        return _greedy(decoder, features, history, settings, symbols)
    tokens, scores = beam_search(
        *(decoder, decoder.read(features, steps), history, steps),
        *(settings, symbols),
    )
    # After the loop, the shape's batch size is unknown; set it again.
    batch_size = features["token_ids"].shape[0]
    best = tf.ensure_shape(tokens[:, 0], [batch_size, steps])
    scores = tf.ensure_shape(scores, [batch_size, settings.num_beams])
    lengths = tf.reduce_sum(tf.cast(best >= 0, tf.float32), axis=-1)
    penalty = length_penalty(lengths, settings.length_penalty)
    return {"tokens": best, "log_probability": scores[:, 0] * penalty}


def _greedy(decoder, features, history, settings, symbols):
    """Find targets by greedy search; see `search_targets`."""
    settings = dataclasses.replace(
        settings, sample=False, temperature=1.0, top_k=0, top_p=1.0
    )
    steps = settings.max_new_tokens
    context = decoder.read(features, steps)
    state = extend(
        *(decoder, context, begin(decoder, context, history, steps)),
        ops.zeros([ops.shape(history)[0], steps]),  # nothing is drawn
        *(settings, symbols, steps),
    )
    return {
        "tokens": state["history"][:, -steps:],
        "log_probability": ops.sum(state["log_probabilities"], axis=-1),
    }


def decode_targets(tokens, tokenizer):
    """Decode generated tokens to texts.

    Args:
        tokens: int array [X, S], -1 after the end.
        tokenizer: data_pipeline Tokenizer.

    Returns:
        list of X str.
    """
    end_ids = Symbols(tokenizer.vocabulary_size).end_ids
    is_text = (tokens >= 0) & ~np.isin(tokens, end_ids)
    return [
        tokenizer.decode(row[kept].tolist())
        for row, kept in zip(tokens, is_text, strict=True)
    ]
