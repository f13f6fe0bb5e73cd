"""Data-parallel steps, evaluations and predictions on JAX.

Data, files and the loop are the same as on TensorFlow. Each device computes its
rows of the batch with the same seeds as a replica of a TensorFlow strategy.
Gradients are summed over the devices, so that all devices make the same update.
Each device calls the attention kernels on its own rows.

Shapes: B rows of the whole batch.
"""

import collections
import functools
import io
import math
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from data_pipeline.base.progress import track
from xlnet_tf.training import jax_workers
from xlnet_tf.training.checkpoints import MemoryRows
from xlnet_tf.training.devices import JaxWorker
from xlnet_tf.training.devices import is_chief
from xlnet_tf.training.devices import names_several_workers
from xlnet_tf.training.on_tensorflow import make_memory
from xlnet_tf.training.step import LoopReport
from xlnet_tf.training.step import StepResult
from xlnet_tf.training.step import most_skipped

_OF_ONE_PROCESS = ("one_device", "mirrored")
_ROWS, _ALL = PartitionSpec("rows"), PartitionSpec()
_MEMORY = ("memories", "memory_mask")


class Variables(tf.train.experimental.PythonState):
    """State object that stores JAX variables in TensorFlow's checkpoints.

    Args:
        variables: list of keras.Variable.
    """

    def __init__(self, variables):
        self._variables = list(variables)

    def serialize(self):
        # NumPy cannot store bfloat16. float32 represents all its values.
        arrays = [_whole(x.value) for x in self._variables]
        arrays = [
            x.astype("float32") if x.dtype.name == "bfloat16" else x
            for x in arrays
        ]
        file = io.BytesIO()
        names = [f"{place}" for place in range(len(arrays))]
        np.savez(file, **dict(zip(names, arrays, strict=True)))
        return file.getvalue()

    def deserialize(self, string_value):
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            count = len(arrays.files)
            if count != len(self._variables):
                raise ValueError(
                    f"it holds {count} variables, not {len(self._variables)}."
                )
            for place, variable in enumerate(self._variables):
                variable.assign(arrays[f"{place}"])


def _whole(array):
    """Return a whole array, even if several processes hold parts of the array.

    All processes call this function together.
    """
    if array.is_fully_addressable:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


class JaxMemoryRows(MemoryRows):
    """Files with the memory of this process's rows; see `MemoryRows`."""

    def _arrays(self):
        return {
            name: np.asarray(variable.value).astype("float32")
            for name, variable in self._variables().items()
        }

    def _assign(self, arrays):
        for name, variable in self._variables().items():
            if name not in arrays:
                raise ValueError(f"the file of memory has no array {name}.")
            variable.assign(arrays[name])


