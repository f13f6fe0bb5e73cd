"""The cost of a precision: two exports of one model on the same texts.

    python -m saved_models.compare --model exact/1 --other int8/1 --file texts

    python -m saved_models.compare --model exact/1 --other int8/1 \\
        --task sst-2 --data glue/SST-2

Exports of a pretrainer predict single tokens from the rest of their texts. Of
other models the answers of `serving_default` are compared; with a task, answers
to its labelled examples, by the metrics of fine-tuning.

Shapes: N texts of a batch, P targets.
"""

import argparse
import math
import sys

import numpy as np

from data_pipeline import command_line
from data_pipeline.tasks import catalog
from data_pipeline.tasks import reading
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from saved_models.client.client import inputs_of
from saved_models.client.rows import ask_rows
from saved_models.client.rows import read_texts

_FIRST, _EVERY = 1, 7  # tokens of a text that are predicted: 1, 8, 15, ...
_ENDS = 2  # [SEP] and [CLS]
_HELD_OUT = ("dev", "test")
# Fields of examples of which a labelled one has one; "" and () are none.
_LABELS = ("label", "answer", "tags", "relevance", "answers", "is_impossible")


def compare(model, other, texts, batch_size=8):
    """Measures how far two exports are apart.

    Args:
        model: Predictor or Client, the exact one.
        other: the same of the other export.
        texts: list of str.
        batch_size: int, texts at once. Default 8.

    Returns:
        dict of str to float. For exports of a pretrainer `bits_per_token` and
        `other_bits_per_token`, `same_best` (share of tokens with the same
        likeliest candidate), `largest_difference` and `mean_difference` of
        log-probabilities, `tokens`; for others `largest_difference` of all
        numbers and `same_answers`, the share of texts of which both say the
        same in all that is no number, 1 where all are numbers.

    Raises:
        ValueError: if there is nothing to compare.
    """
    batches = [
        texts[begin : begin + batch_size]
        for begin in range(0, len(texts), batch_size)
    ]
    if "fill_in_ids" in model.signatures():
        return _of_pretrainers(model, other, batches)
    return _of_answers(model, other, batches)


def _of_pretrainers(model, other, batches):
    bits, differences, agree = ([], []), [], []
    for batch in batches:
        features, positions, is_target = _targets(model, batch)
        if not is_target.any():
            continue
        request = {**features, "target_positions": positions}
        values = [
            export.predict(request, "fill_in_ids")["log_probabilities"]
            for export in (model, other)
        ]
        true = np.take_along_axis(features["token_ids"], positions, axis=1)
        for of_export, found in zip(values, bits, strict=True):
            of_true = np.take_along_axis(of_export, true[..., None], axis=-1)
            found.extend(-of_true[..., 0][is_target] / math.log(2))
        exact, rounded = (value[is_target] for value in values)
        difference = np.abs(exact - rounded)
        differences.append((difference.max(), difference.mean(), len(exact)))
        agree.extend(exact.argmax(-1) == rounded.argmax(-1))
    if not differences:
        raise ValueError("the texts have no tokens to predict.")
    largest, mean, count = np.array(differences).T
    return {
        "bits_per_token": float(np.mean(bits[0])),
        "other_bits_per_token": float(np.mean(bits[1])),
        "same_best": float(np.mean(agree)),
        "largest_difference": float(largest.max()),
        "mean_difference": float((mean * count).sum() / count.sum()),
        "tokens": float(count.sum()),
    }


def _targets(model, batch):
    """Features of texts, positions [N, P] in them, and which of these count."""
    embedded = model.predict({"text": batch}, "embed")
    token_ids, mask = embedded["token_ids"], embedded["padding_mask"]
    segments = np.zeros_like(token_ids)
    lengths = mask.sum(1)
    segments[np.arange(len(batch)), lengths - 1] = CLS_SEGMENT
    columns = np.arange(_FIRST, max(token_ids.shape[1], 2), _EVERY)
    is_target = columns < lengths[:, None] - _ENDS
    # Shorter rows repeat a target, for what stands at a target is hidden.
    positions = np.where(is_target, columns, _FIRST).astype("int32")
    features = {
        "token_ids": token_ids,
        "segment_ids": segments,
        "padding_mask": mask,
    }
    return features, positions, is_target


def _of_answers(model, other, batches):
    gives = [
        sorted(export.signatures()["serving_default"][1])
        for export in (model, other)
    ]
    if gives[0] != gives[1]:
        raise ValueError(
            "the exports are of different models: one gives "
            f"{', '.join(gives[0])}, the other {', '.join(gives[1])}."
        )
    largest, agree = 0.0, []
    for batch in batches:
        answers = [e.predict({"text": batch}) for e in (model, other)]
        is_same = np.ones(len(batch), bool)
        for name, exact in answers[0].items():
            rounded = answers[1][name]
            if exact.dtype.kind == "f":
                difference = np.abs(exact - rounded).max(initial=0)
                largest = max(largest, float(difference))
            else:
                is_same &= (exact == rounded).reshape(len(batch), -1).all(1)
        agree.extend(is_same)
    return {"largest_difference": largest, "same_answers": np.mean(agree)}


