"""Metrics and answers of a task's model on examples.

Shapes: R rows of a split.
"""

import dataclasses

import numpy as np

from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json
from data_pipeline.base.models import RESULTS_FILE
from data_pipeline.base.models import RUN_FILE
from data_pipeline.base.models import TRAINING_FILE
from data_pipeline.base.progress import Progress
from data_pipeline.features.batches import Batches
from data_pipeline.features.batches import bucket_lengths
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.labels import labels_of
from data_pipeline.tasks.task_data import tell_guess
from xlnet_tf.tasks import task_class
from xlnet_tf.training.devices import make_strategy
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.results.report import prediction_rows
from xlnet_tf.training.results.summary import read_results
from xlnet_tf.training.settings import FinetuningSettings

# Settings of a run by which texts are made into rows.
_READING = (
    "long_documents",
    "document_length",
    "stride",
    "num_documents",
    "max_question_length",
)


class Evaluator:
    """Collects the outputs of every row, and scores the answers.

    Args:
        model: Task.
        spec: TaskSpec.
        labels: tuple of str or None, the classes.
        splits: dict of str to (examples, EncodedExamples, Batches); the first
            is the main one.
        config: FinetuningSettings.
        backend: what computes the outputs.
        progress: bool, whether to tell how far it is. Default False.
    """

    def __init__(
        self, model, spec, labels, splits, config, backend, progress=False
    ):
        self._model = model
        self._spec = spec
        self._labels = labels
        self._progress = progress
        self._splits = {
            name: (
                examples,
                rows,
                backend.distributed(batches.evaluation, config),
            )
            for name, (examples, rows, batches) in splits.items()
        }
        self._predict = backend.predictor(self._outputs)

    def evaluate(self, must_stop=None):
        """Score all splits.

        Args:
            must_stop: function without arguments, asked before each batch, or
                None (default).

        Returns:
            dict of str to float: the metrics of the first split, then those of
            the others with "_" and their name behind; None if it was stopped.
        """
        scalars = {}
        for name, (examples, _, _) in self._splits.items():
            decoded = self.decoded(name, must_stop)
            if decoded is None:
                return None
            metrics = self._model.score(
                self._spec, examples, decoded, self._labels
            )
            self._model.adopt(metrics)
            suffix = f"_{name}" if scalars else ""
            scalars |= {f"{key}{suffix}": x for key, x in metrics.items()}
        return scalars

    def decoded(self, name, must_stop=None):
        """The answers to the examples of a split.

        Args:
            name: str, of the split.
            must_stop: as of `evaluate`.

        Returns:
            list of dict, see `Finetuned.decode`; None if it was stopped.
        """
        examples, rows, _ = self._splits[name]
        collected = self.collect(name, must_stop)
        if collected is None:
            return None
        return self._model.decode(collected, rows, examples)

    def collect(self, name, must_stop=None):
        """The outputs of every row of a split, in their order.

        Args:
            name: str, the split's.
            must_stop: as of `evaluate`.

        Returns:
            dict of str to array [R, ...]; None if it was stopped.
        """
        _, rows, batches = self._splits[name]
        collected = {}
        label = f"predicting {name}".strip()
        with Progress(label, "rows", len(rows), shown=self._progress) as bar:
            for features in batches:
                if must_stop is not None and must_stop():
                    return None
                outputs = self._predict(features)
                index = outputs.pop("row_index")
                is_real = index >= 0  # the last batch is filled up
                for key, value in outputs.items():
                    if key not in collected:
                        shape = (len(rows), *value.shape[1:])
                        collected[key] = np.zeros(shape, value.dtype)
                    collected[key][index[is_real]] = value[is_real]
                bar.update(int(is_real.sum()))
        return collected

    def _outputs(self, features):
        outputs = self._model.collect(self._model.outputs_of(features))
        return {**outputs, "row_index": features["row_index"]}


def padded_lengths(sequence_length, segment_length=None):
    """Lengths that batches are padded to.

    Args:
        sequence_length: int, tokens of a row at most.
        segment_length: int or None, tokens that the task reads at a time.

    Returns:
        tuple of int, increasing; multiples of `segment_length`.
    """
    if not segment_length:
        return bucket_lengths(sequence_length)
    segments = -(-sequence_length // segment_length)
    return tuple(
        segment_length * count for count in bucket_lengths(segments, smallest=1)
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
    run_columns=None,
):
    """Evaluate a model as a fine-tuning run evaluates it.

    Args:
        model: task of `xlnet_tf.tasks` with a preprocessor.
        task: str, name of a task of the model's kind.
        path: str, a file in the format of the task, or a directory or archive
            of it, whose dev split is read.
        columns: str or None, as of `finetune`; guessed as there, and told.
        settings: dict of further fields of FinetuningSettings, or None: the
            rows of a batch, how long documents are read.
        progress: bool, whether to tell how far it is. Default False.
        run_columns: dict of `columns_of_run` or None, columns that are read
            where none are given and the file has these.

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
    known = spec
    if spec.kind == "multi_label":
        known = dataclasses.replace(spec, labels=tuple(model.labels or ()))
    with warnings_in_a_line():
        split = reading.find_columns(known, path, "dev", columns, run_columns)
        tell_guess(split.guessed)
        examples = split.examples()
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
    config = FinetuningSettings.for_task(
        spec.name, options={**kept, **(settings or {})}
    )
    labels = getattr(model, "labels", None)
    labels = labels and tuple(labels)
    rows = preprocessor.encode(
        examples,
        labels,
        training=False,
        progress=progress,
        **model.encoding_arguments(spec, config),
    )
    lengths = padded_lengths(length, model.segment_length)
    batches = Batches(rows, config.batch_size, lengths, seed=0)
    evaluator = Evaluator(
        *(model, spec, labels, {"": (examples, rows, batches)}),
        *(config, TensorFlow(make_strategy("one_device")), progress),
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