class Jax:
    """JAX backend of a run, on JAX's devices; see `TensorFlow`.

    Args:
        settings: PretrainingSettings or FinetuningSettings.

    Attributes:
        strategy: tf.distribute.Strategy for the data and the files.
        num_replicas, is_chief, has_tpu, memory_rows: see `TensorFlow`.
        devices: Devices.

    Raises:
        ValueError: if JAX does not support the settings on this machine.
    """

    memory_rows = JaxMemoryRows
    multiplies_bfloat16 = False  # XLA does not use the CPU's instructions

    def __init__(self, settings):
        _refuse(settings)
        if settings.compilation_cache:
            jax.config.update(
                "jax_compilation_cache_dir", settings.compilation_cache
            )
        if jax_workers.are_several(settings):
            jax_workers.join(settings)
        _check_platform(settings)
        devices = jax.devices()
        if settings.strategy in _OF_ONE_PROCESS:
            devices = jax.local_devices()
        if settings.strategy == "one_device":
            devices = devices[:1]
        self.devices = Devices(devices, settings.shard_optimizer)
        # TensorFlow only reads the data and writes the files here.
        self.strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        if self.devices.workers > 1:
            self.strategy = JaxWorker(
                jax.process_index(), self.devices.workers, _of_all_workers
            )
        self.is_chief = is_chief(self.strategy)
        self.num_replicas = len(self.devices)
        self.has_tpu = self.devices.devices[0].platform == "tpu"

    def describe(self):
        """Return a line of text about the devices."""
        kind = self.devices.devices[0].platform.upper()
        several = ""
        if self.devices.workers > 1:
            several = f" in {self.devices.workers} workers"
        return f"JAX, {len(self.devices)} device(s) of {kind}{several}"

    def moment_shape(self, weight):
        """Return an Adam moment's shape on one device; see `TensorFlow`."""
        sharding = self.devices.sharding(self.devices.spec_of(weight))
        return sharding.shard_shape(weight.shape)

    def tracked(self, model, optimizer):
        """Return a dict of the objects to store in a checkpoint."""
        # Weights that no objective trains may come from a preset.
        weights = [*model.trainable_variables, *untrained(model)]
        return {
            "model": Variables(weights),
            "optimizer": Variables(optimizer.variables),
        }

    def steps(self, model, optimizer, memory, loss, batches, settings, step):
        """Make the training steps; see the class Steps."""
        return Steps(
            *(model, optimizer, memory, loss, batches, settings, step),
            self.devices,
        )

    def evaluation(self, model, loss, batches, settings):
        """Make the evaluation; see the class MeanLoss."""
        memory = make_memory(model, settings, self.strategy)
        batches = functools.partial(self.devices.read, batches, settings)
        return MeanLoss(model, memory, loss, batches, self.devices)

    def distributed(self, batches, settings):
        """Read this worker's rows of the batches, as input of a predictor."""
        return self.devices.read(batches, settings)

    def predictor(self, function, model):
        """Compile a function for predictions; see `TensorFlow.predictor`."""
        variables, devices = model.variables, self.devices

        def outputs_of(weights, features):
            with scope_of(variables, weights):
                return (function(features),)

        compiled = jax.jit(devices.on_each(outputs_of, (_ALL, _ROWS), (_ROWS,)))

        def predict(features):
            features = {name: x.numpy() for name, x in features.items()}
            weights = devices.copied(values(variables))
            (outputs,) = compiled(weights, devices.divided(features))
            return devices.gathered(outputs)

        return predict


def _of_all_workers(value):
    """Gather one float from each worker in an array of shape [workers]."""
    return multihost_utils.process_allgather(np.float32(value))


def _refuse(settings):
    """Refuse settings that only TensorFlow's trainer supports."""
    may_be_several = settings.strategy in ("auto", "multi_worker")
    if may_be_several and names_several_workers():
        raise ValueError(
            "the variable TF_CONFIG names several workers, for TensorFlow "
            "alone. Unset it, and give --coordinator, --num-workers and "
            "--worker-index, or set KERAS_BACKEND=tensorflow."
        )
    is_alone = settings.strategy in _OF_ONE_PROCESS
    if is_alone and settings.coordinator is not None:
        raise ValueError(
            f"--strategy {settings.strategy} has no other workers: leave "
            "--coordinator out, or give --strategy multi_worker."
        )
    for name, is_given, instead in (
        (
            "--profile",  # JAX's profiler crashes with TensorFlow reading data
            settings.profile,
            "leave it out",
        ),
        (
            "--precision float16",  # needs a loss scale
            settings.precision == "float16",
            "give --precision bfloat16",
        ),
        (
            f"--tpu {settings.tpu}",
            settings.tpu not in (None, "local"),
            "run the command on the TPU VM, without --tpu",
        ),
    ):
        if is_given:
            raise ValueError(
                f"{name} is not there on Keras' JAX backend: {instead}, or set "
                "KERAS_BACKEND=tensorflow."
            )


def _check_platform(settings):
    """Refuse the strategy "tpu" without a TPU."""
    platform = jax.devices()[0].platform
    if settings.strategy == "tpu" and platform != "tpu":
        raise ValueError(
            f"JAX finds no TPU, but a {platform.upper()}. On a TPU VM, install "
            "jax[tpu]; without a TPU use --strategy auto."
        )


