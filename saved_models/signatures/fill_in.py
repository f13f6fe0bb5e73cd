"""Signatures of a pretrained model: filled blanks and embeddings.

Shapes: N texts, T tokens, P blanks to fill in, k candidates, V vocabulary.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.cleaning import blanks_class
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import MASK_ID
from saved_models.signatures.checks import after
from saved_models.signatures.checks import at_most
from saved_models.signatures.embedding import EmbeddingSignatures
from saved_models.signatures.generate import GenerateSignature
from saved_models.signatures.serving_model import next_power_of_two
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.model.masks import CONTEXT_RANK

MASK = "<mask>"  # a missing token in a raw text

# Rank of the blanks in the factorization order, one step after the context. So
# each blank is predicted from all given words and from no other blank. A causal
# model predicts a blank from the words before the blank.
_BLANK_RANK = 0
_TOKENS_A_TARGET = 128  # counted tokens per target

_FILL_IN_MEANING = {
    "text": f"string [N], UTF-8, with any number of {MASK}",
    "pieces": "string [N, P, k], best first; U+2581 marks a word's beginning",
    "token_ids": "int32 [N, P, k]",
    "log_probabilities": "float32 [N, P, k], natural logarithms",
    "count": "int32 [N], blanks of each text; later rows of P are filler",
}
_FILL_IN_IDS_MEANING = {
    "target_positions": "int32 [N, P]; the model cannot attend to these tokens",
    "log_probabilities": "float32 [N, P, V], natural logarithms",
}


class PretrainerSignatures(EmbeddingSignatures):
    """Signatures of a pretrained model, for raw text and for token ids.

    Args:
        model: XLNetPretrainer.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.

    Raises:
        ValueError: if the vocabulary has fewer than `num_candidates` pieces of
            text, or `generation` is set although the model cannot generate.
    """

    def __init__(self, model, tokenizer, settings):
        vocabulary_size = model.config.vocabulary_size
        symbols = Symbols(tokenizer.vocabulary_size)
        self._is_no_text = symbols.blocked(vocabulary_size)
        self._is_no_text |= symbols.ends(vocabulary_size)
        most = int((~self._is_no_text).sum())
        if settings.num_candidates > most:
            raise ValueError(
                f"`num_candidates` must be between 1 and {most}, the pieces of "
                "the vocabulary that are text. "
                f"Received: num_candidates={settings.num_candidates}."
            )
        super().__init__(model, tokenizer, settings)
        self._word_mark = tokenizer.piece_to_id(BLANK)
        pieces = map(tokenizer.id_to_piece, range(tokenizer.vocabulary_size))
        with tf.device("CPU:0"):  # GPUs cannot store strings
            self._pieces = tf.constant(list(pieces))
        self._generation = None
        if settings.generation is not None:
            self._generation = GenerateSignature(
                self._served,
                self._tokenizer,
                tokenizer,
                self._layout,
                settings,
            )

    def signatures(self):
        generate = {}
        if self._generation is not None:
            generate = {"generate": self._generation.signature()}
        objective = self._served.model.objectives[0]
        # A causal model predicts a blank from the words before the blank.
        # UniLMv2 without the autoencoding loss has not learnt to predict
        # blanks.
        if not objective.fills_blanks and objective.next_token != "content":
            return {**super().signatures(), **generate}
        fill_in = Signature(
            self.fill_in,
            string_specs(text=1),
            f"Likely tokens for every {MASK} of each text.",
            _FILL_IN_MEANING,
            self._examples(
                {"text": f"The {MASK} of the house was open."},
                *("text", 2, [MASK]),
            ),
        )
        positions = tf.TensorSpec([None, None], tf.int32, "target_positions")
        examples = self._example_ids()
        for example in examples:
            example["target_positions"] = example["token_ids"][:, :1] * 0
        return {
            "serving_default": fill_in,
            "fill_in": fill_in,
            **generate,
            **self._embedding_signatures(),
            "fill_in_ids": Signature(
                self.fill_in_ids,
                {**id_specs(), "target_positions": positions},
                "Log-probabilities at chosen positions, given the rest.",
                _FILL_IN_IDS_MEANING | self._id_meaning(),
                examples,
            ),
        }

    def fill_in(self, text):
        """Find likely tokens for each `<mask>` in each text.

        Args:
            text: string [N], UTF-8, with any number of `<mask>`.

        Returns:
            dict of `pieces` (string [N, P, k], best first), `token_ids` (int32
            [N, P, k]), `log_probabilities` (float32 [N, P, k], natural
            logarithms) and `count` (int32 [N], number of blanks of each text).
            In `pieces`, "\\u2581" marks the beginning of a word. If a text has
            fewer than P blanks, the entries after its last blank are filler.
        """
        features, count = self._blanks(text)
        best = self._at_targets(features, self._best)
        return {
            "pieces": tf.gather(self._pieces, best["token_ids"]),
            **best,
            "count": count,
        }

    def fill_in_ids(
        self, token_ids, segment_ids, padding_mask, target_positions
    ):
        """Compute log-probabilities at targets, given the non-target tokens.

        Args:
            token_ids: int32 [N, T]. The model does not attend to the ids at
                target positions.
            segment_ids: int32 [N, T].
            padding_mask: int32 [N, T], 1 = a real token.
            target_positions: int32 [N, P], positions of the targets.

        Returns:
            dict of `log_probabilities` (float32 [N, P, V], natural logarithms).
        """
        features = self._checked(
            {
                "token_ids": token_ids,
                "segment_ids": segment_ids,
                "padding_mask": padding_mask,
            }
        )
        shape = tf.shape(features["token_ids"])
        checks = [
            # Each target returns the whole vocabulary, so the number of targets
            # has a limit.
            at_most(
                tf.size(target_positions),
                max(self._settings.max_request_tokens // _TOKENS_A_TARGET, 1),
                "target positions in a request",
            ),
            tf.debugging.assert_equal(
                tf.shape(target_positions)[0],
                shape[0],
                "`target_positions` must have a row for each row of "
                "`token_ids`",
            ),
            tf.debugging.Assert(
                tf.reduce_all(
                    (target_positions >= 0) & (target_positions < shape[1])
                ),
                [
                    "`target_positions` must be from 0 to T - 1. Received:",
                    target_positions,
                ],
            ),
        ]
        features["target_positions"] = target_positions
        features = after(checks, features)
        target_positions = features["target_positions"]
        is_target = tf.reduce_any(
            tf.range(shape[1]) == target_positions[:, :, None], axis=1
        )
        features["token_ids"] = tf.where(
            is_target, MASK_ID, features["token_ids"]
        )
        features |= self._order(is_target)
        return self._at_targets(
            features, lambda values: {"log_probabilities": values}
        )

    def _best(self, log_probabilities):
        # Candidates for a blank must be text, not symbols such as <sep>.
        log_probabilities = tf.where(
            self._is_no_text, -np.inf, log_probabilities
        )
        best = tf.math.top_k(log_probabilities, k=self._settings.num_candidates)
        return {"token_ids": best.indices, "log_probabilities": best.values}

    def _at_targets(self, features, choose):
        """Apply `choose` to the log-probabilities [N, P, V] at the targets."""
        objective = self._model.objectives[0]
        count = tf.shape(features["target_positions"])[1]
        # The model needs at least one column of targets.
        wanted = tf.maximum(count, 1)
        if self._settings.jit_compile:
            wanted = next_power_of_two(wanted)
        positions = tf.pad(
            features["target_positions"], [[0, 0], [0, wanted - count]]
        )

        def run(features):
            inputs = objective.features(features)
            outputs = self._backbone(
                inputs, training=False, streams=objective.streams
            )
            rows = objective.rows(outputs, features)
            return choose(tf.nn.log_softmax(self._model.logits(rows)))

        outputs = self._run(run, {**features, "target_positions": positions})
        return {name: value[:, :count] for name, value in outputs.items()}

    def _blanks(self, text):
        """Make features with a target per blank; count each text's blanks."""
        parts = tf.strings.split(text, MASK)  # [N, (parts)]
        ids = self._tokenizer(parts.flat_values)  # [all parts, (T)]
        # Each part except the first part of a text gets the blank before the
        # part.
        follows = tf.ones_like(parts.flat_values, tf.int64)
        follows = parts.with_flat_values(follows)
        follows = tf.concat(
            [tf.zeros_like(follows[:, :1]), follows[:, 1:]], axis=1
        ).flat_values
        # A part that directly follows a blank, as in "<mask>.", does not begin
        # a word.
        touches = (follows == 1) & ~tf.strings.regex_full_match(
            parts.flat_values, f"(?s){blanks_class()}.*"
        )
        first = ids[:, :1].to_tensor(-1, shape=[None, 1])[:, 0]
        drop = touches & (first == self._word_mark)
        ids = tf.ragged.boolean_mask(
            ids,
            tf.ragged.range(ids.row_lengths())
            >= tf.cast(drop, tf.int64)[:, None],
        )
        blank = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(follows)], MASK_ID), follows
        )
        ids = tf.concat([blank, ids], axis=1)
        ids = parts.with_flat_values(ids).merge_dims(1, 2)  # [N, (T)]
        # The id of <mask> marks a blank, because no text is encoded as this id.
        features = self._text_features(ids)
        is_blank = tf.equal(features["token_ids"], MASK_ID)
        count = tf.reduce_sum(tf.cast(is_blank, tf.int32), axis=1)
        features["target_positions"] = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_blank)[:, 1], tf.int32), count
        ).to_tensor()
        return {**features, **self._order(is_blank)}, count

    def _order(self, is_blank):
        """Make a dict with `factorization_rank`; {} without a query stream."""
        if not self._model.reads_query:
            return {}
        rank = tf.where(is_blank, _BLANK_RANK, CONTEXT_RANK)
        return {"factorization_rank": rank}
