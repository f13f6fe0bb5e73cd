"""What two exports of one model get right on the examples of a task.

Each example is a row of the raw text that the exports' own signatures take;
metrics are those of fine-tuning.

Shapes: R examples, C classes, O options.
"""

import numpy as np

from data_pipeline.features.span_merging import Predictions
from data_pipeline.tasks import catalog as task_catalog
from data_pipeline.tasks import reading as task_files
from saved_models.client.client import inputs_of
from saved_models.client.rows import ask_rows
from xlnet_tf.tasks import metrics as finetuning_metrics
from xlnet_tf.tasks.squad_evaluation import evaluate_v2
from xlnet_tf.training.config import FinetuningConfig
from xlnet_tf.training.finetuning_kinds import make_kind
from xlnet_tf.training.finetuning_questions import QuestionAnswering

_HELD_OUT = ("dev", "test")
_OUTSIDE = "O"  # the tag of words that were not read, as in fine-tuning


def read_labelled(task, path, split=None, columns=None, limit=None):
    """The examples of a task that both exports are asked for.

    Args:
        task: str or TaskSpec.
        path: str, as of `task_files.read_examples`.
        split: str; default "dev", or "test" where there is no "dev".
        columns: str or None, such as "text=review,label=stars".
        limit: int or None, how many examples at most.

    Returns:
        list of examples.

    Raises:
        FileNotFoundError: if there is no such split.
        ValueError: if something is wrong in a file, or an example has no label.
    """
    task = task_catalog.find_task(task)
    if split is None:
        # One file stands for any split, and is found under none of these.
        found = (s for s in _HELD_OUT if task_files.find_split(task, path, s))
        split = next(found, _HELD_OUT[0])
    examples = task_files.read_examples(task, path, split, columns)[:limit]
    for example in examples:
        if not _KINDS[task.kind].has_label(example):
            raise ValueError(
                f"{example.where or path}: the example has no label; accuracy "
                "is measured on labelled data."
            )
    return examples


