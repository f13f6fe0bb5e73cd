"""The step and the evaluation of fine-tuning, on any strategy.

Shapes: B rows of one replica, R rows of a split.
"""

import numpy as np
import orbit
import tensorflow as tf

from data_pipeline.features.batches import bucket_lengths
from data_pipeline.progress import Progress
from xlnet_tf.training.step import Trainer
from xlnet_tf.training.step import distribute


def balance_classes(rows, labels):
    """Give every class an equal share of the loss, by `row_weight`.

    A class of n of X examples weighs X / (n * classes that occur), so that the
    mean over the examples is 1. The windows of a text share its weight.

    Args:
        rows: EncodedExamples with `label`, `example` and `row_weight` [R];
            changed.
        labels: sequence of the classes, or None for a task without.

    Raises:
        ValueError: if a row has no class, or may have several.
    """
    from sklearn.utils.class_weight import compute_class_weight

    label = rows.dense.get("label")
    if not labels or label is None or label.ndim > 1:
        raise ValueError(
            '`class_weights` "balanced" needs a task with one class for each '
            "text. Leave it out for other tasks."
        )
    _, first = np.unique(rows.dense["example"], return_index=True)
    classes = np.unique(label)
    weights = np.ones(len(labels), np.float32)
    weights[classes] = compute_class_weight(
        "balanced", classes=classes, y=label[first]
    )
    rows.dense["row_weight"] = rows.dense["row_weight"] * weights[label]


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


def distribute_examples(batches, config, strategy, start_step=None):
    """The batches of examples on the workers of a strategy.

    Args:
        batches: data_pipeline Batches.
        config: FinetuningConfig.
        strategy: tf.distribute.Strategy.
        start_step: int, the first training step to read, or None for one
            evaluation of all rows.

    Returns:
        distributed dataset; all replicas get equal shapes at a step.
    """

    def dataset_of_rows(**rows):
        if start_step is None:
            return batches.evaluation(**rows)
        return batches.training(range(start_step, config.steps), **rows)

    return distribute(dataset_of_rows, config, strategy)


class FinetuningTrainer(Trainer):
    """Orbit's trainer for a task.

    Args:
        model: Task.
        optimizer: of `make_optimizer`.
        dataset: of `distribute_examples`.
        config: FinetuningConfig, resolved.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
    """

    seed_stream = 1
    advice = "start again"

    def outputs_of(self, features):
        return self._model.outputs_of(features, training=True)

    def loss_sums(self, outputs, features):
        loss, weight = self._model.loss_sums(outputs, features)
        return loss, {"loss": loss}, weight

    def scalars(self, means, rows_per_second):
        return {**means, "rows_per_second": rows_per_second}


class FinetuningEvaluator(orbit.AbstractEvaluator):
    """Collects the outputs of every row, and scores the answers.

    Args:
        task: Task.
        spec: TaskSpec.
        labels: tuple of str or None, the classes.
        splits: dict of str to (examples, EncodedExamples, dataset); the
            first is the main one.
        strategy: tf.distribute.Strategy.
        between_batches: function without arguments that may raise an error to
            leave the evaluation, or None.
        progress: bool, whether to tell how far it is. Default False.
    """

    def __init__(
        self,
        task,
        spec,
        labels,
        splits,
        strategy,
        between_batches=None,
        progress=False,
    ):
        self._progress = progress
        self._between_batches = between_batches
        self._splits = splits
        self._task = task
        self._spec = spec
        self._labels = labels
        self._strategy = strategy
        self._step = tf.function(
            self._outputs, autograph=False, reduce_retracing=True
        )

    def evaluate(self, num_steps=None):
        """Score all splits.

        Args:
            num_steps: not used; every row is read once.

        Returns:
            dict of str to float: the metrics of the first split, then those of
            the others with "_" and their name behind.
        """
        scalars = {}
        for name, (examples, _, _) in self._splits.items():
            metrics = self._task.score(
                self._spec, examples, self.decoded(name), self._labels
            )
            self._task.adopt(metrics)
            suffix = f"_{name}" if scalars else ""
            scalars |= {f"{key}{suffix}": x for key, x in metrics.items()}
        return scalars

    def decoded(self, name):
        """The answers to the examples of a split.

        Args:
            name: str, of the split.

        Returns:
            list of dict, see `Finetuned.decode`.
        """
        rows, collected = self.collect(name)
        examples = self._splits[name][0]
        return self._task.decode(collected, rows, examples)

    def collect(self, name):
        """The outputs of every row of a split, in their order.

        Args:
            name: str, the split's.

        Returns:
            (EncodedExamples, dict of str to array [R, ...]).
        """
        _, rows, dataset = self._splits[name]
        collected = {}
        label = f"predicting {name}".strip()
        with Progress(label, "rows", len(rows), shown=self._progress) as bar:
            for features in dataset:
                if self._between_batches is not None:
                    self._between_batches()
                batch = {
                    key: value.numpy()
                    for key, value in self._step(features).items()
                }
                index = batch.pop("row_index")
                is_real = index >= 0  # the last batch is filled up
                for key, value in batch.items():
                    if key not in collected:
                        shape = (len(rows), *value.shape[1:])
                        collected[key] = np.zeros(shape, value.dtype)
                    collected[key][index[is_real]] = value[is_real]
                bar.update(int(is_real.sum()))
        return rows, collected

    def _outputs(self, features):
        outputs = self._strategy.run(self._replica_outputs, args=(features,))
        return {
            name: self._strategy.gather(value, axis=0)
            for name, value in outputs.items()
        }

    def _replica_outputs(self, features):
        outputs = self._task.collect(self._task.outputs_of(features))
        return {**outputs, "row_index": features["row_index"]}
