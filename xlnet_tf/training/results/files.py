"""All files that a finished run leaves, and its last lines about them."""

from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import as_path
from data_pipeline.base.models import RESULTS_FILE
from xlnet_tf.training.log import draw_losses
from xlnet_tf.training.results.analysis import analyse
from xlnet_tf.training.results.analysis import notes_of
from xlnet_tf.training.results.page import PAGE_FILE
from xlnet_tf.training.results.page import write_page
from xlnet_tf.training.results.report import PREDICTIONS_FILE
from xlnet_tf.training.results.report import prediction_rows
from xlnet_tf.training.results.report import write_predictions
from xlnet_tf.training.results.report import write_report
from xlnet_tf.training.results.summary import make_results
from xlnet_tf.training.results.summary import write_results
from xlnet_tf.training.results.summary import written

_TOLD = (PAGE_FILE, RESULTS_FILE, "best")  # what is named at the end
_NEXT = """next:
  xlnet export --model {directory} --output saved_models/NAME
  xlnet evaluate --model {directory} --task {task} --data PATH
"""


def write_all(directory, data, model, examples, decoded, rows, **results):
    """Write predictions, report, results and the page of a run.

    Args:
        directory: path that exists.
        data: TaskData.
        model: Task.
        examples: list of the held-out examples.
        decoded: list of dict, the answers to them.
        rows: EncodedExamples that were trained on.
        **results: further arguments of `make_results`.
    """
    directory, task, labels = as_path(directory), data.task, data.labels
    write_predictions(
        directory / f"held_out_{PREDICTIONS_FILE}",
        prediction_rows(examples, decoded),
    )
    write_report(directory, task, examples, decoded, labels)
    found = make_results(
        task=task.name,
        examples=len(data.train),
        details=model.details(rows),
        analysis=analyse(task, examples, decoded, labels),
        # Which `evaluate` reads again.
        columns=data.columns,
        **results,
    )
    draw_losses(directory)
    with warnings_in_a_line():
        write_page(directory, found, task, model, examples, decoded, labels)
    write_results(directory, found)  # last: with it the run is done


def ending(directory, results, predicted=None, is_new=True, is_one=True):
    """The last lines of a run: its metrics and files, and what can follow.

    Args:
        directory: path of the run.
        results: dict of `make_results`.
        predicted: (path of examples, path of their predictions, dict of
            metrics), or None.
        is_new: bool, whether the results were written now.
        is_one: bool, whether the run is not one of several seeds.

    Returns:
        str.
    """
    task = results["task"]
    lines = [f"{task}: {written(results['metrics'])}"]
    lines += notes_of(results.get("analysis", {}))
    if is_new:
        files = [directory / name for name in _TOLD]
        lines.append(f"wrote {', '.join(str(x) for x in files if x.exists())}")
    if predicted:
        examples, file, metrics = predicted
        if metrics:
            lines.append(f"{examples}: {written(metrics)}")
        lines.append(f"wrote {file}")
    following = _NEXT.format(directory=directory, task=task) if is_one else ""
    return "".join(f"{line}\n" for line in lines) + following
