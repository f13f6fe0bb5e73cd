"""Signatures of question answering: answers as spans of contexts.

Shapes: N questions, n answers per question, W windows of all questions, T
tokens, S starts per window, E ends per start.
"""

import tensorflow as tf

from data_pipeline.features.answers import best_spans
from data_pipeline.tokenization.symbols import CLS_ID
from saved_models.signatures.base import TaskSignatures
from saved_models.signatures.checks import after
from saved_models.signatures.checks import same_rows
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs

_MEANING = {
    "question": "string [N], UTF-8",
    "context": "string [N], UTF-8, of any length",
    "begin": (
        "int32 [N], where the answer begins in the context, in characters "
        "(code points); -1 = no answer"
    ),
    "end": "int32 [N], end of the answer, exclusive; -1 = no answer",
    "score": (
        "float32 [N], log-probability of the best span; -2e6 if there is no "
        "span"
    ),
    "null_score": "float32 [N], logit that there is no answer",
    "n_best_answers": "string [N, n], best first; '' = no more answers",
    "n_best_begins": "int32 [N, n]",
    "n_best_ends": "int32 [N, n]",
    "n_best_scores": "float32 [N, n]",
}
_IDS_MEANING = {
    "answer_mask": "int32 [N, T], 1 = an answer may begin or end here",
    "class_index": "int32 [N], position of [CLS]",
    "class_logits": "float32 [N], above 0 = no answer",
    "start_top_scores": "float32 [N, S], log-probabilities, best first",
    "start_top_positions": "int32 [N, S]",
    "end_top_scores": "float32 [N, S, E], for each start, best first",
    "end_top_positions": "int32 [N, S, E]",
}


class QuestionSignatures(TaskSignatures):
    """Signatures of question answering, for raw text and for token ids.

    Args:
        model: XLNetQuestionAnswering. A question has no answer if the
            question's `null_score` is above the model's `null_threshold`. If
            this threshold is None, all questions have an answer. Answers have
            at most `max_answer_length` pieces.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings; n is `num_candidates`.

    Raises:
        ValueError: if `sequence_length` leaves no room for the context after
            a question.
    """

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        self._preprocessor.check_size = self._check_windows
        self._null_threshold = model.null_threshold
        self._max_answer_length = model.max_answer_length
        # The head chooses this many tokens of a sequence.
        self._min_tokens = max(model.num_starts, model.num_ends)

    def signatures(self):
        shown = {
            "question": "Who wrote the book?",
            "context": "The book was written by Mary Shelley in 1818.",
        }
        answer = "string [N], a part of the context; '' = no answer"
        if self._null_threshold is not None:
            answer += f", where null_score is above {self._null_threshold:g}"
        ids = id_specs()
        ids["answer_mask"] = tf.TensorSpec(
            [None, None], tf.int32, "answer_mask"
        )
        ids["class_index"] = tf.TensorSpec([None], tf.int32, "class_index")
        examples = self._example_ids()
        for example in examples:
            example["answer_mask"] = example["padding_mask"]
            is_class = example["token_ids"] == CLS_ID
            example["class_index"] = is_class.argmax(1).astype("int32")
        return {
            "serving_default": Signature(
                self.answer,
                string_specs(question=1, context=1),
                "The part of each context that answers its question; a long "
                "context is read in windows.",
                {**_MEANING, "answer": answer},
                self._examples(shown, "context", 3),
            ),
            "ids": Signature(
                self.ids,
                ids,
                "The best spans of ready ids, padded on the right.",
                _IDS_MEANING
                | self._id_meaning(
                    pad_side="right",
                    first="the context and its [SEP]",
                    second="the question",
                ),
                examples,
            ),
        }

    def answer(self, question, context):
        """Find the span that answers each question.

        Args:
            question: string [N].
            context: string [N].

        Returns:
            dict of `answer` (string), `begin`, `end` (int32), `score` and
            `null_score` (float32), all [N]. The dict also has `n_best_answers`,
            `n_best_begins`, `n_best_ends` and `n_best_scores`, all [N, n].
        """
        question, context = same_rows(question=question, context=context)
        windows = self._preprocessor.windows(
            {"question": question, "context": context}
        )
        spans = best_spans(
            self._outputs(windows.features, self._min_tokens, True),
            windows,
            context,
            self._settings.num_candidates,
            self._max_answer_length,
        )
        best = {name: spans[name][:, 0] for name in ("text", "begin", "end")}
        if self._null_threshold is not None:
            is_none = spans["null_score"] > self._null_threshold
            for name, nothing in (("text", ""), ("begin", -1), ("end", -1)):
                best[name] = tf.where(is_none, nothing, best[name])
        return {
            "answer": best["text"],
            "begin": best["begin"],
            "end": best["end"],
            "score": spans["score"][:, 0],
            "null_score": spans["null_score"],
            "n_best_answers": spans["text"],
            "n_best_begins": spans["begin"],
            "n_best_ends": spans["end"],
            "n_best_scores": spans["score"],
        }

    def ids(
        self, token_ids, segment_ids, padding_mask, answer_mask, class_index
    ):
        """Find the best spans in token ids.

        Args:
            token_ids, segment_ids, padding_mask, answer_mask: int32 [N, T].
            class_index: int32 [N], positions of [CLS].

        Returns:
            dict, the outputs of `XLNetQuestionAnswering`.
        """
        shape = tf.shape(token_ids)
        checks = [
            tf.debugging.assert_equal(
                tf.shape(answer_mask),
                shape,
                "`answer_mask` must have the shape of `token_ids`",
            ),
            tf.debugging.assert_equal(
                tf.shape(class_index),
                shape[:1],
                "`class_index` must have a number for each row of `token_ids`",
            ),
            tf.debugging.Assert(
                tf.reduce_all((class_index >= 0) & (class_index < shape[1])),
                [
                    "`class_index` must be from 0 to T - 1. Received:",
                    class_index,
                ],
            ),
        ]
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
            "answer_mask": answer_mask,
            "class_index": class_index,
        }
        features = after(checks, features)
        return self._outputs(self._checked(features), self._min_tokens)