class Devices:
    """The JAX devices of a run, in all its processes.

    The rows of a batch are divided among the devices in the order of `devices`,
    so that each process has successive rows.

    Args:
        devices: list of jax.Device.
        divides_moments: bool, whether each device keeps only its part of Adam's
            moments (ZeRO-1). Default False.

    Attributes:
        devices: list of jax.Device, sorted by process and then by id.
        workers: int, number of processes that have these devices.
        own: range, the indices of this process's devices in `devices`.

    Raises:
        ValueError: if processes have different numbers of devices.
    """

    def __init__(self, devices, divides_moments=False):
        self.devices = sorted(devices, key=lambda x: (x.process_index, x.id))
        self._divides_moments = divides_moments and len(devices) > 1
        self._mesh = Mesh(np.array(self.devices), ("rows",))
        counts = collections.Counter(x.process_index for x in self.devices)
        self.workers = len(counts)
        if len({*counts.values()}) > 1:
            raise ValueError(
                "each worker must have the same number of devices. Received: "
                f"{', '.join(map(str, counts.values()))}."
            )
        places = [x.process_index for x in self.devices]
        first = places.index(jax.process_index())
        self.own = range(first, first + counts[jax.process_index()])

    def __len__(self):
        return len(self.devices)

    def on_each(self, function, inputs, outputs):
        """Make a function that each device runs on its part of the arrays.

        Args:
            function: function of pytrees of arrays.
            inputs, outputs: tuples with an entry for each argument (`inputs`)
                and for each result (`outputs`). An entry is a PartitionSpec or
                a pytree of PartitionSpec. A PartitionSpec describes how an
                array is divided among the devices.
        """
        return jax.shard_map(
            function,
            mesh=self._mesh,
            in_specs=inputs,
            out_specs=outputs,
            check_vma=False,
        )

    def sharding(self, spec):
        """Make the sharding of a PartitionSpec on these devices."""
        return NamedSharding(self._mesh, spec)

    def summed(self, sums):
        """Sum a pytree over the devices.

        Call this method only in functions passed to `on_each`.
        """
        # XLA would copy the sums of a single device.
        return jax.lax.psum(sums, "rows") if len(self) > 1 else sums

    def spec_of(self, array):
        """Return how a weight's moments and gradient are divided.

        With `divides_moments`, moments and gradient are divided along the first
        axis whose length is a multiple of the number of devices. Without
        `divides_moments`, or without such an axis, the arrays are not divided.

        Args:
            array: array or variable with the shape of the weight.

        Returns:
            PartitionSpec.
        """
        if self._divides_moments:
            for axis, size in enumerate(array.shape):
                if size % len(self) == 0:
                    return PartitionSpec(*[None] * axis, "rows")
        return _ALL

    def summed_gradient(self, gradient):
        """Sum a gradient over the devices.

        Call this method only in functions passed to `on_each`. Each device
        receives the part of the sum that it keeps, see `spec_of`.
        """

        def summed(array):
            spec = self.spec_of(array)
            if spec == _ALL:
                return self.summed(array)
            axis = len(spec) - 1
            return jax.lax.psum_scatter(
                array, "rows", scatter_dimension=axis, tiled=True
            )

        return [summed(x) for x in gradient]

    def put_moments(self, arrays):
        """Put moments on the devices, divided along the axes of `spec_of`."""

        def put(array):
            spec = self.spec_of(array)
            if spec == _ALL:
                return self.copied(array)
            if array.sharding == self.sharding(spec):
                return array
            return jax.make_array_from_callback(
                array.shape, self.sharding(spec), array.__getitem__
            )

        return [put(x) for x in arrays]

    def own_moments(self, arrays):
        """Convert a step's moments to values of the optimizer's variables.

        Divided moments stay on their devices. All other values of the
        variables, such as the number of steps, become arrays of this process.
        """
        return [
            self.own_copies(x) if self.spec_of(x) == _ALL else x for x in arrays
        ]

    def divided(self, arrays):
        """Divide arrays of this process's rows among the devices."""
        return self._put(arrays, _ROWS)

    def copied(self, arrays):
        """Copy an array, a list or a dict of arrays to each device."""
        return self._put(arrays, _ALL)

    def _put(self, arrays, spec):
        if self.workers > 1:
            # Without a copy if they are on this process's devices already.
            return multihost_utils.host_local_array_to_global_array(
                arrays, self._mesh, spec
            )
        return jax.device_put(arrays, self.sharding(spec))

    def own_rows(self, arrays):
        """Return this process's rows of one array or of a dict of arrays."""
        return self._own(arrays, _ROWS)

    def own_copies(self, arrays):
        """Convert arrays with a copy on each device to local arrays."""
        return self._own(arrays, _ALL)

    def _own(self, arrays, spec):
        if self.workers > 1:
            return multihost_utils.global_array_to_host_local_array(
                arrays, self._mesh, spec
            )
        return arrays

    def gathered(self, arrays):
        """Gather all rows of a dict of divided arrays, as NumPy arrays."""
        if self.workers > 1:
            return multihost_utils.process_allgather(arrays, tiled=True)
        return {name: np.asarray(x) for name, x in arrays.items()}

    def read(self, batches, settings):
        """Read this process's rows of each batch.

        Args:
            batches: see `on_tensorflow.distributed`.
            settings: PretrainingSettings.

        Returns:
            tf.data.Dataset.
        """
        rows = settings.replica_batch_size(len(self))
        own = len(self.own) * rows
        return batches(
            first_row=self.own[0] * rows, num_rows=own, replica_batch=own
        )