def _row_of_text(example):
    pair = {"text": example.text, "text_pair": example.text_pair}
    return {name: text for name, text in pair.items() if text is not None}


def _row_of_options(example):
    texts = {"context": example.context, "question": example.question}
    return {**texts, "options": list(example.options)}


def _class(example, answer):
    labels = [label.decode() for label in answer["labels"]]
    if str(example.label) not in labels:
        raise ValueError(
            f"{example.where}: the label {example.label!r} is none of "
            f"those of the export: {', '.join(labels)}."
        )
    scores = map(float, answer["scores"])
    return {
        "label": answer["label"].decode(),
        "probabilities": dict(zip(labels, scores, strict=True)),
    }


def _tags(example, answer):
    # A word of a file may hold a blank, where the export divides it; its tag
    # is that of the first part, as in fine-tuning.
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


def _span(example, answer):
    # The best span, however likely it is that there is none.
    best = {"text": answer["n_best_answers"][0].decode()}
    return {
        "answer": answer["answer"].decode(),
        "no_answer_odds": float(answer["null_score"]),
        "n_best": [best],
    }


def _option(example, answer):
    scores = answer["scores"].tolist()
    return {"answer": int(answer["answer"]), "probabilities": scores}


def _score(example, answer):
    (score,) = np.ravel(answer["score" if "score" in answer else "scores"])
    return {"score": float(score)}


# kind of task -> (outputs that are read, request row of an example, and what
# of the dict of `Task.decode` the answer to an example gives)
_KINDS = {
    "classification": (("label", "labels", "scores"), _row_of_text, _class),
    "regression": (("score",), _row_of_text, _score),
    "multiple_choice": (("answer", "scores"), _row_of_options, _option),
    "token_classification": (
        ("tags", "count"),
        lambda x: {"text": " ".join(x.words)},
        _tags,
    ),
    "ranking": (
        ("scores",),
        # One document a row, for queries differ in how many they have.
        lambda x: {"query": x.query, "documents": [x.document]},
        _score,
    ),
    "question_answering": (
        ("answer", "null_score", "n_best_answers"),
        lambda x: {"question": x.question, "context": x.context},
        _span,
    ),
}


def read_labelled(task, path, split=None, columns=None, limit=None):
    """The examples of a task that both exports are asked for.

    Args:
        task: str or TaskSpec.
        path: str, see `data_pipeline.tasks.reading.read_examples`.
        split: str; default "dev", or "test" where there is no "dev".
        columns: str or None, such as "text=review,label=stars".
        limit: int or None, how many examples at most.

    Returns:
        list of examples.

    Raises:
        FileNotFoundError: if there is no such split.
        ValueError: if something is wrong in a file, or an example has no label.
    """
    task = catalog.find_task(task)
    if split is None:
        # One file stands for any split, and is found under none of these.
        found = (s for s in _HELD_OUT if reading.find_split(task, path, s))
        split = next(found, _HELD_OUT[0])
    examples = reading.read_examples(task, path, split, columns)[:limit]
    for example in examples:
        given = [getattr(example, name, None) for name in _LABELS]
        if all(x is None or x is False or x == () for x in given):
            raise ValueError(
                f"{example.where or path}: the example has no label; accuracy "
                "is measured on labelled data."
            )
    return examples


def compare_on_task(model, other, task, examples, batch_size=8):
    """Measures how many answers of both exports are right.

    Args:
        model, other, batch_size: see `compare`.
        task: str or TaskSpec.
        examples: list of labelled examples of the task.

    Returns:
        (metrics, agreement): dict of the name of each metric of the task to
        (of `model`, of `other`), and dict of str to float: `same_answers`, the
        share of equal labels, options, answers, tags of words or best
        documents of queries; of numbers `mean_difference` and
        `largest_difference`.

    Raises:
        ValueError: if an export does not take or give what the task asks for,
            or does not know a label.
    """
    from xlnet_tf.tasks import task_class

    task = catalog.find_task(task)
    values, both = [], []
    for export in (model, other):
        decoded = _decoded(export, task, examples, batch_size)
        labels = None
        if task.kind == "classification":
            labels = tuple(decoded[0]["probabilities"])
        scores = task_class(task.kind).score(task, examples, decoded, labels)
        if "null_threshold" in scores:
            scores |= _as_answered(examples, decoded)
        values.append(scores)
        both.append(decoded)
    metrics = {name: tuple(v[name] for v in values) for name in values[0]}
    return metrics, _agreement(task, examples, *both)


