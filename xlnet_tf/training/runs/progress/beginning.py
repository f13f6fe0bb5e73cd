"""First lines of a run: what it trains on what, and about how long it takes.

The time is that of the matrix products at nine tenths of the rate of products
that is measured here, and of the element-wise work, whose share is small in a
wide model and more than half in one of width 128; in a tiny one most is the
start of the step. Fitted to steps on two cores with and without XLA: the recipe
`quick`, three layers of width 256, XLNet-Base, and fine-tuning of
`xlnet_tiny_en`; the range holds them all. Tracing, compiling, evaluations and
exports are not in it.
"""

import time

from keras import ops

from data_pipeline.progress import duration
from xlnet_tf.training.strategy import is_one_cpu

# Size of the matrices whose products are measured, and how many are.
_SIZE, _TIMES = 1024, 3
# A step's products reach this share of the rate of those ...
_SHARE = 0.9
# ... and each value between them takes the time of so many operations.
_OPERATIONS_PER_ELEMENT = 600
# Seconds that the smallest step takes to start.
_SECONDS_PER_STEP = 0.006
# From the least to the most time, of what is expected.
_LEAST, _MOST = 0.7, 1.4


def beginning(run):
    """The first lines of a run, before its first step.

    Args:
        run: Run, restored.

    Returns:
        str.
    """
    lines = [*run.describe(), *_about_time(run)]
    for damage in run.checkpoints.skipped:
        lines.append(f"skipped   damaged checkpoint {damage}")
    if run.restored:
        lines.append(f"resume    from {run.restored}")
    return "".join(line + "\n" for line in lines)


def _about_time(run):
    """list of a line on the time of a run; empty where nothing is known."""
    steps = run.config.steps - int(run.global_step.numpy())
    if steps < 1 or not is_one_cpu(run.strategy):
        return []
    work = run.step_work() if run.config.precision == "float32" else None
    if work is None:
        return []
    seconds = steps * expected_seconds(work, products_per_second())
    return [
        f"time      about {time_range(_LEAST * seconds, _MOST * seconds)} for "
        f"{steps:,} training steps, by the size of the model and this "
        "machine's rate of products; exact after the first steps"
    ]


def expected_seconds(work, rate):
    """Estimate the time of a training step on a CPU.

    Args:
        work: arithmetic.Work.
        rate: float, of `products_per_second`.

    Returns:
        float.
    """
    operations = work.flops / _SHARE + _OPERATIONS_PER_ELEMENT * work.elements
    return _SECONDS_PER_STEP + operations / rate


def products_per_second():
    """Operations of float32 matrix products that this machine does a second.

    Returns:
        float, of the fastest of a few products of Keras' backend, which take
        about a tenth of a second together.
    """
    matrix = ops.ones([_SIZE, _SIZE], "float32")
    times = []
    for _ in range(1 + _TIMES):  # the first one starts the threads
        begun = time.perf_counter()
        ops.convert_to_numpy(ops.matmul(matrix, matrix))  # waits for it
        times.append(time.perf_counter() - begun)
    return 2 * _SIZE**3 / min(times)


def time_range(least, most):
    """Seconds from and to as text: 3 to 6 min, or 50 s to 3 min."""
    least, most = duration(least), duration(most)
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    return f"{number if most.endswith(f' {unit}') else least} to {most}"
