"""Raw questions and contexts -> windows of features -> answers as text.

Shapes: B questions, W windows of all of them, T tokens, n answers of each.
"""

import keras
import numpy as np

from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.preprocessor import add_axis
from xlnet_tf.preprocessing.preprocessor import first_row
from xlnet_tf.preprocessing.raw_input import check_rank
from xlnet_tf.preprocessing.raw_input import named_strings
from xlnet_tf.preprocessing.raw_input import to_tensor

_BLOCK = 256  # questions whose windows are made at once, for little memory


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetQuestionAnsweringPreprocessor(Preprocessor):
    """Features of questions about contexts, padded on the right.

    A sequence is `context sep question sep cls`. A context that is too long is
    read in overlapping windows: all of them to predict, so that there are more
    rows than questions; one for each question to train, the one that holds the
    answer. `XLNetQuestionAnswering.answer` puts predictions together.

    Args:
        tokenizer: data_pipeline Tokenizer.
        sequence_length: int, T, all symbols included. Default 512.
        stride: int, tokens of the context between the starts of windows.
            Default 128.
        max_question_length: int, tokens; longer questions lose their end.
            Default 64.
        pad_to_longest: bool, whether a batch is as wide as its longest window
            rather than `sequence_length`. Faster without XLA. Default False.

    Call arguments:
        x: dict of strings "question" [B] and "context" [B].
        y: None to predict; to train a dict of "answer_start", int [B], in
            characters of the context (code points), -1 for no answer, and
            "answer_text", strings [B].
        sample_weight: [B], for training alone.

    Returns:
        dict of `token_ids`, `segment_ids`, `padding_mask` and `answer_mask`,
        int32 [W, T], and `class_index`, int32 [W]. With `y` a tuple: these of
        B rows, with `start_positions`, int32 [B]; a dict of
        `start_positions`, `end_positions`, int32 [B], and `is_impossible`,
        float32 [B]; and weights, float32 [B], 0 where the text of an answer
        does not stand at its place.

    Raises:
        TypeError: if `tokenizer`, `x` or `y` is of another kind.
        ValueError: if a setting is out of range, or a part is missing.

    Source: run_squad.py of the released code.
    """

    pad_side = "right"

    def __init__(
        self,
        tokenizer,
        sequence_length=512,
        stride=128,
        max_question_length=64,
        pad_to_longest=False,
    ):
        self.stride = stride
        self.max_question_length = max_question_length
        super().__init__(
            tokenizer, sequence_length, pad_to_longest=pad_to_longest
        )
        self.sequence_length = sequence_length

    @property
    def sequence_length(self):
        """int, T. A data set that is mapped already keeps the one it had."""
        return self._sequence_length

    @sequence_length.setter
    def sequence_length(self, value):
        from data_pipeline.features.graph_question_answering import (
            check_settings,
        )

        check_settings(value, self.stride, self.max_question_length)
        self._sequence_length = value

    def call(self, x, y=None, sample_weight=None):
        x = self.tensors(x)
        if y is None:
            if sample_weight is not None:
                raise ValueError(
                    "`sample_weight` needs `y`: without labels there is a row "
                    "for each window, not for each question."
                )
            # A single question may have several windows too.
            return self.features(add_axis(x) if self.is_single(x) else x)
        y = _answers(y)
        weights = None if sample_weight is None else to_tensor(sample_weight)
        if self.is_single(x):
            return first_row(self._labelled(*add_axis((x, y, weights))))
        return self._labelled(x, y, weights)

    def tensors(self, x):
        return named_strings(x, ("question", "context"))

    def features(self, x):
        return self.windows(x).features

    def windows(self, x):
        """All windows of questions.

        Args:
            x: dict of strings "question" [B] and "context" [B].

        Returns:
            data_pipeline.features.graph_question_answering.GraphWindows.
        """
        from data_pipeline.features.graph_question_answering import make_windows

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
        )

    def settings(self):
        return {
            "sequence_length": self.sequence_length,
            "stride": self.stride,
            "max_question_length": self.max_question_length,
            "pad_to_longest": self.pad_to_longest,
        }

    def _labelled(self, x, y, weights):
        import tensorflow as tf

        from data_pipeline.features.answers import training_windows

        features, labels, found = training_windows(
            self.windows(x), x["context"], y["answer_start"], y["answer_text"]
        )
        if weights is not None:
            found *= tf.cast(weights, "float32")
        return features, labels, found


def _answers(y):
    """Labels as a dict of tensors."""
    names = ("answer_start", "answer_text")
    if not isinstance(y, dict) or set(y) != set(names):
        received = ", ".join(y) if isinstance(y, dict) else type(y).__name__
        raise ValueError(
            f"`y` must be a dict of {' and '.join(names)}. "
            f"Received: {received}."
        )
    starts = y["answer_start"]
    # Also a single number, of a single question.
    starts = to_tensor(starts if hasattr(starts, "dtype") else np.array(starts))
    if not starts.dtype.is_integer:
        raise TypeError(
            "`answer_start` must be integers, places in the context. "
            f"Received: {starts.dtype.name}."
        )
    texts = named_strings({"answer_text": y["answer_text"]}, names[1:])
    return {"answer_start": starts, **texts}


def answer(
    task,
    questions,
    contexts,
    batch_size=8,
    n_best=5,
    max_answer_length=64,
    null_threshold=None,
):
    """Answers raw questions; see `XLNetQuestionAnswering.answer`."""
    if task.preprocessor is None:
        raise ValueError(
            f"{type(task).__name__} has no preprocessor, so it takes features, "
            "not strings. Give it one: `task.preprocessor = ...`, or "
            "`from_preset` on a directory with a tokenizer."
        )
    x = {"question": questions, "context": contexts}
    x = task.preprocessor.tensors(x)
    if task.preprocessor.is_single(x):
        x = add_axis(x)
        return _answers_of_all(
            task, x, batch_size, n_best, max_answer_length, null_threshold
        )[0]
    return _answers_of_all(
        task, x, batch_size, n_best, max_answer_length, null_threshold
    )


def _answers_of_all(
    task, x, batch_size, n_best, max_answer_length, null_threshold
):
    from data_pipeline.features.answers import best_spans

    counts = {int(part.shape[0]) for part in x.values()}
    if len(counts) > 1:
        raise ValueError(
            "there must be a context for each question. Received: "
            f"{x['question'].shape[0]} questions and "
            f"{x['context'].shape[0]} contexts."
        )
    found = []
    for begin in range(0, counts.pop(), _BLOCK):
        block = {name: part[begin : begin + _BLOCK] for name, part in x.items()}
        windows = task.preprocessor.windows(block)
        features = {
            name: value.numpy() for name, value in windows.features.items()
        }
        outputs = task.predict(features, batch_size=batch_size, verbose=0)
        spans = best_spans(
            outputs, windows, block["context"], n_best, max_answer_length
        )
        found.extend(_rows(spans, null_threshold))
    return found


def _rows(spans, null_threshold):
    """The answers of each question as a dict of plain values."""
    spans = {name: value.numpy().tolist() for name, value in spans.items()}
    names = ("text", "begin", "end", "score")
    for *columns, null_score in zip(
        *(spans[name] for name in names), spans["null_score"], strict=True
    ):
        n_best = [
            {**dict(zip(names, row, strict=True)), "text": row[0].decode()}
            for row in zip(*columns, strict=True)
        ]
        best = n_best[0]
        if null_threshold is not None and null_score > null_threshold:
            best = {**best, "text": "", "begin": -1, "end": -1}
        n_best = [one for one in n_best if one["text"]]
        yield {**best, "null_score": null_score, "n_best": n_best}