def compare_on_task(model, other, task, examples, batch_size=8):
    """Measures what both exports get right.

    Args:
        model: Predictor or Client, the exact one.
        other: the same of the other export.
        task: str or TaskSpec.
        examples: list of labelled examples of it.
        batch_size: int, examples at once. Default 8.

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
    task = task_catalog.find_task(task)
    kind = _KINDS[task.kind]
    rows = [kind.row(example) for example in examples]
    signature = "pairs" if "text_pair" in rows[0] else "serving_default"
    places = [example.where for example in examples]
    values, answers = [], []
    for export in (model, other):
        _check_signature(export, signature, rows[0], task)
        answers.append(
            list(ask_rows(export, rows, signature, batch_size, places))
        )
        values.append(kind.metrics(task, examples, answers[-1]))
    metrics = {name: tuple(v[name] for v in values) for name in values[0]}
    return metrics, kind.agreement(examples, *answers)


def _check_signature(export, signature, row, task):
    signatures = export.signatures()
    takes = inputs_of(signatures, signature)
    gives = signatures[signature][1]
    needed = _KINDS[task.kind].needed
    if set(takes) != set(row) or not set(needed) <= set(gives):
        raise ValueError(
            f"the task {task.name} needs an export of a model for {task.kind}, "
            f"whose signature {signature!r} takes {', '.join(sorted(row))} and "
            f"gives {', '.join(needed)}. It takes {', '.join(takes)} and gives "
            f"{', '.join(sorted(gives))}."
        )


class _Kind:
    """How examples of one kind of task are asked, and answers judged.

    Answers are dicts as of `ask_rows`, one an example. `needed` are the outputs
    that are read, `label` is what an example must have to be judged.
    """

    needed = ()
    label = "label"

    def has_label(self, example):
        return getattr(example, self.label) is not None

    def row(self, example):
        """The inputs of one example."""
        raise NotImplementedError

    def outputs(self, examples, answers):
        """What `finetuning_metrics.evaluate` takes."""
        raise NotImplementedError

    def labels(self, examples, answers):
        """Names of the classes, or None where there are none."""

    def metrics(self, task, examples, answers):
        """dict of str to float, as after fine-tuning."""
        kind = make_kind(
            task, FinetuningConfig(), self.labels(examples, answers), None
        )
        return finetuning_metrics.evaluate(
            task.kind,
            task.metrics,
            kind.targets(examples),
            self.outputs(examples, answers),
            **kind.metric_arguments(examples),
        )

    def decisions(self, examples, answers):
        """list of what is compared of two exports."""
        raise NotImplementedError

    def agreement(self, examples, *of_both):
        """dict of str to float: how alike the answers of two exports are."""
        decisions = [self.decisions(examples, answers) for answers in of_both]
        same = [a == b for a, b in zip(*decisions, strict=True)]
        return {"same_answers": float(np.mean(same))}


class _Classification(_Kind):
    needed = ("label", "labels", "scores")

    def row(self, example):
        row = {"text": example.text}
        if example.text_pair is not None:
            row["text_pair"] = example.text_pair
        return row

    def labels(self, examples, answers):
        labels = tuple(label.decode() for label in answers[0]["labels"])
        for example in examples:
            if str(example.label) not in labels:
                raise ValueError(
                    f"{example.where}: the label {example.label!r} is none of "
                    f"those of the export: {', '.join(labels)}."
                )
        return labels

    def outputs(self, examples, answers):
        return np.stack([answer["scores"] for answer in answers])

    def decisions(self, examples, answers):
        return [answer["label"] for answer in answers]


class _Regression(_Kind):
    needed = ("score",)
    row = _Classification.row

    def outputs(self, examples, answers):
        return np.array([answer["score"] for answer in answers], np.float64)

    def agreement(self, examples, *of_both):
        first, second = (self.outputs(examples, x) for x in of_both)
        differences = np.abs(first - second)
        return {
            "mean_difference": float(differences.mean()),
            "largest_difference": float(differences.max()),
        }


class _MultipleChoice(_Kind):
    needed = ("answer", "scores")
    label = "answer"

    def row(self, example):
        return {
            "context": example.context,
            "question": example.question,
            "options": list(example.options),
        }

    def outputs(self, examples, answers):
        most = max(len(example.options) for example in examples)
        scores = np.full((len(examples), most), -np.inf)
        for row, answer in zip(scores, answers, strict=True):
            row[: len(answer["scores"])] = answer["scores"]
        return scores

    def decisions(self, examples, answers):
        return [answer["answer"] for answer in answers]


class _TokenClassification(_Kind):
    needed = ("tags", "count")
    label = "tags"

    def row(self, example):
        return {"text": " ".join(example.words)}

    def outputs(self, examples, answers):
        pairs = zip(examples, answers, strict=True)
        return [self._tags(example, answer) for example, answer in pairs]

    def decisions(self, examples, answers):
        sentences = self.outputs(examples, answers)
        return [tag for tags in sentences for tag in tags]

    def _tags(self, example, answer):
        """list of str, a tag for each word."""
        # A word of a file may hold a blank, where the export divides it; the
        # tag is that of its first part, as in fine-tuning.
        parts = [len(word.split()) for word in example.words]
        begins = np.cumsum([0, *parts])
        if begins[-1] != answer["count"]:
            raise ValueError(
                f"{example.where}: the export read {answer['count']} words "
                f"where there are {begins[-1]}."
            )
        tags = [tag.decode() for tag in answer["tags"]]
        return [
            (tags[begin] if count else "") or _OUTSIDE
            for begin, count in zip(begins[:-1], parts, strict=True)
        ]


class _Ranking(_Kind):
    needed = ("scores",)
    label = "relevance"

    def row(self, example):
        # One document a row, for queries differ in how many they have.
        return {"query": example.query, "documents": [example.document]}

    def outputs(self, examples, answers):
        return np.array([answer["scores"][0] for answer in answers])

    def decisions(self, examples, answers):
        scores, queries = self.outputs(examples, answers), {}
        for index, example in enumerate(examples):
            queries.setdefault(example.query_id, []).append(index)
        return [int(scores[rows].argmax()) for rows in queries.values()]


class _AnsweredQuestions(QuestionAnswering):
    """Metrics of answers that an export has merged from windows."""

    def merged(self, examples, rows, outputs, null_threshold=None):
        return outputs


class _QuestionAnswering(_Kind):
    needed = ("answer", "null_score", "n_best_answers")

    def has_label(self, example):
        return bool(example.answers) or example.is_impossible

    def row(self, example):
        return {"question": example.question, "context": example.context}

    def metrics(self, task, examples, answers):
        kind = _AnsweredQuestions(task, FinetuningConfig(), None, None)
        ids = [example.id for example in examples]

        def by_id(values):
            return dict(zip(ids, values, strict=True))

        # The best span, however likely it is that there is none.
        texts = by_id(a["n_best_answers"][0].decode() for a in answers)
        odds = by_id(float(answer["null_score"]) for answer in answers)
        values = kind.metrics(examples, None, Predictions(texts, {}, odds))
        if kind.may_be_impossible:
            # With the export's own threshold, which the best one may hide.
            texts = by_id(answer["answer"].decode() for answer in answers)
            found = evaluate_v2(examples, texts, dict.fromkeys(ids, 0.0))
            values["squad_f1_as_answered"] = found["f1"]
            values["exact_match_as_answered"] = found["exact"]
        return values

    def decisions(self, examples, answers):
        return [answer["answer"] for answer in answers]


_KINDS = {
    "classification": _Classification(),
    "regression": _Regression(),
    "multiple_choice": _MultipleChoice(),
    "question_answering": _QuestionAnswering(),
    "token_classification": _TokenClassification(),
    "ranking": _Ranking(),
}
