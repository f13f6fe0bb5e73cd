"""Signatures of token classification, which tag the words of texts.

Shapes: N texts, W words of a text, T tokens, C classes.
"""

import re

import tensorflow as tf

from data_pipeline.features.packing import word_pieces
from data_pipeline.tokenization.ragged import row_ids
from saved_models.signatures.base import TaskSignatures
from saved_models.signatures.checks import at_most
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs
from saved_models.signatures.texts import label_names

# Characters that separate words: Unicode's spaces except no-break spaces, which
# CoNLL files also have inside words, as in "10\u00a0000".
_NO_BREAK = "\u00a0\u2007\u202f"
_BLANKS = [
    chr(code)
    for code in range(0x10000)
    if chr(code).isspace() and chr(code) not in _NO_BREAK
]
_BETWEEN_WORDS = "".join(f"\\x{{{ord(x):x}}}" for x in _BLANKS)  # syntax of RE2

_MEANING = {
    "text": "string [N], UTF-8, with spaces between words; a no-break space "
    "is part of a word",
    "words": "string [N, W], '' for no word",
    "tags": "string [N, W], '' for no word, and for words beyond the longest "
    "sequence",
    "scores": "float32 [N, W], probability of each tag; 0 for none",
    "count": "int32 [N], number of words of each text",
}
_IDS_MEANING = {
    **_MEANING,
    "logits": "float32 [N, T, C]",
    "scores": "float32 [N, T, C], probabilities of the classes",
    "labels": "string [N, C], all classes, the same in each row",
}


def count_words(text):
    """Count the words into which an export splits a text.

    Args:
        text: str, the text.
    """
    return len(list(filter(None, re.split(f"[{''.join(_BLANKS)}]", text))))


class TaggerSignatures(TaskSignatures):
    """Signatures of token classification; the first piece decides a word's tag.

    Args:
        model: XLNetTokenClassifier.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        self._labels = label_names(model)

    def signatures(self):
        shown = {"text": "Mary Shelley was born in London ."}
        ids = self._id_meaning(
            pad_side=self._preprocessor.pad_side, first="text and its [SEP]"
        )
        return {
            "serving_default": Signature(
                self.tag,
                string_specs(text=1),
                "A tag for each word of each text; spaces separate words.",
                _MEANING | ids,
                self._examples(shown, "text", 2),
            ),
            "ids": Signature(
                self.ids,
                id_specs(),
                "Classes of ready ids, padded on the right.",
                _IDS_MEANING | ids,
                self._example_ids(),
            ),
        }

    def tag(self, text):
        """Find the tag of each word.

        Args:
            text: string [N], with spaces between words.

        Returns:
            dict of `words` and `tags` (string [N, W]), `scores` (float32
            [N, W], probabilities of the tags) and `count` (int32 [N], numbers
            of words).
        """
        # Replace bytes that are not UTF-8 by U+FFFD.
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        words = tf.strings.regex_replace(text, f"[{_BETWEEN_WORDS}]+", " ")
        words = tf.strings.split(words)  # [N, (W)]
        # W is the number of words of the text with the most words.
        longest = tf.reduce_max(tf.concat([[0], words.row_lengths()], 0))
        check = at_most(
            tf.size(text, tf.int64) * longest,
            self._settings.max_request_tokens,
            "words in a request, padding included",
        )
        with tf.control_dependencies([check]):
            words = tf.identity(words)
        # [all words, (pieces)]
        ids = word_pieces(self._tokenizer, words.flat_values)
        pieces = words.with_flat_values(ids).merge_dims(1, 2)  # [N, (T)]
        logits = self._outputs(self._preprocessor.pack(pieces))
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        scores = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        # Position of the first piece of each word in the sequence.
        rows = row_ids(words)
        places = ids.row_starts() - tf.gather(pieces.row_starts(), rows)
        is_read = places < self._settings.sequence_length - 2
        places += self._preprocessor.text_begin
        first = tf.stack([rows, tf.where(is_read, places, 0)], axis=1)
        tags = tf.gather(self._labels, tf.gather_nd(best, first))
        scores = tf.gather_nd(scores, first)

        def by_text(values, filler):
            values = tf.where(is_read, values, filler)
            return words.with_flat_values(values).to_tensor(filler)

        return {
            "words": words.to_tensor(""),
            "tags": by_text(tags, ""),
            "scores": by_text(scores, 0.0),
            "count": tf.cast(words.row_lengths(), tf.int32),
        }

    def ids(self, token_ids, segment_ids, padding_mask):
        """Compute the classes of token ids; each input is int32 [N, T]."""
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        shape = tf.shape(token_ids)
        logits = self._outputs(self._checked(features))[:, : shape[1]]
        return {
            "logits": logits,
            "scores": tf.nn.softmax(logits),
            "labels": tf.tile(self._labels[None], [shape[0], 1]),
        }
