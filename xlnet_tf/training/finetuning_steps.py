"""One step of fine-tuning and of evaluation, on any strategy.

What it shares with pretraining is in `training_loop`.

Shapes: B rows of one replica, R rows of an evaluation.
"""

import numpy as np
import orbit
import tensorflow as tf

from xlnet_tf.training import step


def distribute(batches, config, strategy, start_step=None):
    """The batches on the workers of a strategy.

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
        return batches.training(start_step=start_step, **rows)

    return step.distribute(dataset_of_rows, config, strategy)


class FinetuningTrainer(step.Trainer):
    """Orbit's trainer for a task.

    Args:
        model: Task.
        kind: Kind of `xlnet_tf.training.finetuning_kinds`, for the loss.
        optimizer: of `make_optimizer`.
        dataset: of `distribute`.
        config: FinetuningConfig, resolved.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
    """

    seed_stream = 1
    advice = "start again"

    def __init__(
        self, model, kind, optimizer, dataset, config, strategy, global_step
    ):
        super().__init__(
            model, optimizer, dataset, config, strategy, global_step
        )
        self._kind = kind

    def loss_sums(self, features):
        loss_sum, weight = self._kind.loss(self._model, features, training=True)
        return loss_sum, {"loss": loss_sum}, weight, {}

    def scalars(self, means, rows_per_second):
        return {**means, "rows_per_second": rows_per_second}


class FinetuningEvaluator(orbit.AbstractEvaluator):
    """Collects what the model says of every row, and scores it.

    Args:
        model: Task.
        kind: Kind.
        splits: dict of str to (examples, Rows, distributed dataset); the
            first is the one that counts.
        strategy: tf.distribute.Strategy.
    """

    def __init__(self, model, kind, splits, strategy):
        self._splits = splits
        self._model = model
        self._kind = kind
        self._strategy = strategy
        self._step = tf.function(
            self._outputs, autograph=False, reduce_retracing=True
        )

    def evaluate(self, num_steps=None):
        """Scores all splits.

        Args:
            num_steps: not used; every row is read once.

        Returns:
            dict of str to float: the metrics of the first split, then those of
            the others with "_" and their name behind.
        """
        scalars = {}
        for name, (examples, _, _) in self._splits.items():
            metrics = self._kind.metrics(examples, *self.collect(name))
            suffix = f"_{name}" if scalars else ""
            scalars |= {f"{key}{suffix}": x for key, x in metrics.items()}
        return scalars

    def collect(self, name):
        """What the model says of every row of a split, in their order.

        Args:
            name: str, the split's.

        Returns:
            (Rows, dict of str to array [R, ...]).
        """
        _, rows, dataset = self._splits[name]
        collected = {}
        for features in dataset:
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
        return rows, collected

    def _outputs(self, features):
        outputs = self._strategy.run(self._replica_outputs, args=(features,))
        return {
            name: self._strategy.gather(value, axis=0)
            for name, value in outputs.items()
        }

    def _replica_outputs(self, features):
        outputs = self._kind.outputs(self._model, features)
        return {**outputs, "row_index": features["row_index"]}
