"""End of a run: its result files, and the last lines that it prints.

The last lines name the result files and suggest the next commands.
"""

import math

from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_lines
from data_pipeline.base.models import METRICS_FILE
from data_pipeline.base.models import RESULTS_FILE
from xlnet_tf.training.log import PICTURE_FILE
from xlnet_tf.training.log import draw_losses
from xlnet_tf.training.loop import read_best
from xlnet_tf.training.results.analysis import analyse
from xlnet_tf.training.results.analysis import notes_of
from xlnet_tf.training.results.predictions import PREDICTIONS_FILE
from xlnet_tf.training.results.predictions import prediction_rows
from xlnet_tf.training.results.predictions import write_predictions
from xlnet_tf.training.results.predictions import write_report
from xlnet_tf.training.results.report import PAGE_FILE
from xlnet_tf.training.results.report import write_page
from xlnet_tf.training.results.summary import make_results
from xlnet_tf.training.results.summary import write_results
from xlnet_tf.training.results.summary import written

# A last loss above _CLEARLY_WORSE times the best loss, or above _FAR_ABOVE
# times a guess's loss, gets a warning.
_CLEARLY_WORSE, _FAR_ABOVE = 1.03, 1.1
_OVERFITTED = ": the model has overfitted"
_TOLD = (PAGE_FILE, RESULTS_FILE, "best")  # files that the last lines list


def write_all(directory, data, kind, examples, decoded, rows, **results):
    """Write a fine-tuning run's predictions, report, results and HTML page.

    Args:
        directory: path of an existing directory.
        data: TaskData.
        kind: TaskKind with its model.
        examples: list of the held-out examples.
        decoded: list of dict, the answers to the held-out examples.
        rows: EncodedExamples, the training rows.
        **results: other arguments of `make_results`.
    """
    directory, task, labels = as_path(directory), data.task, data.labels
    write_predictions(
        directory / f"held_out_{PREDICTIONS_FILE}",
        prediction_rows(examples, decoded),
    )
    write_report(directory, task, examples, decoded, labels)
    run_results = make_results(
        task=task.name,
        examples=len(data.train),
        details=kind.details(rows),
        analysis=analyse(task, examples, decoded, labels),
        # The command `evaluate` reads the columns from the results.
        columns=data.columns,
        **results,
    )
    draw_losses(directory)
    with warnings_in_a_line():
        write_page(
            directory, run_results, task, kind, examples, decoded, labels
        )
    # The results are written last, because they mark the run as done.
    write_results(directory, run_results)


def finetuning_ending(
    directory, results, predicted=None, is_new=True, is_one=True
):
    """Return a fine-tuning run's last lines: metrics, files, next commands.

    Args:
        directory: path of the run.
        results: dict made by `make_results`.
        predicted: (path of the examples, path of the predictions, dict of
            metrics), or None (default) without predictions.
        is_new: bool, whether this process computed the results. False if the
            run was already finished when this process began. Default True.
        is_one: bool, whether the run has a single seed. Default True.

    Returns:
        list of str.
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
    if is_one:
        lines += [
            "next:",
            f"  xlnet export --model {directory} --output saved_models/NAME",
            f"  xlnet evaluate --model {directory} --task {task} --data PATH",
        ]
    return lines


def _last_loss(directory, kind):
    """Return the last loss in a run's log; None if no loss is logged.

    Args:
        directory: path of the run.
        kind: "eval" or "train".
    """
    lines = read_json_lines(directory / METRICS_FILE)
    losses = [x["loss"] for x in lines if x.get("kind") == kind and "loss" in x]
    return losses[-1] if losses else None


def warning_of_failure(directory, vocabulary_size, predictions=1):
    """Return a warning if the last loss is far above a random guess's loss.

    Args:
        directory: path of the run.
        vocabulary_size: int. The logarithm of this size is the loss of a random
            guess.
        predictions: int, how often the objective predicts each target. The
            loss of a target is the sum over these predictions. Default 1.

    Returns:
        str, the warning, or "" for no warning.
    """
    held_out, trained = (
        _last_loss(directory, "eval"),
        _last_loss(directory, "train"),
    )
    chance = predictions * math.log(vocabulary_size)
    last = trained if held_out is None else held_out
    # The comparison with NaN is false, so a loss of NaN gets a warning.
    if last is None or last <= _FAR_ABOVE * chance:
        return ""
    of = "" if held_out is None else "held-out "
    comparison = (
        f"its last {of}loss is {last:.3f}, and a guess among "
        f"{vocabulary_size:,} tokens has {chance:.3f}"
    )
    picture = directory / PICTURE_FILE
    has_learned = trained is not None and trained <= _FAR_ABOVE * chance
    if has_learned and math.isfinite(last):
        return (
            f"warning: the model has overfitted: {comparison}, but in training "
            f"it is {trained:.3f}. Give more text, or fewer --steps; {picture} "
            "shows the step from which the losses differ."
        )
    return (
        f"warning: the run has diverged: {comparison}. Train anew with a lower "
        f"--learning-rate; {picture} shows where the loss rises."
    )


def pretraining_ending(directory, has_failed, exports=()):
    """Return a pretraining run's last lines: best step and next commands.

    Args:
        directory: path of the run.
        has_failed: bool, whether `warning_of_failure` returned a warning.
        exports: list of paths of the run's SavedModels. Default empty.

    Returns:
        list of str.
    """
    lines, preset = [], directory
    best = read_best(directory)
    last = _last_loss(directory, "eval")
    has_both = bool(best) and math.isfinite(best["value"]) and last is not None
    # `not` and `<=`, so that a last loss of NaN counts as worse.
    if has_both and not last <= _CLEARLY_WORSE * best["value"]:
        preset = directory / "best"
        lines.append(
            f"best: step {best['step']}, loss {best['value']:.3f}; the last is "
            f"worse ({last:.3f}){'' if has_failed else _OVERFITTED}, use "
            f"{preset}"
        )
        exports = [x for x in exports if x.name == str(best["step"])]
    elif has_failed:
        return []  # there is no good model to continue from
    second = f"xlnet export --model {preset} --output saved_models/NAME/1"
    if exports:
        second = f"xlnet predict --model {exports[-1]} --text TEXT"
    return [
        *lines,
        "next:",
        "  xlnet finetune --task classification --data FILE.csv "
        "--output DIR \\",
        f"      --preset {preset}",
        f"  {second}",
    ]