def _decoded(export, task, examples, batch_size):
    """Answers of an export, as `Task.decode` gives those of a model."""
    needed, row, decode = _KINDS[task.kind]
    rows = [row(example) for example in examples]
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
    places = [example.where for example in examples]
    answers = ask_rows(export, rows, signature, batch_size, places)
    return [decode(x, a) for x, a in zip(examples, answers, strict=True)]


def _as_answered(examples, decoded):
    """SQuAD's metrics at the threshold of the export itself."""
    from xlnet_tf.tasks.squad import scores_2

    texts = {x.id: a["answer"] for x, a in zip(examples, decoded, strict=True)}
    found = scores_2(examples, texts, dict.fromkeys(texts, 0.0))
    return {
        "squad_f1_as_answered": found["f1"],
        "exact_match_as_answered": found["exact"],
    }


def _agreement(task, examples, *both):
    """dict of str to float: how alike the answers of two exports are."""
    if task.kind == "regression":
        scores = [[one["score"] for one in decoded] for decoded in both]
        differences = np.abs(np.subtract(*scores))
        return {
            "mean_difference": float(differences.mean()),
            "largest_difference": float(differences.max()),
        }
    decisions = [_decisions(task, examples, decoded) for decoded in both]
    same = [a == b for a, b in zip(*decisions, strict=True)]
    return {"same_answers": float(np.mean(same))}


def _decisions(task, examples, decoded):
    """list of the decisions that are compared of two exports."""
    if task.kind == "token_classification":
        return [tag for one in decoded for tag in one["tags"]]
    if task.kind == "ranking":
        queries = {}
        for example, one in zip(examples, decoded, strict=True):
            queries.setdefault(example.query_id, []).append(one["score"])
        return [int(np.argmax(scores)) for scores in queries.values()]
    key = "label" if task.kind == "classification" else "answer"
    return [one[key] for one in decoded]


def parse_arguments(argv=None):
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m saved_models.compare",
        description="Measure what the precision of an export costs.",
    )
    add = parser.add_argument
    add("--model", required=True, help="the exact export")
    add("--other", required=True, help="the export of the same model")
    add("--file", help="texts, one a line")
    add("--task", help="instead of --file: a task of xlnet_tf.finetune")
    add("--data", help="directory, archive or file of the task, with labels")
    add("--split", help="of the data (default: dev, else test)")
    add("--columns", help='which ones to read: "text=review,label=stars"')
    add("--limit", type=int, help="texts or examples at most")
    add("--batch-size", type=int, default=8, help="texts at once (default: 8)")
    return parser.parse_args(argv)


def _read_texts(arguments):
    texts = read_texts(arguments.file)
    if not texts:
        raise ValueError(f"there is no text in {arguments.file}.")
    return texts[: arguments.limit]


def _load(arguments):
    from saved_models.client.local import Predictor

    return Predictor(arguments.model), Predictor(arguments.other)


def _write(name, *values):
    columns = [f"{name:28}", *(f"{value:>12}" for value in values)]
    sys.stdout.write(" ".join(columns) + "\n")


def _main_on_texts(arguments):
    texts = _read_texts(arguments)
    figures = compare(*_load(arguments), texts, arguments.batch_size)
    for name, value in figures.items():
        _write(name, f"{value:.6g}")


def _main_on_task(arguments):
    with command_line.warnings_in_a_line():
        examples = read_labelled(
            arguments.task,
            arguments.data,
            arguments.split,
            arguments.columns,
            arguments.limit,
        )
        metrics, agreement = compare_on_task(
            *_load(arguments), arguments.task, examples, arguments.batch_size
        )
    _write("", "model", "other", "difference")
    for name, (exact, rounded) in metrics.items():
        difference = rounded - exact
        _write(name, f"{exact:.6g}", f"{rounded:.6g}", f"{difference:.3g}")
    for name, value in agreement.items():
        _write(name, f"{value:.6g}")
    _write("examples", len(examples))


def main(argv=None):
    """Runs the command; see the module's text."""
    arguments = parse_arguments(argv)
    if bool(arguments.task) == bool(arguments.file):
        raise ValueError("give either --file, or --task and --data.")
    if bool(arguments.task) != bool(arguments.data):
        raise ValueError("--task and --data belong together.")
    if arguments.file and (arguments.split or arguments.columns):
        raise ValueError("--split and --columns are of --data, not of --file.")
    for name in ("limit", "batch_size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(
                f"`--{name.replace('_', '-')}` must be at least 1. Received: "
                f"{value}."
            )
    if arguments.task:
        _main_on_task(arguments)
    else:
        _main_on_texts(arguments)
    return 0


def command():
    """Runs the command and turns errors into one line."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
