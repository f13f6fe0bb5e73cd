"""Facts about the machine: packages, memory, rate of matrix products."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import resource
import time

from data_pipeline.base import command_line

PACKAGES = (
    "xlnet_tf",
    "tensorflow",
    "tensorflow-text",
    "keras",
    "jax",
    "tf_keras",
    "tf-models-official",
    "keras-hub",
    "torch",
    "transformers",
    "tokenizers",
    "sentencepiece",
    "numpy",
)
_PRODUCTS = 8


def versions():
    """Dict from package to version; None if the package is not installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def describe():
    """Make a dict that describes the machine to readers of the results."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_model(),
        "cores": command_line.available_cores(),
        "memory_gib": round(_total_memory() / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "threads": "all cores, each library's default"
        if not os.environ.get("OMP_NUM_THREADS")
        else f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": versions(),
    }


def matmul_rate(framework, size):
    """Measure the operations per second of large float32 matrix products.

    Args:
        framework: "tensorflow" or "torch".
        size: int, number of rows and columns of the matrices.

    Returns:
        float, operations per second on all cores.
    """
    multiply = {"tensorflow": _tensorflow, "torch": _torch}[framework](size)
    multiply()
    seconds = []
    for _ in range(_PRODUCTS):
        begun = time.perf_counter()
        multiply()
        seconds.append(time.perf_counter() - begun)
    return 2 * size**3 / min(seconds)


def peak_bytes():
    """Peak memory of this process in bytes.

    On Linux the value comes from /proc. `ru_maxrss` would include the peak of
    the parent process.
    """
    value = _status("VmHWM")
    if value is not None:
        return value
    scale = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def reset_peak():
    """Reset the peak that `peak_bytes` returns.

    Returns:
        bool, whether the system can reset the peak.
    """
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def available_bytes():
    """Available memory in bytes, or None if unknown."""
    try:
        import psutil
    except ModuleNotFoundError:
        return None
    return psutil.virtual_memory().available


def _total_memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _status(name):
    try:
        text = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu_model():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _tensorflow(size):
    import tensorflow as tf

    matrix = tf.random.stateless_normal([size, size], seed=[0, 0])
    function = tf.function(lambda: tf.reduce_max(tf.matmul(matrix, matrix)))
    return lambda: function().numpy()


def _torch(size):
    import torch

    matrix = torch.randn(size, size)
    return lambda: torch.matmul(matrix, matrix).max().item()