class Steps:
    """Training steps of a model, several in a loop.

    Args:
        model, optimizer, memory, loss, settings, step: see
            `on_tensorflow.Steps`.
        batches: see `on_tensorflow.distributed`.
        devices: Devices.
    """

    def __init__(
        self, model, optimizer, memory, loss, batches, settings, step, devices
    ):
        self._model, self._optimizer = model, optimizer
        self._memory = memory
        self._loss, self._settings = loss, settings
        self._step_counter, self._devices = step, devices
        self._batches = devices.read(batches, settings).as_numpy_iterator()
        if devices.workers > 1:
            # Hosts may round the first weights in different ways.
            variables = [*model.weights, *optimizer.variables]
            chief = multihost_utils.broadcast_one_to_all(values(variables))
            assign(variables, chief)
        self._step = make_step(model, optimizer, loss, settings, devices)
        self._most_skipped = most_skipped(settings)
        self._skipped_in_a_row = 0

    def make(self, count, stop=None):
        """Make a loop of training steps; see `on_tensorflow.Steps.make`."""
        begun, devices = time.monotonic(), self._devices
        weights = devices.copied(values(self._model.trainable_variables))
        moments = devices.put_moments(values(self._optimizer.variables))
        # Otherwise the variables would keep moments that are not divided.
        assign(self._optimizer.variables, moments)
        others = devices.copied(values(untrained(self._model)))
        sums, weight, results = None, 0.0, []
        for _ in range(count):
            features = _with_memory(next(self._batches), self._memory, devices)
            weights, moments, memory, report = self._step(
                weights, moments, others, features, self._seeds()
            )  # reuses the memory of the first two
            if memory:
                self._memory.write(devices.own_rows(memory))
            report = jax.device_get(report)
            sums = _added(sums, report["metrics"])
            weight += float(report["weight"])
            self._step_counter.assign_add(1)
            result = StepResult(
                int(self._step_counter.numpy()),
                float(report["loss"]),
                float(report["gradient_norm"]),
            )
            results.append(result)
            skipped = 0 if result.is_finite else self._skipped_in_a_row + 1
            self._skipped_in_a_row = skipped
            must_stop = stop is not None and bool(stop)
            if must_stop or skipped > self._most_skipped:
                break
        own = devices.own_copies
        assign(self._model.trainable_variables, own(weights))
        assign(self._optimizer.variables, devices.own_moments(moments))
        return LoopReport(
            means=_means(sums, weight),
            learning_rate=float(self._optimizer.learning_rate),
            results=results,
            skipped_in_a_row=self._skipped_in_a_row,
            seconds=time.monotonic() - begun,
        )

    def _seeds(self):
        settings, devices = self._settings, self._devices
        step = int(self._step_counter.numpy())
        stream = self._loss.seed_stream
        seeds = replica_seeds(settings.seed, stream, step, devices.own)
        return devices.divided(
            part_seeds(seeds, settings.gradient_accumulation_steps)
        )


class MeanLoss:
    """Evaluation: mean loss and metrics of a model over held-out batches.

    Args:
        model: XLNetPretrainer.
        memory: StatefulMemory or None.
        loss: step.Loss for evaluation.
        batches: function without arguments that returns an endless
            tf.data.Dataset.
        devices: Devices.
    """

    def __init__(self, model, memory, loss, batches, devices):
        self._model, self._memory = model, memory
        self._batches, self._devices = batches, devices
        self._step = make_evaluation(model, loss, devices)

    def evaluate(self, count, must_stop, progress=False):
        """Compute the means; see `on_tensorflow.MeanLoss.evaluate`."""
        batches, devices = self._batches().as_numpy_iterator(), self._devices
        if self._memory is not None:
            self._memory.reset()
        weights = devices.copied(values(self._model.variables))
        sums, weight = None, 0.0
        for _ in track(range(count), "held out", "batches", shown=progress):
            features = _with_memory(next(batches), self._memory, devices)
            memory, (metrics, of_batch) = self._step(weights, features)
            if memory:
                self._memory.write(devices.own_rows(memory))
            sums = _added(sums, jax.device_get(metrics))
            weight += float(of_batch)
            if must_stop():
                return None
        return _means(sums, weight)


