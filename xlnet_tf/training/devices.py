"""Distribution strategies, communication of workers, and time limits.

Only this module distinguishes the strategies for TPUs, GPUs and CPUs.
"""

import contextlib
import faulthandler
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
import zlib

import tensorflow as tf

from data_pipeline.base.command_line import printable
from data_pipeline.base.files import parse_json
from data_pipeline.base.limits import first_line
from data_pipeline.base.limits import shown
from data_pipeline.base.settings import check_value
from xlnet_tf.training.settings import STRATEGIES

# The class of TensorFlow's default strategy.
_NO_STRATEGY = type(tf.distribute.get_strategy())

DEVICE_FILES = pathlib.Path("/dev")
CPU_FILE = pathlib.Path("/proc/cpuinfo")
# Flags of a CPU that has instructions for products of bfloat16.
_BFLOAT16 = {"amx_bf16", "avx512_bf16"}
# Program of the second process of `deadline`. It ends silently when its input
# is closed, for example because the parent process has ended.
_BESIDE = """\
import select, sys
if not select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
    sys.stderr.write(f"error: {sys.argv[2]}\\n")
"""


def make_strategy(name="auto", tpu=None, worker_timeout=600.0):
    """Make a tf.distribute.Strategy from its name.

    Args:
        name: str. "auto" selects the first strategy that applies: "tpu" if
            `tpu` or TPU_NAME is set, "multi_worker" if TF_CONFIG lists several
            processes, "mirrored" if there are several GPUs, otherwise
            "one_device". "mirrored" without a GPU uses the logical CPU devices,
            and warns if there is only one CPU device.
        tpu: str, name or `grpc://` address of a TPU, or "local" on a TPU VM.
            Default None.
        worker_timeout: float, seconds that workers wait for each other. If
            another worker has not started by then, this process ends. Default
            600.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ValueError: if the name is unknown, or contradicts `tpu` or TF_CONFIG.
        RuntimeError: if the machine lacks the requested devices.
    """
    check_value("strategy", name, str, choices=STRATEGIES)
    if tpu and name not in ("auto", "tpu"):
        raise ValueError(
            "a TPU address goes with the strategy tpu or auto. "
            f"Received: strategy={name!r}, tpu={tpu!r}."
        )
    if name == "auto":
        name = _best(tpu)
    if name == "tpu":
        return _tpu(tpu)
    if name == "multi_worker":
        _check_tf_config()
        return _multi_worker(worker_timeout)
    if name == "mirrored":
        devices = _replica_devices()
        if len(devices) == 1 and "GPU" not in devices[0]:
            warnings.warn(
                "the strategy mirrored shares a batch among GPUs, and "
                "TensorFlow finds none: it trains on the CPU alone",
                stacklevel=2,
            )
        return tf.distribute.MirroredStrategy(devices)
    return tf.distribute.OneDeviceStrategy(_replica_devices()[0])


class JaxWorker(tf.distribute.OneDeviceStrategy):
    """Strategy for the data and files of a worker on Keras' JAX backend.

    Args:
        index, count: ints, index of this worker and number of all workers.
        gather: function of a float, the value of this worker. It returns an
            array [count], the values of all workers.
    """

    def __init__(self, index, count, gather):
        super().__init__("CPU:0")
        self.gather_value = gather
        self._count = count
        self._resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({}), task_type="worker", task_id=index
        )

    @property
    def num_replicas_in_sync(self):
        # Each worker reads its rows and divides them among its devices.
        return self._count

    @property
    def cluster_resolver(self):
        return self._resolver


def is_one_device(strategy):
    """Whether a strategy runs without communication between replicas.

    A `MirroredStrategy` communicates even with a single device.

    Args:
        strategy: tf.distribute.Strategy, or TensorFlow's default strategy.

    Returns:
        bool.
    """
    return isinstance(strategy, (tf.distribute.OneDeviceStrategy, _NO_STRATEGY))


