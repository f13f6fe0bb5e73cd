"""Answers of an export to the examples of a task, as the task gives them."""

import numpy as np

from data_pipeline.progress import track
from saved_models.client.client import inputs_of
from saved_models.client.rows import ask_rows


def _class(example, answer):
    labels = [label.decode() for label in answer["labels"]]
    if str(example.label) not in labels:
        raise ValueError(
            f"{example.where}: the label {example.label!r} is not one of the "
            f"export: {', '.join(labels)}."
        )
    scores = dict(zip(labels, answer["scores"].tolist(), strict=True))
    return {"label": answer["label"].decode(), "probabilities": scores}


def _classes(example, answer):
    labels = [label.decode() for label in answer["labels"]]
    unknown = sorted(set(example.label or ()) - set(labels))
    if unknown:
        raise ValueError(
            f"{example.where}: the label {unknown[0]!r} is not one of the "
            f"export: {', '.join(labels)}."
        )
    chosen = zip(labels, answer["chosen"].tolist(), strict=True)
    scores = dict(zip(labels, answer["scores"].tolist(), strict=True))
    return {
        "labels": [x for x, is_so in chosen if is_so],
        "probabilities": scores,
    }


def _tags(example, answer):
    # A word of a file may contain a blank, where the export divides it; it gets
    # the tag of its first part, as in fine-tuning.
    parts = [len(word.split()) for word in example.words]
    begins = np.cumsum([0, *parts])
    if begins[-1] != answer["count"]:
        raise ValueError(
            f"{example.where}: the export read {answer['count']} words "
            f"where there are {begins[-1]}."
        )
    tags = [tag.decode() for tag in answer["tags"]]
    pairs = zip(begins, parts, strict=False)
    # Words that were not read have no tag.
    return {"tags": [(tags[b] if n else "") or "O" for b, n in pairs]}


def _option(example, answer):
    scores = answer["scores"].tolist()
    return {"answer": int(answer["answer"]), "probabilities": scores}


def _score(example, answer):
    (score,) = np.ravel(answer["score" if "score" in answer else "scores"])
    return {"score": float(score)}


def _span(example, answer):
    # The best span, even if it is likelier that there is no answer.
    best = answer["n_best_answers"][0].decode()
    return {
        "answer": answer["answer"].decode(),
        "no_answer_odds": float(answer["null_score"]),
        "n_best": [{"text": best}],
    }


def _target(example, answer):
    return {
        "text": answer["generated"][0].decode(),
        "log_probability": float(answer["log_probabilities"][0]),
    }


# kind of task -> (outputs to read, fields of an example to send, and a function
# from an answer to a dict as of `Task.decode`)
_KINDS = {
    "classification": ("label labels scores", "text text_pair", _class),
    "multi_label": ("labels scores chosen", "text text_pair", _classes),
    "regression": ("score", "text text_pair", _score),
    "multiple_choice": ("answer scores", "context question options", _option),
    "token_classification": ("tags count", "words", _tags),
    "ranking": ("scores", "query document", _score),
    "question_answering": (
        "answer null_score n_best_answers",
        "question context",
        _span,
    ),
    "sequence_to_sequence": ("generated log_probabilities", "source", _target),
}


def _row(example, names):
    """The inputs of a signature for one example."""
    row = {name: getattr(example, name) for name in names}
    if "words" in row:
        return {"text": " ".join(row["words"])}
    if "source" in row:
        return {"text": row["source"]}
    if "document" in row:
        # One per row, because queries have different numbers of documents.
        row["documents"] = [row.pop("document")]
    if "options" in row:
        row["options"] = list(row["options"])
    return {name: value for name, value in row.items() if value is not None}


def answers_of(export, task, examples, batch_size, progress=False):
    """Answers of an export, as `Task.decode` gives those of a model.

    Args:
        export: Predictor or Client.
        task: TaskSpec.
        examples: list of X examples.
        batch_size: int.
        progress: bool, whether to tell how far it is. Default False.

    Returns:
        list of X dicts.

    Raises:
        ValueError: if the export is of another kind of task, or does not know
            a label.
    """
    needed, names, decode = _KINDS[task.kind]
    needed = needed.split()
    rows = [_row(example, names.split()) for example in examples]
    signature = "pairs" if "text_pair" in rows[0] else "serving_default"
    takes = inputs_of(export.signatures(), signature)
    gives = export.signatures()[signature][1]
    if set(takes) != set(rows[0]) or not set(needed) <= set(gives):
        raise ValueError(
            f"the task {task.name} needs an export of a model for {task.kind}, "
            f"whose signature {signature!r} takes "
            f"{', '.join(sorted(rows[0]))} and gives {', '.join(needed)}. It "
            f"takes {', '.join(takes)} and gives {', '.join(sorted(gives))}."
        )
    places = [x.where for x in examples]
    answers = ask_rows(export, rows, signature, batch_size, places)
    answers = track(answers, "asking", "examples", len(rows), shown=progress)
    return [decode(*pair) for pair in zip(examples, answers, strict=True)]