def _means(sums, weight):
    """Divide sums by their weight; NaN for the weight 0."""
    return {k: v / weight if weight else math.nan for k, v in sums.items()}


def _with_memory(features, memory, devices):
    """Add the memory to features, and divide both among the devices."""
    if memory is not None:
        features = memory.read(features)
    return devices.divided(dict(features))


def _added(sums, more):
    """Add two dicts of floats, key by key."""
    return {k: float(v) + (sums[k] if sums else 0.0) for k, v in more.items()}


def values(variables):
    """List the values of variables, as arrays."""
    return [x.value for x in variables]


def untrained(model):
    """List those weights of a model that no training step updates.

    These weights are arguments of the step. Otherwise they would be constants
    of the compiled program. In a model with adapters, the list contains almost
    all weights.
    """
    trained = {id(x) for x in model.trainable_variables}
    return [x for x in model.weights if id(x) not in trained]


def scope_of(variables, arrays):
    """Context in which the given arrays replace the values of variables."""
    mapping = list(zip(variables, arrays, strict=True))
    return keras.StatelessScope(state_mapping=mapping)


def assign(variables, arrays):
    """Assign new values to variables, without a copy."""
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def replica_seeds(seed, stream, step, replicas):
    """Derive a step's seed for each replica in a range of replicas.

    Returns:
        int32 array of shape [replicas, 2].
    """
    fold_in = tf.random.experimental.stateless_fold_in
    # int64, because the seed depends on the type of the step too.
    step_seed = fold_in([seed, stream], tf.constant(step, tf.int64))
    return np.stack([fold_in(step_seed, r).numpy() for r in replicas])


def part_seeds(seeds, parts):
    """Derive seeds for all micro-batches, int32 [replicas, parts, 2]."""
    fold_in = tf.random.experimental.stateless_fold_in
    return np.stack(
        [
            np.stack([fold_in(seed, part).numpy() for part in range(parts)])
            for seed in seeds
        ]
    )


def make_step(model, optimizer, loss, settings, devices):
    """Compile the training step.

    Args:
        model: keras.Model.
        optimizer: AdamW, built.
        loss: step.Loss.
        settings: PretrainingSettings.
        devices: Devices.

    Returns:
        function of (weights, moments, others, features, seeds) that returns
        (weights, moments, memory, report). The weights and moments are lists of
        arrays. The given weights and moments cannot be read afterwards.
        `others` is a list of arrays, the values of the weights that `untrained`
        lists. `features` is a dict of arrays of B rows, memory included.
        `seeds` is int32 [devices, micro-batches, 2]. `memory` is a dict for
        `StatefulMemory.write`. `report` is a dict. It has `loss`,
        `gradient_norm` and `is_finite` of the whole batch, and the sums
        `metrics` and `weight`. These sums are zero if the step is not finite.
    """
    sums_of_batch = _gradients(model, loss, settings, devices)

    def step(weights, moments, others, features, seeds):
        gradient, metrics, weight, memory = sums_of_batch(
            weights, others, features, seeds
        )
        weights, moments, report = _updated(
            *(weights, moments, gradient, metrics, weight, optimizer, settings)
        )
        before = {name: features[name] for name in memory}
        memory = _if(report["is_finite"], memory, before)
        return weights, moments, memory, report

    of_moments = [devices.spec_of(x) for x in optimizer.variables]
    shardings = jax.tree.map(devices.sharding, (_ALL, of_moments, _ROWS, _ALL))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=shardings)


