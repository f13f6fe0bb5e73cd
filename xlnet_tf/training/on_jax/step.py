"""The step and the evaluation of pretraining in JAX, data-parallel.

Each device computes its rows of the batch, as a replica of TensorFlow's
strategies does, with the same seeds; sums over the devices decide the update,
which all of them make. Kernels see the rows of one device alone.

Shapes: B rows of the whole batch.
"""

import functools

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

_ROWS, _ALL = PartitionSpec("rows"), PartitionSpec()
_MEMORY = ("memories", "memory_mask")


class Devices:
    """The JAX devices of a run.

    Args:
        count: int, how many, or None for all.
    """

    def __init__(self, count=None):
        self.devices = jax.devices()[:count]
        self._mesh = Mesh(np.array(self.devices), ("rows",))

    def __len__(self):
        return len(self.devices)

    def on_each(self, function, inputs, outputs, given_up=()):
        """Compile a function of the rows of each device.

        Args:
            function: of pytrees of arrays.
            inputs, outputs: per argument and result, whether its arrays are
                divided by rows, bools.
            given_up: ints, arguments whose memory the results may take. Their
                arrays cannot be read afterwards.
        """

        def specs(are_divided):
            return tuple(_ROWS if x else _ALL for x in are_divided)

        return jax.jit(
            jax.shard_map(
                function,
                mesh=self._mesh,
                in_specs=specs(inputs),
                out_specs=specs(outputs),
                check_vma=False,
            ),
            donate_argnums=given_up,
        )

    def divided(self, arrays):
        """Arrays, or a dict of them, with their rows on the devices."""
        return jax.device_put(arrays, NamedSharding(self._mesh, _ROWS))

    def copied(self, arrays):
        """Arrays, or a dict of them, whole on each device."""
        return jax.device_put(arrays, NamedSharding(self._mesh, _ALL))


def replica_seeds(seed, stream, step, replicas):
    """The seeds that `Trainer.replica_seed` gives, int32 [replicas, 2]."""
    fold_in = tf.random.experimental.stateless_fold_in
    # By the type of the step too.
    of_step = fold_in([seed, stream], tf.constant(step, tf.int64))
    return np.stack([fold_in(of_step, r).numpy() for r in range(replicas)])


def part_seeds(seeds, parts):
    """Seeds of micro-batches of the replicas, int32 [replicas, parts, 2]."""
    fold_in = tf.random.experimental.stateless_fold_in
    return np.stack(
        [
            np.stack([fold_in(seed, part).numpy() for part in range(parts)])
            for seed in seeds
        ]
    )


def make_step(model, optimizer, config, devices, first_half_length=0):
    """The compiled step.

    Args:
        model: XLNetPretrainer.
        optimizer: AdamW, built.
        config: TrainingConfig.
        devices: Devices.
        first_half_length: int, of the records, see `XLNetBackbone`.

    Returns:
        function of (weights, moments, features, seeds) to (weights, moments,
        memory, report): lists of arrays, which it gives up; dict of arrays of
        B rows, memory included; int32 [devices, parts, 2]; dict of
        `StatefulMemory.write`; dict of `loss`, `gradient_norm` and
        `is_finite`, of the whole batch, and of `metrics` and `weight`, sums
        that are zero where it is not.
    """
    parts = config.gradient_accumulation_steps

    def gradients(weights, features, seed):
        (_, found), gradient = jax.value_and_grad(
            functools.partial(
                _sums, model, first_half_length=first_half_length
            ),
            has_aux=True,
        )(weights, {**features, "dropout_seed": seed})
        return gradient, *found

    def step(weights, moments, features, seeds):
        rows = features["token_ids"].shape[0] // parts
        totals, memories = None, []
        for part in range(parts):
            of_part = jax.tree.map(
                lambda x, part=part: x[part * rows : (part + 1) * rows],
                features,
            )
            *sums, memory = gradients(weights, of_part, seeds[0, part])
            memories.append(memory)
            totals = jax.tree.map(jnp.add, totals, sums) if totals else sums
        gradient, metrics, weight = jax.lax.psum(totals, "rows")
        weights, moments, report = _updated(
            *(weights, moments, gradient, metrics, weight, optimizer, config)
        )
        memory = jax.tree.map(lambda *x: jnp.concatenate(x), *memories)
        before = {name: features[name] for name in memory}
        memory = _if(report["is_finite"], memory, before)
        return weights, moments, memory, report

    return devices.on_each(
        step,
        (False, False, True, True),
        (False, False, True, False),
        given_up=(0, 1),
    )


def _updated(weights, moments, gradient, metrics, weight, optimizer, config):
    """Weights and moments after an update, as `make_update` makes it.

    Args:
        weights, moments, gradient: lists of arrays.
        metrics, weight: sums over the batch.
        optimizer, config: as of `make_step`.

    Returns:
        (weights, moments, report).
    """
    factor = 1 / jnp.maximum(weight, 1e-6)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in gradient)) * factor
    loss = metrics["loss"] * factor
    is_finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    if config.max_gradient_norm:
        largest = config.max_gradient_norm
        factor *= largest / jnp.maximum(norm, largest)
    new_weights, new_moments = optimizer.stateless_apply(
        moments, [x * factor for x in gradient], weights
    )
    # A step that is left out counts for the learning rate.
    before = [
        new if variable is optimizer.iterations else old
        for variable, new, old in zip(
            optimizer.variables, new_moments, moments, strict=True
        )
    ]
    report = {
        "loss": loss,
        "gradient_norm": norm,
        "is_finite": is_finite,
        "metrics": jax.tree.map(lambda x: jnp.where(is_finite, x, 0), metrics),
        "weight": jnp.where(is_finite, weight, 0),
    }
    return (
        _if(is_finite, new_weights, list(weights)),
        _if(is_finite, new_moments, before),
        report,
    )


def _if(condition, these, others):
    """Arrays of a pytree where a condition holds, else those of another."""
    return jax.tree.map(
        lambda one, other: jnp.where(condition, one, other), these, others
    )


def make_evaluation(model, devices, first_half_length=0):
    """The compiled step of an evaluation.

    Args:
        model: XLNetPretrainer.
        devices: Devices.
        first_half_length: int, of the records, see `XLNetBackbone`.

    Returns:
        function of (weights, features) to (memory, (metrics, weight)).
    """

    def step(weights, features):
        _, (metrics, weight, memory) = _sums(
            model,
            weights,
            features,
            training=False,
            streams="query",
            first_half_length=first_half_length,
        )
        return memory, jax.lax.psum((metrics, weight), "rows")

    return devices.on_each(step, (False, True), (True, False))


def _sums(model, weights, features, training=True, **arguments):
    """(objective, (metrics, weight, memory)) of a batch of one device."""
    mapping = list(zip(model.trainable_variables, weights, strict=True))
    with keras.StatelessScope(state_mapping=mapping):
        outputs = model(features, training=training, **arguments)
        objective, metrics, weight = model.loss_sums(outputs, features)
    memory = {name: outputs[name] for name in _MEMORY if name in features}
    return objective, (metrics, weight, memory)
