"""`--strategy=...`: what each name gives here, and what the errors say."""

import concurrent.futures
import contextlib
import json
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.support.replicas import two_replicas
from xlnet_tf import train
from xlnet_tf.training import devices as strategies
from xlnet_tf.training.backends import with_precision
from xlnet_tf.training.devices import JaxWorker
from xlnet_tf.training.devices import describe
from xlnet_tf.training.devices import differing
from xlnet_tf.training.devices import has_peers
from xlnet_tf.training.devices import make_strategy
from xlnet_tf.training.devices import worker_index
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings

WORKERS = {"worker": ["host0:2222", "host1:2222"]}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)


@pytest.fixture
def built(monkeypatch):
    """What is asked of TensorFlow where that needs other machines.

    And the seconds and the message of the deadline of that.
    """
    calls = []

    def deadline(*limit):
        calls.append(limit)
        return contextlib.nullcontext()

    class Recorded:
        def __init__(self, **kwargs):
            calls.append(kwargs)

    monkeypatch.setattr(strategies, "deadline", deadline)
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Recorded)
    return calls


@pytest.fixture
def device_files(monkeypatch, tmp_path):
    """Stands for /dev, without the files of a TPU."""
    monkeypatch.setattr(strategies, "DEVICE_FILES", tmp_path)
    return tmp_path


def test_who_multiplies_bfloat16(monkeypatch, tmp_path):
    monkeypatch.setattr(strategies, "CPU_FILE", tmp_path / "cpuinfo")
    one = make_strategy("one_device")
    assert not strategies.multiplies_bfloat16(one)  # another system
    for flags, expected in (
        ("fpu avx512f avx512_bf16", True),
        ("fpu amx_bf16 amx_tile", True),
        ("fpu avx512f avx2", False),
    ):
        text = f"processor\t: 0\nflags\t\t: {flags}\n"
        (tmp_path / "cpuinfo").write_text(text)
        assert strategies.multiplies_bfloat16(one) == expected, flags
        assert not strategies.multiplies_bfloat16(two_replicas()), flags
        backend = TensorFlow(one)
        for settings in (PretrainingSettings, FinetuningSettings):
            auto = with_precision(settings(precision="auto"), backend)
            assert auto.precision == ("bfloat16" if expected else "float32")
            narrow = with_precision(settings(precision="float16"), backend)
            assert narrow.precision == "float16"


@pytest.fixture
def tpu_asked(monkeypatch):
    """Names of the TPUs that TensorFlow is asked for; it finds none."""
    asked = []

    def resolver(tpu):
        asked.append(tpu)
        raise ValueError("none here")

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", resolver
    )
    return asked


def with_devices(monkeypatch, kind, count):
    list_devices = tf.config.list_logical_devices
    devices = [
        tf.config.LogicalDevice(f"/device:{kind}:{i}", kind)
        for i in range(count)
    ]
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda x=None: devices if x == kind else list_devices(x),
    )


def set_cluster(monkeypatch, value):
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setenv("TF_CONFIG", text)


def closed_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_one_device():
    strategy = make_strategy("one_device")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert strategy.num_replicas_in_sync == 1
    assert not has_peers(strategy)


def test_one_cpu_reads_without_fetching_to_a_device():
    def rows_of_worker(context):
        assert context.num_input_pipelines == 1
        return tf.data.Dataset.range(3)

    for strategy in (
        tf.distribute.OneDeviceStrategy("CPU:0"),
        tf.distribute.get_strategy(),  # none was chosen
    ):
        one = strategies.distribute_rows(strategy, rows_of_worker)
        assert isinstance(one, tf.data.Dataset)
        assert [int(x) for x in one] == [0, 1, 2]
    two = strategies.distribute_rows(two_replicas(), rows_of_worker)
    assert isinstance(two, tf.distribute.DistributedDataset)


def test_mirrored_takes_all_devices():
    with_cpus = make_strategy("mirrored")
    assert isinstance(with_cpus, tf.distribute.MirroredStrategy)
    gpus = len(tf.config.list_logical_devices("GPU"))
    assert with_cpus.num_replicas_in_sync == (gpus or 2)
    assert not has_peers(with_cpus)


def test_mirrored_on_one_cpu_warns(monkeypatch):
    with_devices(monkeypatch, "GPU", 0)
    with_devices(monkeypatch, "CPU", 1)
    with pytest.warns(UserWarning, match="GPUs, and TensorFlow finds none"):
        assert make_strategy("mirrored").num_replicas_in_sync == 1


def test_multi_worker_waits_for_a_peer_not_for_ever(monkeypatch, built):
    set_cluster(monkeypatch, {"cluster": WORKERS, "task": {"index": 1}})
    make_strategy("multi_worker", worker_timeout=90)
    (seconds, message), arguments = built
    assert arguments["communication_options"].timeout_seconds == 90
    assert seconds == 90
    for text in ("within 90 s (worker_timeout)", "worker 1 waited for"):
        assert text in message


