"""Preprocessor of questions with contexts; long contexts are read in windows.

Shapes: B questions, W windows of all questions, T tokens, A answers of training
examples, n kept answers per question.
"""

from typing import Any

import keras
import numpy as np

from xlnet_tf.preprocessing.answers import answer_tensors
from xlnet_tf.preprocessing.answers import decode
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.preprocessor import add_axis
from xlnet_tf.preprocessing.strings import check_rank
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples
from xlnet_tf.preprocessing.strings import to_tensor

# `contexts` counts distinct contexts, `impossible` questions without an answer.
# `inexact` counts `answers` that begin or end inside a piece; their label
# includes the whole piece. `misplaced` counts answers that are not at their
# `answer_start` in the context, or have no piece; they have no label.
# `left_out` counts questions whose answers are all misplaced, and
# `out_of_reach` questions where no window contains a whole answer.
_COUNTS = (
    *("examples", "contexts", "windows", "cut_questions", "split_contexts"),
    *("windows_with_answer", "impossible", "answers", "inexact", "misplaced"),
    *("left_out", "out_of_reach"),
)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetQuestionAnsweringPreprocessor(Preprocessor):
    """Preprocessor of questions about contexts, padded on the right.

    A sequence is `context sep question sep cls`; in BERT's layout, `cls context
    sep question sep`. A long context is read in overlapping windows. For
    prediction, a batch has one row per window. For training, a batch has one
    row per question: the window with the answer.
    `XLNetQuestionAnswering.answer` merges the predictions of windows.

    Args:
        tokenizer: data_pipeline Tokenizer.
        sequence_length: int, T, maximum number of tokens, including [SEP] and
            [CLS]. Default 512.
        stride: int, number of context tokens between the starts of two windows.
            Default 128.
        max_question_length: int, maximum number of tokens of a question; longer
            questions are truncated at the end. Default 64.
        pad_to_longest: bool, whether batches are padded to their longest window
            instead of `sequence_length`. True is faster without XLA. Default
            False.
        layout: str, "xlnet" (default) or "bert"; see `Preprocessor`.

    Call arguments:
        x: dict of strings "question" [B] and "context" [B].
        y: None for prediction. For training, a dict of "answer_start" (int [B],
            counted in code points of the context) and "answer_text" (strings
            [B]). -1 or "" means no answer.
        sample_weight: [B], for training only.

    Returns:
        Without `y`, a dict of `token_ids`, `segment_ids`, `padding_mask` and
        `answer_mask` (int32 [W, T]), and `class_index` (int32 [W]). With `y`, a
        tuple of features, labels and weights. These features have B rows
        instead of W rows. They also contain `start_positions` (int32 [B]). The
        labels are a dict of `start_positions` and `end_positions` (int32 [B])
        and `is_impossible` (float32 [B]). The weights are float32 [B], 0 if an
        answer is not at its `answer_start`.

    Raises:
        TypeError: if `tokenizer`, `x` or `y` is of the wrong type.
        ValueError: if a setting is out of range, or an entry of `x` or `y` is
            missing.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 27)
    make = xlnet_tf.XLNetQuestionAnsweringPreprocessor
    preprocessor = make(tokenizer, 16, stride=4, max_question_length=4)
    features = preprocessor({"question": ["who"], "context": ["a mat sat"]})
    ```

    Source: run_squad.py of the released code.
    """

    usual_pad_side = "right"
    decode = staticmethod(decode)  # the inverse of `encode`

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 512,
        stride: int = 128,
        max_question_length: int = 64,
        pad_to_longest: bool = False,
        layout: str = "xlnet",
    ):
        self.stride = stride
        self.max_question_length = max_question_length
        super().__init__(
            tokenizer,
            sequence_length,
            pad_to_longest=pad_to_longest,
            layout=layout,
        )

    def check_length(self, value):
        from data_pipeline.features.windows import check_windows

        check_windows(value, self.stride, self.max_question_length)

    def call(self, x, y=None, sample_weight=None):
        x = self.tensors(x)
        if y is None:
            if sample_weight is not None:
                raise ValueError(
                    "`sample_weight` needs `y`: without labels there is a row "
                    "for each window, not for each question."
                )
            # A single question may have several windows, so the result stays a
            # batch.
            return self.features(add_axis(x) if self.is_single(x) else x)
        y = answer_tensors(y)
        weights = None if sample_weight is None else to_tensor(sample_weight)
        return self.as_batch(self._labelled, x, y, weights)

    def tensors(self, x):
        return named_strings(x, ("question", "context"))

    def features(self, x):
        return self.windows(x).features

    def windows(self, x):
        """Make all windows for a batch of questions.

        Args:
            x: dict of strings "question" [B] and "context" [B].

        Returns:
            data_pipeline.features.windows.QuestionWindows.
        """
        from data_pipeline.features.windows import make_windows

        x = self.tensors(x)
        for name in ("question", "context"):
            check_rank(x[name], name, 1)
        return make_windows(
            self.graph_tokenizer,
            x["question"],
            x["context"],
            self.sequence_length,
            self.stride,
            self.max_question_length,
            self.pad_to_longest,
            self.check_size,
            self.layout,
        )

    def settings(self):
        return {
            "sequence_length": self.sequence_length,
            "stride": self.stride,
            "max_question_length": self.max_question_length,
            "pad_to_longest": self.pad_to_longest,
            **self.layout_setting(),
        }

    def encode(
        self,
        examples: list,
        labels: object = None,
        training: bool = False,
        progress: bool = False,
        max_question_length: int | None = None,
    ):
        """Encode questions, one row per window; see `Preprocessor.encode`.

        Args:
            examples: list of QuestionExample.
            labels: not used.
            training: bool. If True, windows are labelled, and questions are
                left out if all their answers are at wrong positions. If False,
                every question has a window. Default False.
            progress: see `Preprocessor.encode`.
            max_question_length: int. If the first `max_question_length` tokens
                of a question leave no room for its context, `encode` raises
                ValueError. Default None: the preprocessor's
                `max_question_length`.

        Returns:
            EncodedExamples with the sequence `answer_mask` (uint8, 1 = an
            answer may start or end at the token), `class_index` (int32 [W]) and
            `example` (int32 [W], index of each window's question). Training
            adds `start_position` and `end_position` (int32 [W]) of the first
            whole answer in the window, and `is_impossible` (float32 [W]). In a
            window without a whole answer, both positions are `class_index`, and
            `is_impossible` is 1. Prediction adds `begins`, `ends` and
            `is_max_context` of `QuestionWindows`, in the dict `unbatched`.

        Raises:
            ValueError: if a question leaves no room for its context, or no
                training example has an answer.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks

        if training:
            _check_answers(examples)
        longest = max_question_length or self.max_question_length
        encoder = _Encoder(self, examples, training, longest)
        columns = encode_in_chunks(examples, encoder, progress)
        names = ("begins", "ends", "is_max_context")
        unbatched = {k: columns.pop(k) for k in names if k in columns}
        names = ("token_ids", "segment_ids", "answer_mask")
        sequences = {name: columns.pop(name) for name in names}
        return EncodedExamples(
            sequences,
            columns,
            {**self.fillers, "answer_mask": 0},
            self.pad_side,
            notes=[f"windows   {_line(encoder.counts)}"],
            unbatched=unbatched,
            counts=encoder.counts,
        )

    def _labelled(self, x, y, weights):
        import tensorflow as tf

        from data_pipeline.features.window_labels import training_windows

        features, labels, found = training_windows(
            self.windows(x), x["context"], y["answer_start"], y["answer_text"]
        )
        if weights is not None:
            found *= tf.cast(weights, "float32")
        return features, labels, found


class _Encoder:
    """Encoder of questions that also counts questions and answers.

    Args:
        preprocessor: XLNetQuestionAnsweringPreprocessor.
        examples: list of all QuestionExample that will be encoded.
        training: bool, whether to label the windows.
        max_question_length: int, see `encode` of the preprocessor.
    """

    def __init__(self, preprocessor, examples, training, max_question_length):
        self._preprocessor = preprocessor
        self._training = training
        self._longest = max_question_length
        self._offset = 0
        self._split_contexts = set()
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.counts["examples"] = len(examples)
        self.counts["contexts"] = len({one.context for one in examples})

    def __call__(self, examples):
        import tensorflow as tf

        from data_pipeline.features.packing import unpack

        contexts = of_examples([one.context for one in examples])
        questions = of_examples([one.question for one in examples])
        windows = self._preprocessor.windows(
            {"question": questions, "context": contexts}
        )
        self._count_cuts(examples, windows)
        columns = unpack(windows.features)
        columns["answer_mask"] = tf.cast(columns["answer_mask"], tf.uint8)
        columns["class_index"] = windows.features["class_index"].numpy()
        columns["example"] = windows.window_row.numpy() + self._offset
        self._offset += len(examples)
        if self._training:
            return self._labelled(examples, contexts, windows, columns)
        self.counts["windows"] += len(columns["example"])
        names = ("begins", "ends", "is_max_context")
        return columns | {name: getattr(windows, name) for name in names}

    def _count_cuts(self, examples, windows):
        preprocessor, counts = self._preprocessor, self.counts
        lengths = windows.question_lengths.numpy()
        longest = int(np.minimum(lengths, self._longest).argmax())
        length = min(int(lengths[longest]), self._longest)
        if length + 4 > preprocessor.sequence_length:
            one = examples[longest]
            raise ValueError(
                f"{one.where or f'question {one.id!r}'}: `sequence_length` "
                "must hold the question, 3 symbols and a piece of the "
                f"context: expected at least {length + 4}. Received: "
                f"sequence_length={preprocessor.sequence_length} for a "
                f"question of {length} pieces. Raise it, or lower "
                "`max_question_length`."
            )
        is_cut = lengths > preprocessor.max_question_length
        counts["cut_questions"] += int(is_cut.sum())
        for row in np.flatnonzero(np.bincount(windows.window_row) > 1):
            self._split_contexts.add(examples[row].context)
        counts["split_contexts"] = len(self._split_contexts)

    def _labelled(self, examples, contexts, windows, columns):
        """Label windows; drop questions whose answers are all misplaced."""
        import tensorflow as tf

        from data_pipeline.features.window_labels import answer_pieces
        from data_pipeline.features.window_labels import window_labels

        answers = [
            (row, answer)
            for row, one in enumerate(examples)
            for answer in one.true_answers
        ]
        rows = np.array([row for row, _ in answers], np.int32)
        first, last, is_found, is_exact = answer_pieces(
            windows,
            contexts,
            tf.constant([x.start for _, x in answers], tf.int32),
            of_examples([x.text for _, x in answers]),
            rows,
        )
        start, end = (
            x.numpy()
            for x in window_labels(windows, rows, first, last, is_found)
        )
        is_found, is_exact = is_found.numpy(), is_exact.numpy()
        given, usable, reached = (
            np.bincount(x, minlength=len(examples)) > 0
            for x in (rows, rows[is_found], windows.window_row[start >= 0])
        )
        left_out = given & ~usable
        for name, count in (
            ("windows_with_answer", (start >= 0).sum()),
            ("impossible", (~given).sum()),
            ("answers", len(rows)),
            ("inexact", is_found.sum() - is_exact.sum()),
            ("misplaced", (~is_found).sum()),
            ("left_out", left_out.sum()),
            ("out_of_reach", usable.sum() - reached.sum()),
        ):
            self.counts[name] += int(count)
        index = columns["class_index"]
        columns["start_position"] = np.where(start < 0, index, start)
        columns["end_position"] = np.where(start < 0, index, end)
        columns["is_impossible"] = (start < 0).astype(np.float32)
        kept = np.flatnonzero(~left_out[windows.window_row])
        self.counts["windows"] += len(kept)
        return {
            name: tf.gather(x, kept)
            if isinstance(x, tf.RaggedTensor)
            else x[kept]
            for name, x in columns.items()
        }


def _check_answers(examples):
    if not examples or any(x.answers or x.is_impossible for x in examples):
        return
    raise ValueError(
        "training needs answers, and no example has one. Received: "
        f"{len(examples)} examples, the first of "
        f"{examples[0].where or examples[0].id}. Is this a file without "
        "labels?"
    )


def _line(counts):
    """Write the counts of examples as one line."""
    text = (
        "{examples} questions about {contexts} contexts: {windows} windows; "
        "{cut_questions} questions cut, {split_contexts} contexts split"
    )
    if counts["answers"] or counts["impossible"]:
        text += (
            "; {windows_with_answer} windows with an answer, {impossible} "
            "questions without one; {answers} answers, {inexact} not at the "
            "borders of pieces, {misplaced} not at their place; {left_out} "
            "questions left out, {out_of_reach} with an answer that no window "
            "holds whole"
        )
    return text.format(**counts)
