"""Spans scored in the windows of a context -> the answer to each question.

Shapes: W windows, S starts of a window, E ends of a start, K spans.
"""

import json
import os
import tempfile
import typing

import numpy as np

# The files of the released code, which the official scripts read.
FILES = {
    "texts": "predictions.json",
    "n_best": "nbest_predictions.json",
    "null_odds": "null_odds.json",
}
_NOTHING = -1e6  # released score of the answer where no span is possible


class Predictions(typing.NamedTuple):
    """Answers by the id of the question.

    `texts` is a dict of str, slices of the contexts; "" = no answer. `n_best`
    is a dict of lists of dict, best first: text, probability (among these),
    start_log_prob, end_log_prob. `null_odds` is a dict of float, logits that
    there is no answer.
    """

    texts: dict
    n_best: dict
    null_odds: dict


def merge_windows(
    examples,
    windows,
    outputs,
    n_best_size=5,
    max_answer_length=64,
    null_threshold=None,
):
    """Chooses the best spans of each question over all its windows.

    A span lies in the context, has at most `max_answer_length` pieces and
    begins where its window has the most context. Its score is the sum of the
    logarithms of its start's and its end's probabilities. That there is no
    answer is as likely as the window says that thinks so least.

    Args:
        examples: list of QuestionExample.
        windows: Windows of these, with `training=False`.
        outputs: dict of arrays as `XLNetQuestionAnswering` gives them without
            `start_positions`, in the order of the windows: `start_top_scores`
            and `start_top_positions` [W, S], `end_top_scores` and
            `end_top_positions` [W, S, E], `class_logits` [W].
        n_best_size: int, most answers of a question. Default 5.
        max_answer_length: int, pieces. Default 64.
        null_threshold: float: no answer where `null_odds` is larger. Default
            None: always an answer, as SQuAD 1.1 and the search for the best
            threshold need it.

    Returns:
        Predictions. Where no span is possible, the text is "".

    Raises:
        ValueError: the outputs are not those of the windows or hold NaN, an
            example has no window, or two share an id.

    Source: `write_predictions` of the released run_squad, which also leaves out
        spans with the last piece of a window.
    """
    _check_ids(examples)
    outputs = _checked(outputs, windows, n_best_size)
    null_odds = np.full(len(examples), np.inf)
    np.minimum.at(null_odds, windows.example_index, outputs["class_logits"])
    if np.isinf(null_odds).any():
        missing = examples[int(np.isinf(null_odds).argmax())].id
        raise ValueError(
            "every example must have a window and a finite logit. Received: "
            f"none for {missing!r}. Make the windows with `training=False`."
        )
    spans = _spans(windows, outputs, max_answer_length)
    bounds = np.searchsorted(spans[0], np.arange(len(examples) + 1))
    _, begins, ends, start_scores, end_scores = (x.tolist() for x in spans)
    texts, n_best, odds = {}, {}, {}
    for number, one in enumerate(examples):
        best = {}
        for index in range(bounds[number], bounds[number + 1]):
            text = one.context[begins[index] : ends[index]].strip()
            if text and text not in best:
                best[text] = (start_scores[index], end_scores[index])
                if len(best) == n_best_size:
                    break
        n_best[one.id] = _with_probabilities(best or {"": (_NOTHING, _NOTHING)})
        odds[one.id] = float(null_odds[number])
        is_null = null_threshold is not None and odds[one.id] > null_threshold
        texts[one.id] = "" if is_null else n_best[one.id][0]["text"]
    return Predictions(texts, n_best, odds)


def _check_ids(examples):
    seen = set()
    for one in examples:
        if one.id in seen:
            raise ValueError(
                f"{one.where or 'examples'}: each question must have an id of "
                f"its own. Received: id={one.id!r} twice."
            )
        seen.add(one.id)


def _checked(outputs, windows, n_best_size):
    if n_best_size < 1:
        raise ValueError(
            "`n_best_size` must be at least 1. Received: "
            f"n_best_size={n_best_size}."
        )
    names = ("class_logits", "start_top_scores", "end_top_scores")
    names += ("start_top_positions", "end_top_positions")
    missing = sorted(set(names) - set(outputs))
    if missing:
        raise ValueError(
            f"`outputs` lacks {', '.join(missing)}. Received: "
            f"{', '.join(sorted(outputs))}. Call the model without "
            "`start_positions`."
        )
    outputs = {name: np.asarray(outputs[name]) for name in names}
    shape = (len(windows), *outputs["end_top_scores"].shape[1:3])
    shape += (0,) * (3 - len(shape))
    expected = {name: shape for name in names if name.startswith("end")}
    expected |= {name: shape[:2] for name in names if name.startswith("start")}
    expected["class_logits"] = shape[:1]
    for name, value in outputs.items():
        if value.shape != expected[name]:
            raise ValueError(
                f"`outputs` must have a row for each of the {len(windows)} "
                "windows: [W], [W, S] and [W, S, E]. Received: "
                f"{name} of shape {value.shape}."
            )
        if np.isnan(value).any():
            raise ValueError(
                f"`outputs` must be numbers. Received: NaN in {name}. The "
                "model's weights are damaged, or training diverged."
            )
    return outputs


def _spans(windows, outputs, max_answer_length):
    """Possible spans, those of an example together and the best first.

    Returns arrays [K]: example, begin and end in characters of the context,
    and the scores of start and end.
    """
    starts = outputs["start_top_positions"].astype(np.int64)
    ends = outputs["end_top_positions"].astype(np.int64)
    limit = windows.num_pieces[:, None].astype(np.int64)
    rows = windows.row_splits[:-1, None]
    is_start = (starts >= 0) & (starts < limit)
    place = rows + np.where(is_start, starts, 0)
    is_start &= windows.is_max_context[place] > 0
    starts = starts[:, :, None]
    is_span = is_start[:, :, None] & (ends >= starts)
    is_span &= (ends < limit[:, :, None]) & (ends - starts < max_answer_length)
    window, i, j = np.nonzero(is_span)
    example = windows.example_index[window]
    # In float64, as the released code adds them.
    start_scores = outputs["start_top_scores"][window, i].astype(np.float64)
    end_scores = outputs["end_top_scores"][window, i, j].astype(np.float64)
    begins, stops = windows.characters(
        window, starts[window, i, 0], ends[window, i, j]
    )
    order = np.lexsort((-(start_scores + end_scores), example))
    return tuple(
        column[order]
        for column in (example, begins, stops, start_scores, end_scores)
    )


def _with_probabilities(best):
    scores = np.array([sum(pair) for pair in best.values()])
    odds = np.exp(scores - scores.max())
    return [
        {
            "text": text,
            "probability": probability,
            "start_log_prob": start,
            "end_log_prob": end,
        }
        for (text, (start, end)), probability in zip(
            best.items(), (odds / odds.sum()).tolist(), strict=True
        )
    ]


def write_predictions(directory, predictions):
    """Writes predictions.json, nbest_predictions.json and null_odds.json.

    All three or none, but for a crash between two renames.

    Args:
        directory: path, made if need be.
        predictions: Predictions.

    Raises:
        OSError: a file cannot be written.
    """
    directory = os.fspath(directory)
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        for field, name in FILES.items():
            with open(
                os.path.join(temporary, name), "w", encoding="utf-8"
            ) as file:
                json.dump(
                    getattr(predictions, field),
                    file,
                    indent=4,
                    ensure_ascii=False,
                )
                file.write("\n")
        for name in FILES.values():
            os.replace(
                os.path.join(temporary, name), os.path.join(directory, name)
            )