def is_one_cpu(strategy):
    """Whether a strategy has a single device, which is a CPU."""
    if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return False
    (device,) = strategy.extended.worker_devices
    return "CPU" in device


def multiplies_bfloat16(strategy):
    """Whether the only device is a CPU with instructions for bfloat16."""
    if not is_one_cpu(strategy):
        return False
    try:
        flags = set(CPU_FILE.read_text("ascii", errors="replace").split())
    except OSError:  # no such file on this system
        return False
    return not _BFLOAT16.isdisjoint(flags)


def distribute_rows(strategy, rows_of_worker):
    """Distribute the batches of each worker to the worker's replicas.

    Args:
        strategy: tf.distribute.Strategy.
        rows_of_worker: function of a worker's tf.distribute.InputContext. It
            returns the worker's tf.data.Dataset, in which each batch is for one
            replica.

    Returns:
        distributed data set. For a single CPU, the result is the data set that
        `rows_of_worker` returns, without a prefetch to the device. The prefetch
        would use tf.data's autotuning, which may delay the end of an iterator,
        see `data_pipeline.dataset_options`.
    """
    if is_one_cpu(strategy):
        return rows_of_worker(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(rows_of_worker)


def describe(strategy):
    """Return a line of text about the strategy and its devices."""
    devices = sorted(
        {
            device.device_type
            for device in tf.config.list_logical_devices()
            if device.device_type != "CPU"
        }
    ) or ["CPU"]
    kind = type(strategy).__name__.removesuffix("V2").removesuffix("V1")
    return (
        f"{kind}, {strategy.num_replicas_in_sync} replica(s) of "
        f"{'/'.join(devices)}"
    )


def make_step_counter(strategy):
    """Make a run's step counter, an int64 variable that all replicas share."""
    with strategy.scope():
        return tf.Variable(
            0,
            dtype=tf.int64,
            name="global_step",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


def has_peers(strategy):
    """Whether several processes train together."""
    several = (tf.distribute.MultiWorkerMirroredStrategy, JaxWorker)
    return isinstance(strategy, several)


def worker_index(strategy):
    """Index of this process among the processes that train together, int."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_id is None:
        return 0
    return int(resolver.task_id)


def is_chief(strategy):
    """Whether this process writes the files that all workers share."""
    return worker_index(strategy) == 0


def checkpoint_options(strategy):
    """Make options with which this process reads and writes checkpoint files.

    The result is a tf.train.CheckpointOptions. With TensorFlow's defaults, the
    hosts of a TPU would read and write the files, but the path may not exist
    there. With several workers the options are TensorFlow's defaults. Each
    worker then uses the files of its own host.
    """
    if has_peers(strategy):
        return tf.train.CheckpointOptions()
    return tf.train.CheckpointOptions(experimental_io_device="/job:localhost")


def largest_and_smallest(strategy, value):
    """Compute the extremes of a number over all processes.

    Args:
        strategy: tf.distribute.Strategy.
        value: int or float of this process, exact in float32.

    Returns:
        (largest, smallest), floats.
    """
    if not has_peers(strategy):
        return float(value), float(value)

    if isinstance(strategy, JaxWorker):
        values = strategy.gather_value(value)
    else:
        gathered = _gathered(strategy)
        values = gathered(tf.constant([value], tf.float32)).numpy()
    return float(values.max()), float(values.min())


def differing(strategy, values):
    """Find the names of the values that differ between processes.

    Args:
        strategy: tf.distribute.Strategy.
        values: dict from names to JSON values of this process.

    Returns:
        list of str, which is the same list in each process.
    """

    def differs(value):
        digest = zlib.crc32(json.dumps(value, sort_keys=True).encode())
        # 24 bits, exact in float32.
        largest, smallest = largest_and_smallest(strategy, digest >> 8)
        return largest != smallest

    if not differs(values):
        return []
    if differs(sorted(values)):
        return ["command"]
    return [name for name in sorted(values) if differs(values[name])]


def holds_anywhere(strategy, condition):
    """Whether a condition holds in any process.

    Args:
        strategy: tf.distribute.Strategy.
        condition: bool of this process.
    """
    return largest_and_smallest(strategy, condition)[0] > 0


# Cached, because the function is called after each batch and must not be traced
# each time.
@functools.lru_cache(maxsize=1)
def _gathered(strategy):
    @tf.function
    def gathered(value):
        return strategy.gather(strategy.run(lambda: tf.identity(value)), axis=0)

    return gathered


def wait_for_peers(strategy):
    """Wait until all processes have called this function.

    A single process does not wait.
    """
    largest_and_smallest(strategy, 0)


def check_together(strategy, step, message):
    """Check that all processes are at the same step.

    Args:
        strategy: tf.distribute.Strategy.
        step: int of this process.
        message: str, error message with {0} for the smallest and {1} for the
            largest step.

    Raises:
        RuntimeError: if processes are at different steps.
    """
    largest, smallest = largest_and_smallest(strategy, step)
    if largest != smallest:
        raise RuntimeError(message.format(int(smallest), int(largest)))


def _best(tpu):
    if tpu or os.environ.get("TPU_NAME"):
        return "tpu"
    if names_several_workers():
        return "multi_worker"
    if len(tf.config.list_logical_devices("GPU")) > 1:
        return "mirrored"
    return "one_device"


def _multi_worker(timeout):
    options = tf.distribute.experimental.CommunicationOptions(
        # Without a timeout, workers would wait forever for a stuck worker.
        timeout_seconds=timeout
    )
    config = _tf_config()
    workers, index = config["cluster"]["worker"], config["task"]["index"]
    others = ", ".join(x for i, x in enumerate(workers) if i != index)
    with deadline(
        timeout,
        f"the workers did not all start within {timeout:g} s (worker_timeout). "
        f"Start them together; worker {index} waited for {others}.",
    ):
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=options
        )


def _replica_devices():
    devices = tf.config.list_logical_devices("GPU")
    devices = devices or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


def names_several_workers():
    """Whether the environment variable TF_CONFIG lists several processes.

    Raises:
        ValueError: if TF_CONFIG is not JSON in TensorFlow's form.
    """
    cluster = _tf_config()["cluster"]
    return len(cluster.get("worker", [])) > 1 or "chief" in cluster


def _tf_config():
    """Parse TF_CONFIG to a dict with the dicts `cluster` and `task`."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the environment variable TF_CONFIG is not JSON: {error}."
        ) from error
    if not isinstance(config, dict):
        config = {}
    config = {"cluster": {}, "task": {}, **config}
    cluster, task = config["cluster"], config["task"]
    if cluster == {}:  # other entries do not matter here
        return {**config, "task": {}}
    if not (
        isinstance(cluster, dict)
        and isinstance(task, dict)
        and isinstance(cluster.get("worker", []), list)
    ):
        raise _wrong_tf_config()
    return config


def _wrong_tf_config():
    return ValueError(
        "the strategy multi_worker needs the environment variable TF_CONFIG, "
        'such as \'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
        '"task": {"type": "worker", "index": 0}}\'. '
        f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}."
    )


