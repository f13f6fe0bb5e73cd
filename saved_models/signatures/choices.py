"""Signatures of multiple choice and of ranking.

Shapes: N questions or queries, O options or documents, T tokens.
"""

import tensorflow as tf

from saved_models.signatures.base import TaskSignatures
from saved_models.signatures.checks import after
from saved_models.signatures.checks import at_most
from saved_models.signatures.checks import same_rows
from saved_models.signatures.signature import IDS
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs

_FILLER_SCORE = -1e30  # as in XLNetRanker
_CHOICE_MEANING = {
    "context": "string [N], UTF-8",
    "question": "string [N], UTF-8",
    "options": "string [N, O], UTF-8",
    "answer": "int32 [N], number of the likeliest option, from 0",
    "option": "string [N], text of the likeliest option",
    "scores": "float32 [N, O], probabilities of the options",
    "logits": "float32 [N, O]",
}
_RANKING_MEANING = {
    "query": "string [N], UTF-8",
    "documents": "string [N, O], UTF-8, '' for no document",
    "scores": "float32 [N, O], logits; -1e30 for no document",
    "order": "int32 [N, O], numbers of the documents from 0, best first",
}


class _ManySignatures(TaskSignatures):
    """Base class of signatures that score O sequences in each row."""

    joins_requests = False  # rows have different numbers of sequences

    def _meaning(self, meaning):
        return meaning | self._id_meaning(
            pad_side=self._preprocessor.pad_side,
            first="the first part and its [SEP]",
            second="the second",
            axes="N, O, T",
        )

    def _call(self, features):
        # Each example has one sequence per row.
        features = {name: value[:, None] for name, value in features.items()}
        return self._model(features, training=False)[:, 0]

    def _scores(self, features):
        """Compute logits [N, O] from features [N, O, T]."""
        shape = tf.shape(features["token_ids"])
        flat = [shape[0] * shape[1], shape[2]]
        features = {name: tf.reshape(features[name], flat) for name in IDS}
        scores = self._outputs(self._checked(features))
        return tf.reshape(scores, shape[:2])

    def _scores_of_ids(self, token_ids, segment_ids, padding_mask):
        """Compute logits [N, O] from token ids [N, O, T]."""
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        # Check the shapes here, because `_scores` reshapes all inputs to one
        # shape.
        checks = [
            tf.debugging.assert_equal(
                tf.shape(value),
                tf.shape(token_ids),
                f"`{name}` must have the shape of `token_ids`",
            )
            for name, value in features.items()
        ]
        return self._scores(after(checks, features))

    def _example_ids(self):
        return [
            {name: value[:, None] for name, value in example.items()}
            for example in super()._example_ids()
        ]


class ChoiceSignatures(_ManySignatures):
    """Signatures of multiple choice, which find the likeliest option.

    Args:
        model: XLNetMultipleChoice.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    def signatures(self):
        shown = {
            "context": "The street is wet, for it has rained.",
            "question": "Why is the street wet?",
            "options": ["It has rained.", "It is new."],
        }
        return {
            "serving_default": Signature(
                self.choose,
                string_specs(context=1, question=1, options=2),
                "The option that answers each question; a long context is "
                "truncated at the end.",
                self._meaning(_CHOICE_MEANING),
                self._examples(shown, "context", 3),
            ),
            "ids": Signature(
                self.ids,
                id_specs(rank=3),
                f"Scores of options as ready ids, padded on the "
                f"{self._preprocessor.pad_side}.",
                self._meaning(_CHOICE_MEANING),
                self._example_ids(),
            ),
        }

    def choose(self, context, question, options):
        """Find the likeliest option of each question.

        Args:
            context: string [N].
            question: string [N].
            options: string [N, O], at least one option per question.

        Returns:
            dict of `answer` (int32 [N], indices of the likeliest options),
            `option` (string [N], texts of these options) and `scores` (float32
            [N, O], probabilities of all options).
        """
        options, context, question = same_rows(
            options=options, context=context, question=question
        )
        check = tf.debugging.assert_positive(
            tf.shape(options)[1],
            "`options` must have at least one option for a question",
        )
        x = {"context": context, "question": question, "options": options}
        x = after([check, self._check_joined(question, options)], x)
        scores = self._scores(self._preprocessor.features(x))
        # With a reshape, the shape is also known for a request without rows.
        answers = self._answer(tf.reshape(scores, tf.shape(x["options"])))
        option = tf.gather(options, answers["answer"], batch_dims=1)
        return {**answers, "option": option}

    def _check_joined(self, question, options):
        """Make an op that refuses too many bytes of questions and options.

        If the question contains `_`, each option replaces every `_`. Otherwise
        each option is appended to the question.
        """
        length = tf.strings.length(question)
        without_blanks = tf.strings.regex_replace(question, "_", "")
        blanks = tf.maximum(length - tf.strings.length(without_blanks), 1)
        length, blanks, option_lengths = (
            tf.cast(x, tf.int64)
            for x in (length, blanks, tf.strings.length(options))
        )
        return at_most(
            tf.reduce_sum(length[:, None] + blanks[:, None] * option_lengths),
            self._settings.max_request_bytes,
            "bytes of questions with their options in a request",
        )

    def ids(self, token_ids, segment_ids, padding_mask):
        """Compute answers from token ids; each input is int32 [N, O, T]."""
        logits = self._scores_of_ids(token_ids, segment_ids, padding_mask)
        return {**self._answer(logits), "logits": logits}

    def _answer(self, logits):
        return {
            "answer": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "scores": tf.nn.softmax(logits),
        }


class RankerSignatures(_ManySignatures):
    """Signatures of ranking, which score and sort the documents of a query.

    Args:
        model: XLNetRanker.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    def signatures(self):
        shown = {
            "query": "Why is the street wet?",
            "documents": ["It has rained.", "The street is new."],
        }
        return {
            "serving_default": Signature(
                self.rank,
                string_specs(query=1, documents=2),
                "Scores of documents as answers to their query; long texts "
                "are truncated at the end.",
                self._meaning(_RANKING_MEANING),
                self._examples(shown, "query", 3),
            ),
            "ids": Signature(
                self.ids,
                id_specs(rank=3),
                f"Scores of documents as ready ids, padded on the "
                f"{self._preprocessor.pad_side}.",
                self._meaning(_RANKING_MEANING),
                self._example_ids(),
            ),
        }

    def rank(self, query, documents):
        """Score and sort each query's documents.

        Args:
            query: string [N].
            documents: string [N, O], "" for no document.

        Returns:
            dict of `scores` (float32 [N, O]) and `order` (int32 [N, O], indices
            of the documents, best first).
        """
        documents, query = same_rows(documents=documents, query=query)
        x = {"query": query, "documents": documents}
        scores = self._scores(self._preprocessor.features(x))
        # With a reshape, the shape is also known for a request without rows or
        # documents.
        scores = tf.reshape(scores, tf.shape(documents))
        return self._answer(tf.where(documents == "", _FILLER_SCORE, scores))

    def ids(self, token_ids, segment_ids, padding_mask):
        """Compute answers from token ids; each input is int32 [N, O, T]."""
        return self._answer(
            self._scores_of_ids(token_ids, segment_ids, padding_mask)
        )

    def _answer(self, scores):
        order = tf.argsort(scores, direction="DESCENDING", stable=True)
        return {"scores": scores, "order": order}
