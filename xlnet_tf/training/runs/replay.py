"""A step of a run computed again, in memory: its loss, gradients and rows."""

import json
import sys

import numpy as np
import tensorflow as tf

from xlnet_tf.files import read_json
from xlnet_tf.files.models import METRICS_FILE
from xlnet_tf.files.models import RUN_FILE
from xlnet_tf.files.models import TRAINING_FILE
from xlnet_tf.training.config import WITHOUT_INFLUENCE
from xlnet_tf.training.runs.checkpoints import steps_of
from xlnet_tf.training.runs.not_finite import noted_steps
from xlnet_tf.training.runs.progress.log import read_steps


def replay(run, step):
    """Computes a step again and prints what it gave; writes no file.

    The steps from the newest checkpoint before it are trained again first, so
    that weights, memory, records and dropout are those of the run.

    Args:
        run: Run, of which nothing was opened yet.
        step: int, from 1.

    Returns:
        int, the exit status 0.

    Raises:
        FileNotFoundError: if the directory holds no run.
        ValueError: if it holds another one, or the step cannot be computed.
    """
    if not (run.output / RUN_FILE).is_file():
        raise FileNotFoundError(
            f"{run.output} holds no run of which a step could be computed "
            f"again: it has no {RUN_FILE}. Give the --output of the run."
        )
    run.read_data()
    run.check_directory(is_same=True)
    _check_settings(run)
    _check_step(run, step)
    run.create_model()
    run.restore(before=step)
    trainer = run.trainer()
    trainer.results.most_skipped = step  # the run went on, or ended there
    begin = int(run.global_step.numpy())
    while (made := int(run.global_step.numpy())) < step - 1:
        count = min(run.config.steps_per_loop, step - 1 - made)
        trainer.train(tf.constant(count))
    batch = next(iter(run.trainer().train_dataset))
    weights = [np.isfinite(x.numpy()).all() for x in _variables(trainer)]
    row_losses, norms = _inspect(trainer, batch, run.strategy)
    trainer.train(tf.constant(1))
    if run.is_chief:
        (result,) = trainer.results.of_loop()
        before = run.restored or "the beginning"
        lines = [
            f"step      {step}, {step - 1 - begin} steps after {before}",
            f"loss      {result.loss}",
            f"gradient  norm {result.gradient_norm}, "
            f"{_where_finite(trainer, np.isfinite(norms))}",
            f"weights   {_where_finite(trainer, weights)}",
        ]
        rows = zip(row_losses, run.rows_of_step(step), strict=True)
        for number, (loss, row) in enumerate(rows):
            lines.append(f"row {number:<5} loss {loss}, {json.dumps(row)}")
        sys.stdout.write("".join(line + "\n" for line in lines))
    return 0


def _check_settings(run):
    """Refuses settings that would give other numbers than the run's."""
    kept = read_json(run.output / TRAINING_FILE)
    found = [
        f"{name}: {kept[name]} there, {value} now"
        for name, value in run.config.to_dict().items()
        if name not in WITHOUT_INFLUENCE and kept.get(name, value) != value
    ]
    if found:
        raise ValueError(
            f"`--replay` computes with the settings of the run in {run.output} "
            f"({'; '.join(found)}). Give the same options, or --training "
            f"{run.output / TRAINING_FILE}."
        )


def _check_step(run, step):
    """Refuses a step that the run did not make, or that is too far."""
    lines = read_steps(run.output / METRICS_FILE) + noted_steps(run.output)
    checkpoints = steps_of(run.output / "checkpoints")
    last = max([0, *checkpoints, *(x["step"] for x in lines)])
    if not 1 <= step <= last:
        raise ValueError(
            f"`--replay` must be a step that the run in {run.output} has made, "
            f"from 1 to {last}. Received: --replay {step}."
        )
    # From the beginning it is no farther than from one checkpoint to the next.
    is_near = step <= run.config.checkpoint_interval
    if checkpoints and checkpoints[0] >= step and not is_near:
        raise ValueError(
            f"there is no checkpoint before step {step} in {run.output}: the "
            f"oldest is of step {checkpoints[0]}. A run keeps more of them "
            f"with --checkpoints-to-keep. Received: --replay {step}."
        )


def _inspect(trainer, batch, strategy):
    """The parts of the next step, which is not made.

    Args:
        trainer: Trainer.
        batch: distributed batch.
        strategy: tf.distribute.Strategy.

    Returns:
        (losses, norms): float32 arrays, the loss of each row of the batch and
        the gradient norm of each variable.
    """

    def in_replica(features):
        seed = trainer.replica_seed()
        losses = [
            trainer.row_losses(*part) for part in trainer.parts(features, seed)
        ]
        (gradients, _, weight), _ = trainer.gradients(features, seed)
        total, *gradients = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [weight, *gradients]
        )
        norms = tf.stack([tf.norm(x) for x in gradients])
        return tf.concat(losses, axis=0), norms / tf.maximum(total, 1e-6)

    @tf.function(autograph=False)
    def inspect(batch):
        losses, norms = strategy.run(in_replica, args=(batch,))
        norms = strategy.experimental_local_results(norms)[0]
        return strategy.gather(losses, axis=0), norms

    return [x.numpy() for x in inspect(batch)]


def _variables(trainer):
    return trainer.model.trainable_variables


def _where_finite(trainer, is_finite):
    """str, in which variables values are finite."""
    paths = [x.path for x in _variables(trainer)]
    found = [x for x, y in zip(paths, is_finite, strict=True) if not y]
    if not found:
        return f"finite in all {len(paths)} variables"
    return (
        f"not finite in {len(found)} of {len(paths)} variables, the first is "
        f"{found[0]}"
    )
