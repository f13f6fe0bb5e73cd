"""End of a run: its result files, and its last lines about them.

The last lines suggest the next commands.
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

# Factor of the best loss, or of chance, from which the last loss is worse.
_CLEARLY_WORSE, _FAR_ABOVE = 1.03, 1.1
_OVERFITTED = ": the model has overfitted"
_TOLD = (PAGE_FILE, RESULTS_FILE, "best")  # files listed at the end


def write_all(directory, data, kind, examples, decoded, rows, **results):
    """Write predictions, report, results and the page of a fine-tuning run.

    Args:
        directory: path that exists.
        data: TaskData.
        kind: TaskKind around the model.
        examples: list of the held-out examples.
        decoded: list of dict, the answers to them.
        rows: EncodedExamples of the training.
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
        # `evaluate` reads this file again.
        columns=data.columns,
        **results,
    )
    draw_losses(directory)
    with warnings_in_a_line():
        write_page(
            directory, run_results, task, kind, examples, decoded, labels
        )
    write_results(directory, run_results)  # last: it marks the run as done


def finetuning_ending(
    directory, results, predicted=None, is_new=True, is_one=True
):
    """Last lines of a fine-tuning run: metrics, files, next commands.

    Args:
        directory: path of the run.
        results: dict of `make_results`.
        predicted: (path of examples, path of their predictions, dict of
            metrics), or None.
        is_new: bool, whether the results are new.
        is_one: bool, whether the run has a single seed.

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
    if is_one:
        lines += [
            "next:",
            f"  xlnet export --model {directory} --output saved_models/NAME",
            f"  xlnet evaluate --model {directory} --task {task} --data PATH",
        ]
    return lines


def _last_loss(directory, kind):
    """The last loss in the log of a run, float, or None without one.

    Args:
        directory: path of the run.
        kind: "eval" or "train".
    """
    lines = read_json_lines(directory / METRICS_FILE)
    losses = [x["loss"] for x in lines if x.get("kind") == kind and "loss" in x]
    return losses[-1] if losses else None


def warning_of_failure(directory, vocabulary_size, predictions=1):
    """A line about a run worse than guessing, str; "" for others.

    Args:
        directory: path of the run.
        vocabulary_size: int; its logarithm is the loss of a random guess.
        predictions: int, number of predictions per token, whose losses are
            summed. Default 1.
    """
    held_out, trained = (
        _last_loss(directory, "eval"),
        _last_loss(directory, "train"),
    )
    chance = predictions * math.log(vocabulary_size)
    last = trained if held_out is None else held_out
    if last is None or last <= _FAR_ABOVE * chance:  # NaN is not
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
            "shows where the losses part."
        )
    return (
        f"warning: the run has diverged: {comparison}. Train anew with a lower "
        f"--learning-rate; {picture} shows where the loss rises."
    )


def pretraining_ending(directory, has_failed, exports=()):
    """Last lines of a pretraining run: its best step, next commands.

    Args:
        directory: path of the run.
        has_failed: bool, whether there is a `warning_of_failure`.
        exports: list of paths of the run's SavedModels, if any.

    Returns:
        str.
    """
    lines, preset = [], directory
    best = read_best(directory)
    last = _last_loss(directory, "eval")
    has_both = bool(best) and math.isfinite(best["value"]) and last is not None
    # NaN is worse too.
    if has_both and not last <= _CLEARLY_WORSE * best["value"]:
        preset = directory / "best"
        lines.append(
            f"best: step {best['step']}, loss {best['value']:.3f}; the last is "
            f"worse ({last:.3f}){'' if has_failed else _OVERFITTED}, use "
            f"{preset}"
        )
        exports = [x for x in exports if x.name == str(best["step"])]
    elif has_failed:
        return []  # nothing to continue from
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
