"""Metrics and answers of a task's model on examples, without training."""

import dataclasses

from data_pipeline.command_line import warnings_in_a_line
from data_pipeline.features.batches import Batches
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.labels import labels_of
from data_pipeline.tasks.task_data import tell_guess
from xlnet_tf.files import as_path
from xlnet_tf.files import read_json
from xlnet_tf.files.models import RESULTS_FILE
from xlnet_tf.files.models import RUN_FILE
from xlnet_tf.files.models import TRAINING_FILE
from xlnet_tf.tasks import task_class
from xlnet_tf.training.config import FinetuningConfig
from xlnet_tf.training.finetuning_step import FinetuningEvaluator
from xlnet_tf.training.finetuning_step import distribute_examples
from xlnet_tf.training.finetuning_step import padded_lengths
from xlnet_tf.training.results.report import prediction_rows
from xlnet_tf.training.results.summary import read_results
from xlnet_tf.training.strategy import make_strategy

# Settings of a run by which texts are made into rows.
_READING = (
    "long_documents",
    "document_length",
    "stride",
    "num_documents",
    "max_question_length",
)


def settings_of_run(path):
    """Settings by which a run read its texts.

    Args:
        path: path of a run, or of a model in it (`best`, `model.keras`).

    Returns:
        dict, empty if it is not of a run.
    """
    run = _run_with(path, TRAINING_FILE)
    kept = read_json(run / TRAINING_FILE) if run else {}
    return {name: kept[name] for name in _READING if name in kept}


def columns_of_run(path):
    """Columns that a finished run read.

    Args:
        path: as of `settings_of_run`.

    Returns:
        dict of role to str, or None.
    """
    run = _run_with(path, RESULTS_FILE)
    return read_results(run).get("columns") if run else None


def task_of_run(path):
    """Name of the task of a finished run.

    Args:
        path: as of `settings_of_run`.

    Returns:
        str, or None.
    """
    run = _run_with(path, RESULTS_FILE)
    return read_results(run)["task"] if run else None


def _run_with(path, file):
    """The run that a path is, or is in, with a file; path or None."""
    path = as_path(path)
    if (path / file).is_file():
        return path
    run = path.parent  # other programs may have a file of this name
    is_run = (run / RUN_FILE).is_file() and (run / file).is_file()
    return run if is_run else None


def evaluate_task(
    model,
    task,
    path,
    columns=None,
    settings=None,
    progress=False,
    of_run=None,
):
    """Evaluate a model as a fine-tuning run evaluates it.

    Args:
        model: task of `xlnet_tf.tasks` with a preprocessor.
        task: str, name of a task of the model's kind.
        path: str, a file in the format of the task, or a directory or archive
            of it, whose dev split is read.
        columns: str or None, as of `finetune`; guessed as there, and told.
        settings: dict of further fields of FinetuningConfig, or None: the rows
            of a batch, how long documents are read.
        progress: bool, whether to tell how far it is. Default False.
        of_run: dict of `columns_of_run` or None, columns that are read where
            none are given and the file has these.

    Returns:
        tuple of a dict of str to float, the metrics, and a list of dict of
        `prediction_rows`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the task is of another kind or unknown, examples have no
            labels, or the model lacks classes that they have.
    """
    spec = find_task(task)
    _check_kind(model, spec)
    with warnings_in_a_line():
        columns, guessed = reading.find_columns(
            spec, path, "dev", columns, of_run
        )
        tell_guess(guessed)
        known = spec
        if spec.kind == "multi_label":
            known = dataclasses.replace(spec, labels=tuple(model.labels or ()))
        examples = reading.read_examples(known, path, "dev", columns)
    labels = _classes(model, spec, examples)
    decoded = answer_examples(model, spec, examples, settings, progress)
    metrics = model.score(spec, examples, decoded, labels)
    return metrics, prediction_rows(examples, decoded)


def answer_examples(model, spec, examples, settings=None, progress=False):
    """Answers of a model to examples, as after fine-tuning.

    Args:
        model, settings, progress: see `evaluate_task`.
        spec: TaskSpec of the model's kind.
        examples: list of X examples, whose labels, if any, the model knows.

    Returns:
        list of X dicts, see `Finetuned.decode`.
    """
    preprocessor = model.preprocessor
    length = preprocessor.sequence_length
    kept = {"sequence_length": length}
    if spec.kind == "question_answering":
        kept["max_question_length"] = preprocessor.max_question_length
    config = FinetuningConfig.for_task(
        spec.name, options={**kept, **(settings or {})}
    )
    labels = getattr(model, "labels", None)
    rows = preprocessor.encode(
        examples,
        labels and tuple(labels),
        training=False,
        progress=progress,
        **model.encoding_arguments(spec, config),
    )
    lengths = padded_lengths(length, model.segment_length)
    strategy = make_strategy("one_device")
    batches = Batches(rows, config.batch_size, lengths, seed=0)
    dataset = distribute_examples(batches, config, strategy)
    evaluator = FinetuningEvaluator(
        model,
        spec,
        labels,
        {"": (examples, rows, dataset)},
        strategy,
        progress=progress,
    )
    return evaluator.decoded("")


def _check_kind(model, spec):
    wanted = task_class(spec.kind)
    if not isinstance(model, wanted):
        raise ValueError(
            f"the task {spec.name} needs a model of the class "
            f"{wanted.__name__}; this one is of {type(model).__name__}."
        )
    if model.preprocessor is None:
        raise ValueError(
            "the model comes without a tokenizer: give the output of its run, "
            "or a preset directory with a tokenizer."
        )


def _classes(model, spec, examples):
    """tuple of str, or None: the model's classes, if examples have no other."""
    found = labels_of(spec, examples)
    if found is None:
        return None
    if not model.labels:
        raise ValueError(
            "the model has no names of classes: give them as `labels` when it "
            "is made, or fine-tune with the command."
        )
    unknown = sorted(set(found) - set(model.labels))
    if unknown:
        raise ValueError(
            f"the examples have classes that the model does not know: "
            f"{', '.join(unknown[:5])}. It knows "
            f"{', '.join(model.labels[:5])}; look at `--columns`."
        )
    return tuple(model.labels)
