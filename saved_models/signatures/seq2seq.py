"""Signatures of a sequence-to-sequence model.

Shapes: N sources, R targets per source, T tokens, S new tokens.
"""

import dataclasses

import tensorflow as tf

from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures.base import ModelSignatures
from saved_models.signatures.generate import GenerateSignature
from xlnet_tf.generation.sources import of_sources


class Seq2SeqSignatures(ModelSignatures):
    """Signatures of a model that generates targets from sources.

    Args:
        model: XLNetSeq2Seq.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings. `sequence_length` is the maximum length of a
            source and its target together. If `generation` is given, it
            replaces the generation settings of the task.
    """

    def __init__(self, model, tokenizer, settings):
        super().__init__(model, tokenizer, settings)
        generation = settings.generation or model.generation_settings()
        settings = dataclasses.replace(settings, generation=generation)
        # As in training, room for the longest target of the task is left.
        target_length = generation.max_new_tokens
        if model.preprocessor is not None:
            target_length = model.preprocessor.target_length
        self._generation = SourceSignature(
            *(self._served, self._tokenizer, tokenizer, self._layout),
            *(settings, target_length),
        )

    def signatures(self):
        signature = self._generation.signature()
        return {"serving_default": signature, "generate": signature}


class SourceSignature(GenerateSignature):
    """Signature that generates with `XLNetSeq2Seq`; see `GenerateSignature`.

    Args:
        served, graph_tokenizer, tokenizer, layout, settings: see
            `GenerateSignature`.
        target_length: int, tokens of `sequence_length` that are kept free for
            the target.

    Raises:
        ValueError: if `sequence_length` leaves no room for a source.
    """

    _summary = "A text generated from each source, by the export's settings."
    _meaning = {
        **GenerateSignature._meaning,
        "text": "string [N], UTF-8; a long text is truncated at the end",
        "generated": "string [N, R], the targets of each source, best first",
        "error": 'string [N], "" unless the source is empty',
    }
    _example = "It rains, and the street is wet."
    _noun = "source"
    _end = (SEP_ID,)

    def __init__(
        self,
        served,
        graph_tokenizer,
        tokenizer,
        layout,
        settings,
        target_length,
    ):
        room = settings.sequence_length - target_length
        if room < 3:
            raise ValueError(
                "`sequence_length` holds a source and its target, so it must "
                "be at least 3 above the length of a target. Received: "
                f"sequence_length={settings.sequence_length}, and targets of "
                f"{target_length} tokens."
            )
        buckets = [x - target_length for x in settings.seq_length_buckets]
        settings = dataclasses.replace(
            settings,
            sequence_length=room,
            seq_length_buckets=tuple(x for x in buckets if x >= 3),
        )
        super().__init__(served, graph_tokenizer, tokenizer, layout, settings)

    def _cut(self, token_ids):
        symbols = len(self._begin) + len(self._end)
        return token_ids[:, : self._most_tokens - symbols]

    def _inputs(self, history):
        features, _ = super()._inputs(history)
        return of_sources(features)

    def _texts(self, tokens):
        texts, *others = super()._texts(tokens)
        # A target is a separate text, so it has no leading space.
        return tf.strings.regex_replace(texts, "^ ", ""), *others