def _check_tf_config():
    config = _tf_config()
    workers = config["cluster"].get("worker", [])
    if "chief" in config["cluster"]:
        # A chief has index 0, like the first worker, and rows, data and files
        # depend on the index.
        raise ValueError(
            "TF_CONFIG has a chief, and the strategy multi_worker takes "
            "workers alone: put the chief's address first among the workers', "
            "with the task type worker and the index 0, and count the others "
            f"from 1. Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}."
        )
    task = config["task"]
    index, kind = task.get("index"), task.get("type", "worker")
    is_worker = isinstance(index, int) and 0 <= index < len(workers)
    if not (is_worker and kind == "worker"):
        raise _wrong_tf_config()
    for address in workers:
        if not is_address(address):
            raise ValueError(
                "TF_CONFIG: `cluster.worker` must have addresses of the form "
                f"HOST:PORT. Received: {shown(address)}."
            )
        if workers.count(address) > 1:
            raise ValueError(
                "TF_CONFIG: `cluster.worker` must have the address of each "
                f"worker once. Received: {shown(address)} "
                f"{workers.count(address)} times."
            )


def is_address(address):
    """Whether a value has the form HOST:PORT of a worker's address."""
    if not isinstance(address, str):
        return False
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 2**16
    return is_port and re.fullmatch(r"[\w.-]+|\[[\w.:%]+\]", host) is not None


