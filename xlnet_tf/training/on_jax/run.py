"""A pretraining run on Keras' JAX backend, with the files of any other."""

import math
import time

import jax
import orbit
import tensorflow as tf

from data_pipeline.progress import track
from xlnet_tf.training.on_jax.state import JaxMemoryRows
from xlnet_tf.training.on_jax.state import Variables
from xlnet_tf.training.on_jax.state import assign
from xlnet_tf.training.on_jax.state import values
from xlnet_tf.training.on_jax.step import Devices
from xlnet_tf.training.on_jax.step import make_evaluation
from xlnet_tf.training.on_jax.step import make_step
from xlnet_tf.training.on_jax.step import part_seeds
from xlnet_tf.training.on_jax.step import replica_seeds
from xlnet_tf.training.pretraining import PretrainingRun
from xlnet_tf.training.pretraining_step import PretrainingTrainer
from xlnet_tf.training.pretraining_step import make_memory
from xlnet_tf.training.pretraining_step import read_batches
from xlnet_tf.training.pretraining_step import scalars_of
from xlnet_tf.training.step_results import StepResults
from xlnet_tf.training.strategy import names_several_workers

_STRATEGIES = ("auto", "one_device", "mirrored", "tpu")


class JaxPretrainingRun(PretrainingRun):
    """A run whose steps JAX computes, on all devices that it has.

    Args:
        options, config: as of PretrainingRun.

    Raises:
        ValueError: if the options ask for what JAX does not do here.
    """

    memory_rows = JaxMemoryRows

    def __init__(self, options, config):
        _refuse(options, config)
        if options.compilation_cache:
            jax.config.update(
                "jax_compilation_cache_dir", options.compilation_cache
            )
        # TensorFlow would take the memory that JAX needs.
        tf.config.set_visible_devices([], "GPU")
        # Of TensorFlow's side: the data and the files.
        super().__init__(
            options, config, tf.distribute.OneDeviceStrategy("CPU:0")
        )
        one = options.strategy == "one_device"
        self.devices = Devices(1 if one else None)
        self.num_replicas = len(self.devices)

    def tracked(self):
        trained = self.model.trainable_variables
        # What an objective does not train may be of a preset.
        places = {id(x) for x in trained}
        others = [x for x in self.model.weights if id(x) not in places]
        return {
            "model": Variables(trained, others),
            "optimizer": Variables(self.optimizer.variables),
        }

    def trainer(self):
        return JaxTrainer(self, _batches(self.data, int(self.global_step)))

    def evaluator(self):
        return JaxEvaluator(self)

    def describe_strategy(self):
        kind = self.devices.devices[0].platform.upper()
        return f"JAX, {len(self.devices)} device(s) of {kind}"


def _refuse(options, config):
    """Refuses options that TensorFlow's trainer alone has."""
    if options.strategy not in _STRATEGIES:
        raise ValueError(
            f"on Keras' JAX backend --strategy is one of "
            f"{', '.join(_STRATEGIES)}. Received: {options.strategy}."
        )
    found = jax.devices()[0].platform
    if options.strategy == "tpu" and found != "tpu":
        raise ValueError(
            f"JAX finds no TPU, but a {found.upper()}. On a TPU VM, install "
            "jax[tpu]; without a TPU use --strategy auto."
        )
    if options.strategy == "auto" and names_several_workers():
        raise ValueError(
            "the variable TF_CONFIG names several workers, and training on JAX "
            "is of one process. Unset it, or train with TensorFlow."
        )
    for name, is_given in (
        ("--export", options.export),
        # JAX's profiler crashes where TensorFlow, which reads the data, is too.
        ("--profile", config.profile),
        ("--precision float16", config.precision == "float16"),
        ("--tpu", options.tpu not in (None, "local")),
    ):
        if is_given:
            raise ValueError(
                f"{name} is of the TensorFlow backend, and KERAS_BACKEND is "
                "jax. Presets are read by both: train here, and export the "
                "preset of the run with TensorFlow."
            )


def _batches(data, start_step):
    """Endless iterator of dicts of arrays, whole batches."""
    return read_batches(data, start_step).as_numpy_iterator()


def _with_memory(features, memory, devices):
    """Features on the devices, with the memory of their rows."""
    if memory is not None:
        features = memory.read(features)
    return devices.divided(dict(features))