def test_what_differs_between_workers_is_named():
    def told(*values):
        numbers, barrier = [0, 0], threading.Barrier(2)

        def run(index):
            def gather(value):
                numbers[index] = value
                barrier.wait()
                found = np.float32(numbers)
                barrier.wait()
                return found

            worker = JaxWorker(index, 2, gather)
            assert has_peers(worker) and worker_index(worker) == index
            return differing(worker, values[index])

        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(run, range(2)))

    here = {"a": 1, "b": [1.5, None], "c": {"d": 1}}
    assert told(here, dict(here)) == [[], []]
    assert told(here, {**here, "b": [1.5, 2]}) == [["b"]] * 2
    assert told(here, {**here, "a": 2, "c": {}}) == [["a", "c"]] * 2
    assert told(here, {"e": 1}) == [["command"]] * 2
    assert differing(make_strategy("one_device"), here) == []


def test_describe():
    one, two = make_strategy("one_device"), make_strategy("mirrored")
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    assert describe(one) == f"OneDeviceStrategy, 1 replica(s) of {kind}"
    assert describe(two) == (
        f"MirroredStrategy, {two.num_replicas_in_sync} replica(s) of {kind}"
    )


def test_what_auto_takes(monkeypatch, built, tpu_asked, device_files):
    """A TPU before the workers of TF_CONFIG, these before all GPUs."""
    alone = {"cluster": {"worker": ["host0:2222"]}, "task": {"index": 0}}
    set_cluster(monkeypatch, alone)
    for gpus, name in ((0, "one_device"), (1, "one_device"), (2, "mirrored")):
        with monkeypatch.context() as patch:
            with_devices(patch, "GPU", gpus)
            assert strategies._best(None) == name
            if gpus:
                devices = [f"/device:GPU:{i}" for i in range(gpus)]
                assert strategies._replica_devices() == devices
    with_devices(monkeypatch, "GPU", 2)
    set_cluster(monkeypatch, {"cluster": WORKERS, "task": {"index": 0}})
    make_strategy()
    assert len(built) == 2  # the deadline and the strategy
    (device_files / "accel0").touch()
    with pytest.raises(RuntimeError, match="none here"):
        make_strategy(tpu="local")
    monkeypatch.setenv("TPU_NAME", "pod")
    with pytest.raises(RuntimeError, match="none here"):
        make_strategy()
    assert tpu_asked == ["local", "pod"]


def test_names_are_checked():
    for name, tpu, message in (
        ("gpu", None, "`strategy` must be one of auto, .*strategy='gpu'"),
        ("mirrored", "local", "goes with the strategy tpu or auto.*mirrored"),
    ):
        with pytest.raises(ValueError, match=message):
            make_strategy(name, tpu=tpu)


def test_a_broken_tf_config_is_named(monkeypatch):
    set_cluster(monkeypatch, "{cluster")
    for name in ("multi_worker", "auto"):
        with pytest.raises(ValueError, match="variable TF_CONFIG is not JSON"):
            make_strategy(name)


def test_a_tf_config_of_another_form_is_named(monkeypatch):
    for value in (
        {"cluster": ["a:1", "b:2"]},
        {"cluster": None, "task": {}},
        {"cluster": {"worker": None}},
        {"cluster": {"worker": 5}},
        {"cluster": WORKERS, "task": None},
    ):
        set_cluster(monkeypatch, value)
        for name in ("multi_worker", "auto"):
            with pytest.raises(ValueError, match="TF_CONFIG, such as .*Receiv"):
                make_strategy(name)


def test_a_tf_config_without_a_cluster_is_not_ours(monkeypatch):
    set_cluster(monkeypatch, {"task": None})
    assert not strategies.names_several_workers()


