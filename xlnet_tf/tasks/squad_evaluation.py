"""How good answers are, by the official scripts of SQuAD."""

import numpy as np

# A threshold that no logit is under: no question has an answer.
NO_ANSWERS = float(np.finfo(np.float32).min)

_NAMES = {
    "final_exact": "best_exact",
    "final_exact_thresh": "best_exact_threshold",
    "final_f1": "best_f1",
    "final_f1_thresh": "best_f1_threshold",
}


def evaluate_v1(examples, predictions):
    """Evaluates answers to questions that all have one, as SQuAD 1.1.

    Args:
        examples: list of QuestionExample with answers.
        predictions: dict of str to str, a text for the id of each question.

    Returns:
        dict of float: `exact_match` and `squad_f1`, in percent.

    Raises:
        ValueError: a question has no answer, or no prediction.

    Source: `squad_evaluate_v1_1` of Model Garden, the official evaluate-v1.1.
    """
    from official.nlp.tools import squad_evaluate_v1_1

    _check(examples, "predictions", predictions)
    for one in examples:
        if not one.answers:
            raise ValueError(
                f"{one.where or one.id}: every question of SQuAD 1.1 has an "
                "answer, and this one has none. Evaluate files with "
                "unanswerable questions as SQuAD 2.0."
            )
    result = squad_evaluate_v1_1.evaluate(_dataset(examples), predictions)
    return {
        "exact_match": 100 * result["exact_match"],
        "squad_f1": 100 * result["final_f1"],
    }


def evaluate_v2(examples, predictions, null_odds, threshold=0.0):
    """Evaluates answers to questions of which some have none, as SQuAD 2.0.

    Args:
        examples: list of QuestionExample.
        predictions: dict of str to str, a text for the id of each question,
            whether or not it is likely to have an answer.
        null_odds: dict of str to float, that there is none.
        threshold: float, for all numbers but the best ones: a question has no
            answer where `null_odds` is larger. Default 0, even odds.

    Returns:
        dict of float, in percent: `exact` and `f1`; of them the parts
        `HasAns_exact`, `HasAns_f1`, `NoAns_exact`, `NoAns_f1`, where there are
        such questions; `best_exact` and `best_f1`, with the thresholds
        `best_exact_threshold` and `best_f1_threshold` that give them. With
        counts `total`, `HasAns_total`, `NoAns_total` and average precisions
        `pr_..._ap`.

    Raises:
        ValueError: a question has no prediction or no odds.

    Source: `squad_evaluate_v2_0` of Model Garden, the official evaluate-v2.0.
    """
    from official.nlp.tools import squad_evaluate_v2_0

    _check(examples, "predictions", predictions)
    _check(examples, "null_odds", null_odds)
    ids = [one.id for one in examples]
    odds = np.array([null_odds[name] for name in ids], np.float64)
    # The script takes probabilities: over 1 there is no answer, and it finds
    # the threshold 0 where best none has. The order is all that it uses.
    values, ranks = np.unique(odds, return_inverse=True)
    below = int(np.searchsorted(values, threshold, side="right"))
    scale = (np.arange(len(values)) + 1) / max(below, 0.5)
    result = squad_evaluate_v2_0.evaluate(
        _dataset(examples),
        {name: predictions[name] for name in ids},
        dict(zip(ids, scale[ranks].tolist(), strict=True)),
    )
    thresholds = {0.0: NO_ANSWERS}
    thresholds |= dict(zip(scale.tolist(), values.tolist(), strict=True))
    result = {_NAMES.get(key, key): value for key, value in result.items()}
    for key in ("best_exact_threshold", "best_f1_threshold"):
        result[key] = thresholds[result[key]]
    return result


def _check(examples, argument, by_id):
    if not examples:
        raise ValueError("there are no examples to evaluate.")
    # The official scripts count such questions as wrong, or not at all.
    missing = [one.id for one in examples if one.id not in by_id]
    if missing:
        raise ValueError(
            f"`{argument}` must have an entry for every question. Received: "
            f"none for {len(missing)} of {len(examples)}, such as "
            f"{missing[0]!r}."
        )


def _dataset(examples):
    """The examples in the shape of the official files, one an article."""
    return [
        {
            "paragraphs": [
                {
                    "context": one.context,
                    "qas": [
                        {
                            "id": one.id,
                            "question": one.question,
                            "is_impossible": one.is_impossible,
                            "answers": [
                                {
                                    "text": answer.text,
                                    "answer_start": answer.start,
                                }
                                for answer in one.answers
                                if not one.is_impossible
                            ],
                        }
                    ],
                }
            ]
        }
        for one in examples
    ]
