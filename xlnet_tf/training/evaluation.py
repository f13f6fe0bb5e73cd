"""Evaluation of a task's model on examples: metrics and answers.

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

# Names of the settings that affect the conversion of texts to rows.
_READING = (
    "long_documents",
    "document_length",
    "stride",
    "num_documents",
    "max_question_length",
)


class Evaluator:
    """Evaluator of a task's model on one or several splits.

    The evaluator computes the outputs of all rows, decodes the outputs to
    answers, and scores the answers.

    Args:
        task: TaskKind that fits `spec`, with the model.
        spec: TaskSpec.
        labels: tuple of str, the classes, or None.
        splits: dict from a split's name to (examples, EncodedExamples,
            Batches). The main split comes first.
        settings: FinetuningSettings.
        backend: TensorFlow or Jax, which computes the outputs.
        progress: bool, whether to print progress. Default False.
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
            must_stop: function without arguments, or None (default). It is
                called before each batch. If it returns True, the evaluation
                stops.

        Returns:
            dict of str to float: the metrics of the main split, then the
            metrics of every other split. The metric names of the other splits
            have the suffix `_NAME`, where NAME is the split's name. The result
            is None if the evaluation was stopped.
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
        """Compute the answers to the examples of a split.

        Args:
            name: str, name of the split.
            must_stop: see `evaluate`.

        Returns:
            list of dict, see `TaskKind.decode`. The result is None if the
            evaluation was stopped.
        """
        examples, rows, _ = self._splits[name]
        collected = self.collect(name, must_stop)
        if collected is None:
            return None
        return self._task.decode(collected, rows, examples)

    def collect(self, name, must_stop=None):
        """Compute a split's outputs, in the order of its rows.

        Args:
            name: str, name of the split.
            must_stop: see `evaluate`.

        Returns:
            dict of str to array [R, ...]. The result is None if the evaluation
            was stopped.
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
                is_real = index >= 0  # padding of the last batch has -1
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
    """Return the few lengths to which batches are padded.

    Args:
        sequence_length: int, largest number of tokens of a row.
        segment_length: int, number of tokens that the task computes at a time,
            or None (default) for all tokens.

    Returns:
        tuple of int, in increasing order. With a `segment_length`, the
        lengths are multiples of `segment_length`.
    """
    if not segment_length:
        return bucket_lengths(sequence_length)
    segments = -(-sequence_length // segment_length)
    return tuple(
        segment_length * count for count in bucket_lengths(segments, smallest=1)
    )


def reading_settings(stored):
    """Read the settings with which the model's training run encoded its rows.

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
    """Evaluate a model on a task, in the same way as a fine-tuning run.

    Args:
        model: task of `xlnet_tf.tasks` with a preprocessor.
        task: str, name of a task of the model's kind.
        path: str, path of a file in the task's format, or of the task's
            directory or archive. From a directory or archive the dev split is
            read.
        columns: str, see `FinetuningSettings.columns`, or None (default) to
            guess the columns and print them.
        settings: dict of other fields of FinetuningSettings, such as the batch
            size and the handling of long documents, or None (default).
        progress: bool, whether to print progress. Default False.
        run_columns: dict of the columns of the model's training run, or None
            (default). If the file has these columns, no columns are guessed.

    Returns:
        (metrics, rows): `metrics` is a dict of str to float, and `rows` is the
        result of `prediction_rows`, a list of dict.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the task is unknown or does not fit the model's class, if
            examples have no labels, or if an example has a class that the model
            does not have.
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
    """Compute a model's answers to examples, as a fine-tuning run does.

    Args:
        model, settings, progress: see `evaluate_task`.
        spec: TaskSpec of the model's kind.
        examples: list of X examples. If examples have labels, the labels must
            be classes of the model.

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
    """Return the model's classes, and refuse examples of other classes.

    Returns:
        tuple of str, or None for a task without classes.
    """
    classes = labels_of(spec, examples)
    if classes is None:
        return None
    if not model.labels:
        raise ValueError(
            "the model has no names of classes: give them as `labels` when it "
            "is made, or fine-tune with the command."
        )
    unknown = sorted(set(classes) - set(model.labels))
    if unknown:
        raise ValueError(
            f"the examples have classes that the model does not know: "
            f"{', '.join(unknown[:5])}. It knows "
            f"{', '.join(model.labels[:5])}; look at `--columns`."
        )
    return tuple(model.labels)
