"""Metrics and answers of a task's model on examples.

Shapes: R rows of a split.
"""

import numpy as np

from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.progress import Progress
from data_pipeline.features.batches import Batches
from data_pipeline.features.batches import bucket_lengths
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.labels import labels_of
from data_pipeline.tasks.task_data import tell_guess
from xlnet_tf.tasks import task_kind
from xlnet_tf.training.backends import make_backend
from xlnet_tf.training.results.predictions import prediction_rows
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
        task: TaskKind of the spec's kind, around a model.
        spec: TaskSpec.
        labels: tuple of str or None, the classes.
        splits: dict of str to (examples, EncodedExamples, Batches); the first
            is the main one.
        settings: FinetuningSettings.
        backend: what computes the outputs.
        progress: bool, whether to tell how far it is. Default False.
    """

    def __init__(
        self, task, spec, labels, splits, settings, backend, progress=False
    ):
        self._task = task
        self._spec = spec
        self._labels = labels
        self._progress = progress
        self._splits = {
            name: (
                examples,
                rows,
                backend.distributed(batches.evaluation, settings),
            )
            for name, (examples, rows, batches) in splits.items()
        }
        self._predict = backend.predictor(self._outputs, task.model)

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
            metrics = self._task.score(
                self._spec, examples, decoded, self._labels
            )
            self._task.adopt(metrics)
            suffix = f"_{name}" if scalars else ""
            scalars |= {f"{key}{suffix}": x for key, x in metrics.items()}
        return scalars

    def decoded(self, name, must_stop=None):
        """The answers to the examples of a split.

        Args:
            name: str, of the split.
            must_stop: as of `evaluate`.

        Returns:
            list of dict, see `TaskKind.decode`; None if it was stopped.
        """
        examples, rows, _ = self._splits[name]
        collected = self.collect(name, must_stop)
        if collected is None:
            return None
        return self._task.decode(collected, rows, examples)

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
        outputs = self._task.collect(self._task.outputs_of(features))
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


def reading_settings(stored):
    """dict of the settings by which a model's run made texts into rows.

    Args:
        stored: StoredModel.
    """
    kept = stored.training()
    return {name: kept[name] for name in _READING if name in kept}


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
        run_columns: dict of the columns that a run read, or None; they are
            read where none are given and the file has these.

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
        split = reading.find_columns(
            *(spec, path, "dev", columns, run_columns),
            labels=getattr(model, "labels", None),
        )
        tell_guess(split.guessed)
        examples = split.examples()
    labels = _classes(model, spec, examples)
    decoded = answer_examples(model, spec, examples, settings, progress)
    metrics = task_kind(spec.kind).score(spec, examples, decoded, labels)
    return metrics, prediction_rows(examples, decoded)


def answer_examples(model, spec, examples, settings=None, progress=False):
    """Answers of a model to examples, as after fine-tuning.

    Args:
        model, settings, progress: see `evaluate_task`.
        spec: TaskSpec of the model's kind.
        examples: list of X examples, whose labels, if any, the model knows.

    Returns:
        list of X dicts, see `TaskKind.decode`.
    """
    kind, preprocessor = task_kind(spec.kind), model.preprocessor
    length = preprocessor.sequence_length
    kept = {"sequence_length": length}
    if spec.kind == "question_answering":
        kept["max_question_length"] = preprocessor.max_question_length
    settings = FinetuningSettings.for_task(
        spec.name,
        options={**kept, **(settings or {}), "strategy": "one_device"},
    )
    labels = getattr(model, "labels", None)
    labels = labels and tuple(labels)
    rows = preprocessor.encode(
        examples,
        labels,
        training=False,
        progress=progress,
        **kind.encoding_arguments(spec, settings),
    )
    lengths = padded_lengths(length, model.segment_length)
    batches = Batches(rows, settings.batch_size, lengths, seed=0)
    evaluator = Evaluator(
        *(kind(model), spec, labels, {"": (examples, rows, batches)}),
        *(settings, make_backend(settings), progress),
    )
    return evaluator.decoded("")


def _check_kind(model, spec):
    wanted = task_kind(spec.kind).model_class
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
