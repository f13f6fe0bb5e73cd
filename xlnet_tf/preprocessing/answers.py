"""Conversion of the outputs of a question answering model to answers.

A long context is read in several windows, and each window has its own outputs.

Shapes: R rows, one per window.
"""

import numbers
import warnings
from typing import Any

import numpy as np

from data_pipeline.tasks.examples import has_text
from xlnet_tf.preprocessing.fit_input import check_preprocessor
from xlnet_tf.preprocessing.preprocessor import add_axis
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples
from xlnet_tf.preprocessing.strings import to_tensor

_BLOCK = 256  # number of questions at a time, to save memory


def answer(
    task,
    questions,
    contexts,
    batch_size=8,
    n_best=5,
    max_answer_length=64,
    null_threshold=None,
):
    """Answer raw questions; see the method `XLNetQuestionAnswering.answer`."""
    check_preprocessor(task)
    x = task.preprocessor.tensors({"question": questions, "context": contexts})
    is_single = task.preprocessor.is_single(x)
    x = add_axis(x) if is_single else x
    counts = {int(part.shape[0]) for part in x.values()}
    if len(counts) > 1:
        raise ValueError(
            "there must be a context for each question. Received: "
            f"{x['question'].shape[0]} questions and "
            f"{x['context'].shape[0]} contexts."
        )
    answers = []
    for begin in range(0, counts.pop(), _BLOCK):
        block = {name: part[begin : begin + _BLOCK] for name, part in x.items()}
        spans = _spans(task, block, batch_size, n_best, max_answer_length)
        answers.extend(_rows(spans, null_threshold))
    return answers[0] if is_single else answers


def check_places(contexts, y):
    """Warn about misplaced answers, and about an `answer_start` without text.

    An answer without text, or with an `answer_start` below 0, means that the
    question has no answer. Training skips any other answer that is not at its
    `answer_start`. The answers are checked if the contexts and both entries of
    `y` are lists or NumPy arrays.

    Args:
        contexts: list with the context of each question.
        y: dict of "answer_start" (list of int, counted in characters) and
            "answer_text" (list of str).

    Raises:
        ValueError: if every answer with text is at a wrong position.
    """
    columns = contexts, y.get("answer_start"), y.get("answer_text")
    if not all(isinstance(x, (list, np.ndarray)) for x in columns):
        return
    types = str, numbers.Integral, str
    rows = [
        row
        for row in zip(*columns, strict=False)
        if all(map(isinstance, row, types))
    ]
    missing = [row for row in rows if row[1] >= 0 and not has_text(row[2])]
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(rows)} answers have an `answer_start` and "
            "no text: they count as no answer, the first of "
            f"{missing[0][0][:80]!r}",
            stacklevel=3,
        )
    rows = [row for row in rows if has_text(row[2])]
    wrong = [row for row in rows if not _stands(*row)]
    if not wrong:
        return
    context, begin, text = wrong[0]
    message = (
        f"{len(wrong)} of {len(rows)} answers are not at their "
        f"`answer_start`, counted in characters, the first {text[:80]!r} at "
        f"{begin} of {context[:80]!r}"
    )
    if len(wrong) == len(rows):
        raise ValueError(f"{message}.")
    warnings.warn(
        f"{message}; nothing is trained on them, but those below 0 count as no "
        "answer",
        stacklevel=3,
    )


def _stands(context, begin, text):
    """Whether an answer, without outer spaces, is at `begin` in a context."""
    words = text.strip()
    begin += text.index(words)
    return begin >= 0 and context.startswith(words, begin)


def _spans(task, x, batch_size, n_best, max_answer_length):
    from data_pipeline.features.answers import best_spans

    windows = task.preprocessor.windows(x)
    features = {name: value.numpy() for name, value in windows.features.items()}
    outputs = task.predict(features, batch_size=batch_size, verbose=0)
    return best_spans(outputs, windows, x["context"], n_best, max_answer_length)


def _rows(spans, null_threshold):
    """Yield a dict for each question, with its answers as Python values."""
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