def _tpu(address):
    address = address or os.environ.get("TPU_NAME") or "local"
    looked_for = (
        f"no TPU answers at {address!r} (from --tpu, else the environment "
        'variable TPU_NAME, else "local"). On a TPU VM use --tpu=local; from '
        "elsewhere give --tpu=NAME or --tpu=grpc://HOST:8470; without a TPU "
        "use --strategy=auto."
    )
    if address == "local" and not _has_local_tpu():
        raise RuntimeError(looked_for)
    if address == "local":
        _check_single_host()
    if address.startswith("grpc://"):
        _check_reachable(address, looked_for)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address
        )
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, OSError, RuntimeError) as error:
        raise RuntimeError(
            f"{looked_for} TensorFlow says: {first_line(error)}"
        ) from error


def _has_local_tpu():
    # Device files of a TPU VM; without a chip the TPU runtime would wait
    # minutes for one. Containers see only their own chips, numbered from any
    # number on. /dev/vfio/vfio exists without a TPU too.
    return any(
        re.fullmatch(r"accel\d+|vfio/\d+", str(path.relative_to(DEVICE_FILES)))
        for pattern in ("accel*", "vfio/*")
        for path in DEVICE_FILES.glob(pattern)
    )


def _check_single_host():
    # The TPU runtime would wait for the other hosts, which run nothing.
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    if len(hosts) > 1 and os.environ.get("TPU_PROCESS_BOUNDS") != "1,1,1":
        raise RuntimeError(
            f"this machine is one of the {len(hosts)} hosts of a TPU slice, "
            "and --tpu=local is for a slice of one host. Run the command on "
            "one of them alone, with --tpu=NAME of the slice; docs/training.md "
            f"has the steps. Received: TPU_WORKER_HOSTNAMES={','.join(hosts)}."
        )


def _check_reachable(address, looked_for):
    host, _, port = address.removeprefix("grpc://").partition(":")
    try:
        socket.create_connection((host, int(port or 8470)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise RuntimeError(looked_for) from error


@contextlib.contextmanager
def deadline(seconds, message):
    """Context that ends this process with status 1 when a time limit passes.

    Some calls hold Python's lock while they wait, so that neither a thread nor
    a signal handler can run. For this reason a small second process prints the
    message. After that `faulthandler`, which needs no lock, ends this process.
    Within the context, Ctrl-C ends this process at once. SIGTERM waits until
    the end of the context. The handler from before the context then receives
    SIGTERM, even if TensorFlow has set another handler.

    Args:
        seconds: float, the time limit.
        message: str, one line of text.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals_set_aside())
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        command = [sys.executable, "-I", "-S", "-c", _BESIDE]
        stack.enter_context(
            subprocess.Popen(
                [*command, str(seconds), printable(message)],
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        )
        # One second later, so that the line is printed first.
        faulthandler.dump_traceback_later(seconds + 1, exit=True, file=nowhere)
        stack.callback(faulthandler.cancel_dump_traceback_later)
        yield


@contextlib.contextmanager
def _signals_set_aside():
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers cannot be set, for example in a notebook
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    terminated = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminated)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
