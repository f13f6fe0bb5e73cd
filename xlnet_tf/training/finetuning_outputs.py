"""What a fine-tuning run leaves: results, predictions, reports, pictures."""

import json

import numpy as np

from data_pipeline import command_line
from xlnet_tf.files import write_bytes
from xlnet_tf.training import finetuning_report
from xlnet_tf.training.results import write_results

PREDICTIONS_FILE = "predictions.jsonl"
REPORT_FILE = "report.txt"
CONFUSION_FILE = "confusion_matrix.png"
REGRESSION_FILE = "scores.png"


def write_all(run, metrics, examples, rows, outputs):
    """Writes the results of a run that is done.

    Args:
        run: Run of `finetuning_run`.
        metrics: dict of str to float.
        examples: list of examples of the split that counts.
        rows: EncodedExamples of these.
        outputs: dict of str to array [R, ...].
    """
    write_predictions(
        run.output / f"held_out_{PREDICTIONS_FILE}",
        run.kind.predictions(examples, rows, outputs),
    )
    _write_report(run, examples, rows, outputs)
    options = run.options
    write_results(
        run.output,
        task=run.data.task.name,
        metrics=metrics,
        seed=run.config.seed,
        steps=int(run.global_step.numpy()),
        examples=len(run.data.train),
        preset=options.preset,
        started_from="random" if options.random_start else "pretrained",
        details=run.kind.details(),
    )


def write_predictions(file, predictions):
    """Writes JSON lines, whole or not at all.

    Args:
        file: path.
        predictions: list of dict.
    """
    lines = [json.dumps(x, ensure_ascii=False) + "\n" for x in predictions]
    write_bytes(file, "".join(lines).encode())


def _write_report(run, examples, rows, outputs):
    kind, directory = run.kind, run.output
    task = run.data.task
    title = f"{task.name}, held out"
    if task.kind == "question_answering":
        kind.write_official(directory, examples, rows, outputs)
        return
    if task.kind not in (
        "classification",
        "token_classification",
        "regression",
    ):
        return
    targets = kind.targets(examples)
    scores = kind.scores(examples, rows, outputs)
    if task.kind == "regression":
        finetuning_report.draw_regression(
            directory / REGRESSION_FILE, targets, scores, title
        )
        return
    has_names = True
    if task.kind == "classification":
        found = np.argmax(scores, axis=-1)
        report = finetuning_report.classification_report(
            targets, found, kind.labels
        )
        with command_line.warnings_in_a_line():
            has_names = finetuning_report.draw_confusion_matrix(
                directory / CONFUSION_FILE, targets, found, kind.labels, title
            )
    else:
        report = finetuning_report.entity_report(targets, scores)
    text = finetuning_report.report_text(report, numbered=not has_names)
    write_bytes(directory / REPORT_FILE, (text + "\n").encode())
