"""All files that a finished run leaves."""

from data_pipeline.command_line import warnings_in_a_line
from xlnet_tf.files import as_path
from xlnet_tf.training.results.analysis import analyse
from xlnet_tf.training.results.page import write_page
from xlnet_tf.training.results.report import PREDICTIONS_FILE
from xlnet_tf.training.results.report import prediction_rows
from xlnet_tf.training.results.report import write_predictions
from xlnet_tf.training.results.report import write_report
from xlnet_tf.training.results.summary import write_results
from xlnet_tf.training.runs.progress.log import draw_losses


def write_all(directory, data, model, examples, decoded, rows, **results):
    """Write predictions, report, results and the page of a run.

    Args:
        directory: path that exists.
        data: TaskData.
        model: Task.
        examples: list of the held-out examples.
        decoded: list of dict, the answers to them.
        rows: EncodedExamples that were trained on.
        **results: further arguments of `write_results`.
    """
    directory, task, labels = as_path(directory), data.task, data.labels
    write_predictions(
        directory / f"held_out_{PREDICTIONS_FILE}",
        prediction_rows(examples, decoded),
    )
    write_report(directory, task, examples, decoded, labels)
    found = write_results(
        directory,
        task=task.name,
        examples=len(data.train),
        details=model.details(rows),
        analysis=analyse(task, examples, decoded, labels),
        **results,
    )
    draw_losses(directory)
    with warnings_in_a_line():
        write_page(directory, found, task, model, examples, decoded, labels)