def test_multi_worker_needs_a_whole_tf_config(monkeypatch, built):
    for value in (
        "",
        "[]",
        {"cluster": {"worker": []}, "task": {"index": 0}},
        {"cluster": WORKERS},
        {"cluster": WORKERS, "task": {"type": "worker"}},
        {"cluster": WORKERS, "task": {"index": "0"}},
        {"cluster": WORKERS, "task": {"index": 2}},
        {"cluster": WORKERS, "task": {"index": -1}},
        {"cluster": WORKERS, "task": {"type": "evaluator", "index": 0}},
    ):
        set_cluster(monkeypatch, value)
        message = "needs the environment variable TF_"
        with pytest.raises(ValueError, match=message):
            make_strategy("multi_worker")
    form = "TF_CONFIG: `cluster.worker` must have addresses of the form HOST:P"
    once = "TF_CONFIG: `cluster.worker` must have the address of each worker"
    for addresses, message in (
        ([1, 2], form),
        (["h0", "h1"], f"{form}ORT. Received: 'h0'"),
        (["h0:1", "h1:"], f"{form}ORT. Received: 'h1:'"),
        (["h0:1", "h1:x"], form),
        (["h0:1", "h1:70000"], form),
        (["h0:1", "grpc://h1:1"], form),
        (["h0:1", ":1"], form),
        (["h0:1", "h1:1", "h0:1"], f"{once} once. Received: 'h0:1' 2 times"),
    ):
        task = {"type": "worker", "index": 0}
        cluster = {"worker": addresses}
        set_cluster(monkeypatch, {"cluster": cluster, "task": task})
        for name in ("multi_worker", "auto"):
            with pytest.raises(ValueError, match=message):
                make_strategy(name)
    cluster = {"chief": ["h0:1"], "worker": ["h1:1"]}
    task = {"type": "worker", "index": 0}
    set_cluster(monkeypatch, {"cluster": cluster, "task": task})
    for name in ("multi_worker", "auto"):
        with pytest.raises(ValueError, match="has a chief.*first among the"):
            make_strategy(name)
    assert not built


def test_no_tpu_here(monkeypatch, device_files):
    message = (
        "no TPU answers at 'local'.*TPU_NAME.*--tpu=grpc://HOST:8470.*without "
        "a TPU use --strategy=auto"
    )
    with pytest.raises(RuntimeError, match=message):
        make_strategy("tpu")
    monkeypatch.setenv("TPU_NAME", "local")
    with pytest.raises(RuntimeError, match=message):
        make_strategy("auto")


def test_a_tpu_that_does_not_answer(monkeypatch):
    connected = []
    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", connected.append
    )
    for port in (closed_port(), "http"):
        address = f"grpc://127.0.0.1:{port}"
        message = f"no TPU answers at '{address}'.*--strategy=auto"
        with pytest.raises(RuntimeError, match=message):
            make_strategy("tpu", tpu=address)
    assert not connected


@pytest.mark.parametrize(
    "error, says",
    [(ValueError("no such\nTPU"), "no such"), (OSError(), "OSError")],
    ids=["two lines", "no text"],
)
def test_what_tensorflow_says_is_passed_on(monkeypatch, error, says):
    def refuse(tpu):
        raise error

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", refuse
    )
    with pytest.raises(
        RuntimeError, match=f"at 'pod'.*TensorFlow says: {says}$"
    ):
        make_strategy("tpu", tpu="pod")


def test_a_tpu_vm_is_known_by_its_devices(device_files):
    """A container that was given some of the chips has their numbers."""
    for name, is_tpu in (
        ("accel0", True),
        ("accel3", True),
        ("vfio/0", True),
        ("vfio/12", True),
        ("vfio/vfio", False),  # of any machine with virtual machines
        ("accel/accel0", False),  # of the chips of other makers
        ("null", False),
    ):
        device = device_files / name
        device.parent.mkdir(exist_ok=True)
        device.touch()
        assert strategies._has_local_tpu() == is_tpu, name
        device.unlink()


def test_this_process_writes_checkpoints(monkeypatch):
    """Not the hosts of a TPU, which may not see its paths."""
    device = strategies.checkpoint_options(make_strategy("one_device"))
    assert device.experimental_io_device == "/job:localhost"
    # Workers have no such device, and each writes for itself.
    monkeypatch.setattr(strategies, "has_peers", lambda strategy: True)
    device = strategies.checkpoint_options(None)
    assert device.experimental_io_device is None


def test_a_host_of_a_slice_is_not_the_whole(
    monkeypatch, tpu_asked, device_files
):
    (device_files / "accel0").touch()
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "host0,host1")
    with pytest.raises(RuntimeError, match="one of the 2 hosts.*--tpu=NAME"):
        make_strategy("tpu")
    assert not tpu_asked
    # As of one host, and of a process that is told to be alone.
    monkeypatch.setenv("TPU_PROCESS_BOUNDS", "1,1,1")
    for hosts in ("host0,host1", "localhost"):
        monkeypatch.setenv("TPU_WORKER_HOSTNAMES", hosts)
        with pytest.raises(RuntimeError, match="none here"):
            make_strategy("tpu")
        monkeypatch.delenv("TPU_PROCESS_BOUNDS", raising=False)
    assert tpu_asked == ["local", "local"]


def test_backends_that_train(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    argv = ["--records", "none", "--output", str(tmp_path / "run")]
    with pytest.raises(ValueError, match="tensorflow or jax. Received: torch"):
        train.main([*argv, "--steps", "1"])
    assert not (tmp_path / "run").exists()
