"""Metrics of answers to questions, from SQuAD's official scripts."""

import numpy as np

# A threshold below every logit: no question has an answer.
NO_ANSWERS = float(np.finfo(np.float32).min)

_BEST = {
    "final_exact": "best_exact",
    "final_exact_thresh": "best_exact_threshold",
    "final_f1": "best_f1",
    "final_f1_thresh": "best_f1_threshold",
}


def answer_scores(spec, examples, decoded):
    """Compute the official metrics of answers to questions.

    Args:
        spec: TaskSpec. In all tasks except "squad-1.1", questions may have no
            answer.
        examples: list of QuestionExample.
        decoded: list of dict, one per question. `n_best` is a list of dict with
            `text`, best first. `no_answer_odds` is the logit of "no answer".

    Returns:
        dict of float; the metrics are in percent. If questions may have no
        answer, `squad_f1` and `exact_match` are the values at the best
        thresholds of `no_answer_odds`, one threshold for each metric.
        `null_threshold` is the best threshold for `squad_f1`, moved up half way
        to the next logit, see `_between_logits`. The metrics with the suffix
        `_at_even_odds` use the threshold 0. `squad_f1_if_answerable` scores the
        best spans of answerable questions.
    """
    ids = [one.id for one in examples]
    spans = [one["n_best"][0]["text"] for one in decoded]
    texts = dict(zip(ids, spans, strict=True))
    if spec.name == "squad-1.1":
        official = scores_1(examples, texts)
        return {name: official[name] for name in spec.metrics}
    odds = [one["no_answer_odds"] for one in decoded]
    official = scores_2(examples, texts, dict(zip(ids, odds, strict=True)))
    scores = {
        "squad_f1": official["best_f1"],
        "exact_match": official["best_exact"],
        "null_threshold": _between_logits(official["best_f1_threshold"], odds),
        "squad_f1_at_even_odds": official["f1"],
        "exact_match_at_even_odds": official["exact"],
    }
    # A barely trained model has a best threshold at which no question has an
    # answer. The metrics then hide the quality of its spans.
    answerable = [one for one in examples if one.true_answers]
    if answerable:
        official = scores_1(answerable, texts)
        scores["squad_f1_if_answerable"] = official["squad_f1"]
    return scores


def _between_logits(threshold, odds):
    """Move a threshold from a logit half way to the next higher logit.

    The official threshold is the logit of one of the questions. An export, or
    another batch, rounds this logit differently, and could lose the answer.
    """
    if threshold == NO_ANSWERS:
        return threshold
    higher = [x for x in odds if x > threshold]
    return (threshold + min(higher)) / 2 if higher else threshold + 1.0


def scores_as_answered(examples, decoded):
    """Compute metrics of SQuAD 2.0 for given answers, without a threshold.

    Args:
        examples: list of QuestionExample.
        decoded: list of dict with `answer` (str, "" for no answer).

    Returns:
        dict of float, in percent.
    """
    texts = {x.id: a["answer"] for x, a in zip(examples, decoded, strict=True)}
    official = scores_2(examples, texts, dict.fromkeys(texts, 0.0))
    return {
        "squad_f1_as_answered": official["f1"],
        "exact_match_as_answered": official["exact"],
    }


def scores_1(examples, texts):
    """Compute metrics of SQuAD 1.1, where all questions have an answer.

    Args:
        examples: list of QuestionExample with answers.
        texts: dict from the id of each question to its answer, str.

    Returns:
        dict of float: `exact_match` and `squad_f1`, in percent.

    Raises:
        ValueError: if a question has no answer, or no prediction.

    Source: `squad_evaluate_v1_1` of Model Garden, the official evaluate-v1.1.
    """
    from official.nlp.tools import squad_evaluate_v1_1

    _check_ids(examples, "predictions", texts)
    for one in examples:
        if not one.true_answers:
            raise ValueError(
                f"{one.where or one.id}: every question of SQuAD 1.1 has an "
                "answer, and this one has none. Evaluate files with "
                "unanswerable questions as SQuAD 2.0."
            )
    result = squad_evaluate_v1_1.evaluate(_dataset(examples), texts)
    return {
        "exact_match": 100 * result["exact_match"],
        "squad_f1": 100 * result["final_f1"],
    }


def scores_2(examples, texts, null_odds, threshold=0.0):
    """Compute metrics of SQuAD 2.0, where some questions have no answer.

    Args:
        examples: list of QuestionExample.
        texts: dict from the id of each question to its best span, even if the
            question probably has no answer.
        null_odds: dict from the id of each question to the logit of "no
            answer".
        threshold: float. A question has no answer if its `null_odds` are
            above the threshold. Default 0, even odds.

    Returns:
        dict of float; the metrics are in percent. `exact` and `f1` are for all
        questions. Names with the prefix `HasAns_` are for questions with an
        answer, and names with `NoAns_` for questions without an answer.
        `best_exact` and `best_f1` are the highest values over all thresholds,
        reached at `best_exact_threshold` and `best_f1_threshold`. `..._total`
        are counts, and `pr_..._ap` are average precisions.

    Raises:
        ValueError: if a question is missing in `texts` or `null_odds`.

    Source: `squad_evaluate_v2_0` of Model Garden, the official evaluate-v2.0.
    """
    from official.nlp.tools import squad_evaluate_v2_0

    _check_ids(examples, "predictions", texts)
    _check_ids(examples, "null_odds", null_odds)
    ids = [one.id for one in examples]
    odds = np.array([null_odds[name] for name in ids], np.float64)
    # The script expects probabilities up to 1, and its threshold is 0 if it is
    # best to answer no question. Only the order of the odds counts, so ranks
    # replace them.
    values, ranks = np.unique(odds, return_inverse=True)
    below = int(np.searchsorted(values, threshold, side="right"))
    scale = (np.arange(len(values)) + 1) / max(below, 0.5)
    result = squad_evaluate_v2_0.evaluate(
        _dataset(examples),
        {name: texts[name] for name in ids},
        dict(zip(ids, scale[ranks].tolist(), strict=True)),
    )
    thresholds = dict(zip(scale.tolist(), values.tolist(), strict=True))
    thresholds[0.0] = NO_ANSWERS
    result = {_BEST.get(key, key): value for key, value in result.items()}
    for key in ("best_exact_threshold", "best_f1_threshold"):
        result[key] = thresholds[result[key]]
    return result


def _check_ids(examples, argument, by_id):
    if not examples:
        raise ValueError("there are no examples to evaluate.")
    # The official scripts count questions without an entry as wrong, or skip
    # them; here missing entries are an error.
    missing = [one.id for one in examples if one.id not in by_id]
    if missing:
        raise ValueError(
            f"`{argument}` must have an entry for every question. Received: "
            f"none for {len(missing)} of {len(examples)}, such as "
            f"{missing[0]!r}."
        )


def _dataset(examples):
    """Convert examples to the official format, one question per article."""

    def question(one):
        return {
            "id": one.id,
            "question": one.question,
            "is_impossible": one.is_impossible,
            "answers": [
                {"text": x.text, "answer_start": x.start}
                for x in one.true_answers
            ],
        }

    return [
        {"paragraphs": [{"context": one.context, "qas": [question(one)]}]}
        for one in examples
    ]