class JaxTrainer(orbit.AbstractTrainer):
    """Orbit's trainer, whose steps JAX makes.

    Args:
        run: JaxPretrainingRun.
        batches: iterator of dicts of arrays.

    Attributes:
        stop, results: as of `step.Trainer`.
    """

    def __init__(self, run, batches):
        self._run, self._batches = run, batches
        self._step = make_step(
            run.model,
            run.optimizer,
            run.config,
            run.devices,
            run.data.first_half_length,
        )
        self.stop = None
        self.results = StepResults(run.config.on_not_finite)

    def train(self, num_steps):
        run, begun = self._run, time.monotonic()
        first_step = int(run.global_step.numpy())
        self.results.begin(first_step)
        weights = run.devices.copied(values(run.model.trainable_variables))
        moments = run.devices.copied(values(run.optimizer.variables))
        sums, weight, norms, length = None, 0.0, [], 0
        for _ in range(int(num_steps)):
            features = next(self._batches)
            length = features["token_ids"].shape[1]
            features = _with_memory(features, run.memory, run.devices)
            weights, moments, memory, report = self._step(
                weights, moments, features, self._seeds()
            )  # which takes the memory of both
            if memory:
                run.memory.write(memory)
            found = jax.device_get(report)
            sums = _added(sums, found["metrics"])
            weight += float(found["weight"])
            if math.isfinite(found["gradient_norm"]):
                norms.append(float(found["gradient_norm"]))
            self.results.add(
                tf.constant(found["loss"]), tf.constant(found["gradient_norm"])
            )
            run.global_step.assign_add(1)
            if self._ends():
                break
        assign(run.model.trainable_variables, weights)
        assign(run.optimizer.variables, moments)
        seconds = max(time.monotonic() - begun, 1e-9)
        steps = int(run.global_step.numpy()) - first_step
        tokens = steps * run.config.batch_size * length / seconds
        return self._scalars(sums, weight, norms, tokens)

    def _seeds(self):
        config, devices = self._run.config, self._run.devices
        step = int(self._run.global_step.numpy())
        stream = PretrainingTrainer.seed_stream
        seeds = replica_seeds(config.seed, stream, step, len(devices))
        return devices.divided(
            part_seeds(seeds, config.gradient_accumulation_steps)
        )

    def _ends(self):
        ends = bool(self.results.must_end())
        return ends if self.stop is None else ends or bool(self.stop)

    def _scalars(self, sums, weight, norms, tokens_per_second):
        found = self.results.scalars(PretrainingTrainer.advice)
        means = {k: v / max(weight, 1e-6) for k, v in sums.items()}
        norm = sum(norms) / max(len(norms), 1)
        if "largest_loss" not in found:  # means of nothing
            means, norm = dict.fromkeys(means, math.nan), math.nan
        return {
            **scalars_of(means, self._run.model),
            "tokens_per_second": tokens_per_second,
            "gradient_norm": norm,
            "learning_rate": float(self._run.optimizer.learning_rate),
            **found,
        }


class JaxEvaluator(orbit.AbstractEvaluator):
    """Orbit's evaluator, whose batches JAX computes.

    Args:
        run: JaxPretrainingRun.
    """

    def __init__(self, run):
        self._run = run
        config = run.evaluation_config()
        self._memory = make_memory(run.model, config, run.strategy)
        self._step = make_evaluation(
            run.model, run.devices, run.held_out.first_half_length
        )

    def evaluate(self, num_steps):
        run, batches = self._run, _batches(self._run.held_out, 0)
        if self._memory is not None:
            self._memory.reset()
        weights = run.devices.copied(values(run.model.trainable_variables))
        sums, weight = None, 0.0
        steps, shown = range(int(num_steps)), run.shows_progress
        for _ in track(steps, "held out", "batches", shown=shown):
            features = _with_memory(next(batches), self._memory, run.devices)
            memory, (metrics, of_batch) = self._step(weights, features)
            if memory:
                self._memory.write(memory)
            sums = _added(sums, jax.device_get(metrics))
            weight += float(of_batch)
            run.check_stop()
        means = {k: v / max(weight, 1e-6) for k, v in sums.items()}
        return scalars_of(means, run.model)


def _added(sums, more):
    """dict of floats, the sums of two."""
    return {k: float(v) + (sums[k] if sums else 0.0) for k, v in more.items()}