def decode(
    outputs: dict[str, np.ndarray],
    encoded: Any,
    examples: list,
    n_best: int = 5,
    max_answer_length: int = 64,
    null_threshold: float | None = None,
) -> list[dict]:
    """Find the answers to encoded questions, one dict per question.

    Args:
        outputs: dict of arrays [R, ...], outputs of `XLNetQuestionAnswering`
            for features without `start_positions`.
        encoded: EncodedExamples, made by the preprocessor with
            `training=False`.
        examples: list of QuestionExample.
        n_best: int, maximum number of answers per question. Default 5.
        max_answer_length: int, maximum number of pieces in an answer. Default
            64.
        null_threshold: float. A question has no answer if its logit of "no
            answer" is above the threshold. Default None: every question has an
            answer.

    Returns:
        list of dict of JSON values. `answer` is a slice of the context, "" = no
        answer. `no_answer_odds` is the logit of "no answer". `n_best` has the
        best answers regardless of the threshold. It is a list of dict of
        `text`, `probability`, `start_log_prob` and `end_log_prob`. The
        probabilities in a question's `n_best` have the sum 1. `id` is the
        question's id.

    Raises:
        ValueError: if two examples have the same id, or the outputs contain
            NaN.
    """
    from data_pipeline.features.answers import best_spans
    from data_pipeline.features.answers import n_best_answers
    from data_pipeline.features.windows import QuestionWindows

    _check_ids(examples)
    _check_numbers(outputs)
    contexts = [one.context for one in examples]
    windows = QuestionWindows(
        encoded.dense["example"],
        features={"class_index": encoded.dense["class_index"]},
        **encoded.unbatched,
    )
    spans = best_spans(
        outputs, windows, of_examples(contexts), n_best, max_answer_length
    )
    odds = np.asarray(spans["null_score"]).tolist()
    answers = []
    for one, best, null_odds in zip(
        examples, n_best_answers(spans, contexts), odds, strict=True
    ):
        is_null = null_threshold is not None and null_odds > null_threshold
        answers.append(
            {
                "id": one.id,
                "answer": "" if is_null else best[0]["text"],
                "no_answer_odds": null_odds,
                "n_best": best,
            }
        )
    return answers


def _check_ids(examples):
    seen = set()
    for one in examples:
        if one.id in seen:
            raise ValueError(
                f"{one.where or 'examples'}: each question must have an id of "
                f"its own. Received: id={one.id!r} twice."
            )
        seen.add(one.id)


def _check_numbers(outputs):
    for name in ("class_logits", "start_top_scores", "end_top_scores"):
        if np.isnan(outputs[name]).any():
            raise ValueError(
                f"`outputs` must be numbers. Received: NaN in {name}. The "
                "model's weights are damaged, or training diverged."
            )


def answer_tensors(y):
    """Make a dict of tensors from the answers that `fit` gets as labels.

    Args:
        y: dict of `answer_start` (integers) and `answer_text` (texts), each
            with one value per question.

    Raises:
        ValueError: if an entry is missing, or has several values for a
            question.
        TypeError: if the starts are not integers, or the texts are not strings.
    """
    names = ("answer_start", "answer_text")
    if not isinstance(y, dict) or set(y) != set(names):
        received = ", ".join(y) if isinstance(y, dict) else type(y).__name__
        raise ValueError(
            f"`y` must be a dict of {' and '.join(names)}. "
            f"Received: {received}."
        )
    starts = y["answer_start"]
    # Labels of a single question may be a single number.
    starts = to_tensor(starts if hasattr(starts, "dtype") else np.array(starts))
    if not starts.dtype.is_integer:
        raise TypeError(
            "`answer_start` must be integers, places in the context. "
            f"Received: {starts.dtype.name}."
        )
    texts = named_strings({"answer_text": y["answer_text"]}, names[1:])
    y = {"answer_start": starts, **texts}
    for name, part in y.items():
        if part.shape.rank is not None and part.shape.rank > 1:
            raise ValueError(
                f"`{name}` must be one for each question, [B]. Received: "
                f"{part.shape.rank} axes, as of several answers of a question."
            )
    return y