def _gradients(model, loss, settings, devices):
    """Make the function with which a step computes a batch's gradients.

    Args:
        model, loss, settings, devices: see `make_step`.

    Returns:
        function of (weights, others, features, seeds) that returns (gradient,
        metrics, weight, memory). `gradient`, `metrics` and `weight` are sums
        over the whole batch. `gradient` is a list of arrays, which are divided
        among the devices as `Devices.spec_of` describes.
    """
    parts = settings.gradient_accumulation_steps
    trained = model.trainable_variables
    variables = [*trained, *untrained(model)]

    def sums_of(weights, others, features):
        with scope_of(variables, [*weights, *others]):
            return _sums(loss, features)

    def gradients(weights, others, features, seed):
        (_, sums), gradient = jax.value_and_grad(sums_of, has_aux=True)(
            weights, others, {**features, "dropout_seed": seed}
        )
        return gradient, *sums

    def sums_of_rows(weights, others, features, seeds):
        rows = features["token_ids"].shape[0] // parts
        totals, memories = None, []
        for part in range(parts):
            of_part = jax.tree.map(
                lambda x, part=part: x[part * rows : (part + 1) * rows],
                features,
            )
            *sums, memory = gradients(weights, others, of_part, seeds[0, part])
            memories.append(memory)
            totals = jax.tree.map(jnp.add, totals, sums) if totals else sums
        gradient, *figures = totals
        memory = jax.tree.map(lambda *x: jnp.concatenate(x), *memories)
        summed = devices.summed_gradient(gradient), *devices.summed(figures)
        return *summed, memory

    of_gradient = [devices.spec_of(x) for x in trained]
    return devices.on_each(
        sums_of_rows,
        (_ALL, _ALL, _ROWS, _ROWS),
        (of_gradient, _ALL, _ALL, _ROWS),
    )


def _updated(weights, moments, gradient, metrics, weight, optimizer, settings):
    """Update weights and moments with a gradient, see `make_update`.

    Args:
        weights, moments, gradient: lists of arrays.
        metrics, weight: sums over the whole batch.
        optimizer, settings: see `make_step`.

    Returns:
        (weights, moments, report).
    """
    factor = 1 / jnp.maximum(weight, 1e-6)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in gradient)) * factor
    loss = metrics["loss"] * factor
    is_finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    if settings.max_gradient_norm:
        largest = settings.max_gradient_norm
        factor *= largest / jnp.maximum(norm, largest)

    def apply(weights, moments, gradient):
        gradient = [x * factor for x in gradient]
        return optimizer.stateless_apply(moments, gradient, weights)

    def skip(weights, moments, gradient):
        # A skipped step also counts as a step for the learning rate.
        moments = [
            array + 1 if variable is optimizer.iterations else array
            for variable, array in zip(
                optimizer.variables, moments, strict=True
            )
        ]
        return weights, moments

    weights, moments = _either(
        is_finite, apply, skip, weights, moments, gradient
    )
    report = {
        "loss": loss,
        "gradient_norm": norm,
        "is_finite": is_finite,
        "metrics": jax.tree.map(lambda x: jnp.where(is_finite, x, 0), metrics),
        "weight": jnp.where(is_finite, weight, 0),
    }
    return weights, moments, report


def _if(condition, these, others):
    """Select the arrays `these` if a condition holds, else `others`."""
    return jax.tree.map(
        lambda one, other: jnp.where(condition, one, other), these, others
    )


def _either(condition, this, other, *arrays):
    """Compute `this(*arrays)` if a condition holds, else `other(*arrays)`.

    On a CPU, XLA computes only one of the functions and updates arrays in
    place. On other devices, both functions are computed, and one result is
    selected. On a TPU, computing only one function would move more bytes.
    """
    return jax.lax.platform_dependent(
        *arrays,
        cpu=functools.partial(jax.lax.cond, condition, this, other),
        default=lambda *arrays: _if(condition, this(*arrays), other(*arrays)),
    )


def make_evaluation(model, loss, devices):
    """Compile the step of an evaluation.

    Args:
        model: XLNetPretrainer.
        loss: step.Loss for evaluation.
        devices: Devices.

    Returns:
        function of (values of all variables, features) that returns (memory,
        (metrics, weight)).
    """
    variables = model.variables

    def step(weights, features):
        with scope_of(variables, weights):
            _, (metrics, weight, memory) = _sums(loss, features)
        return memory, devices.summed((metrics, weight))

    return jax.jit(devices.on_each(step, (_ALL, _ROWS), (_ROWS, _ALL)))


def _sums(loss, features):
    """Compute (objective, (metrics, weight, memory)) on a device's rows."""
    outputs = loss.outputs(features)
    objective, metrics, weight = loss.sums(outputs, features)
    memory = {name: outputs[name] for name in _MEMORY if name in features}
    return objective, (metrics, weight, memory)
