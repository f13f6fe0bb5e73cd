"""Benchmark of XLNet on one GPU, with Hugging Face on PyTorch as peer.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --size large --job training
    python benchmarks/gpu.py --job training --tokens 4096 --targets 680 \
        --batch-size 2

This library runs on Keras' JAX backend, which needs no TensorFlow: keras, jax,
numpy, h5py and safetensors are enough. Hugging Face needs torch and
transformers. The job "training" is a step of AdamW in bfloat16 with weights in
float32, 512 tokens, 85 targets and a memory of 384 tokens. The job "inference"
computes the content stream of 512 tokens. Each contender runs in a separate
process. With `--together`, all contenders of a job are set up at the same time
and measured in turns. This option saves time, but needs the memory of all
contenders. MFU is the rate of the necessary matrix products
(`workload/flops.py`), as a share of the device's highest bfloat16 rate.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.contest.rounds import quartiles
from benchmarks.workload import flops
from benchmarks.workload.sizes import BASE
from benchmarks.workload.sizes import TINY

# Dense bfloat16 operations per second from NVIDIA's data sheets, by device
# name. The first name that matches is used.
PEAKS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
}

SIZES = {
    "tiny": TINY,
    "base": BASE,
    "large": {
        "vocabulary_size": 32000,
        "num_layers": 24,
        "num_heads": 16,
        "hidden_dim": 1024,
        "head_dim": 64,
        "intermediate_dim": 4096,
    },
}

# From a contender's name to (module, options).
CONTENDERS = {
    "xlnet_tf": ("ours_on_jax", {}),
    "xlnet_tf, memory_efficient": (
        "ours_on_jax",
        {"attention_kernel": "memory_efficient"},
    ),
    "xlnet_tf, plain": ("ours_on_jax", {"attention_kernel": "plain"}),
    "xlnet_tf, rematerialised": ("ours_on_jax", {"rematerialize": True}),
    "Hugging Face": ("hugging_face_on_gpu", {}),
    "Hugging Face, torch.compile": ("hugging_face_on_gpu", {"compiled": True}),
}


def main(argv=None):
    """Run the command; see the module docstring.

    Args:
        argv: list of str. None: the arguments of the process.

    Returns:
        int, the exit status.
    """
    parser = _parser()
    settings = parser.parse_args(argv)
    for name in ("batch_size", "tokens", "targets", "rounds", "steps"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            option = name.replace("_", "-")
            parser.error(f"--{option} must be at least 1, not {value}")
    if settings.worker:
        answer_rounds(json.loads(settings.worker))
        return 0
    rows = []
    sizes = ("base",) if settings.tiny else ("base", "large")
    for size in settings.size or sizes:
        for job in settings.job or ("training", "inference"):
            names = [
                name
                for name in settings.contender or CONTENDERS
                if job == "training" or "rematerialised" not in name
            ]
            groups = [names] if settings.together else [[x] for x in names]
            for group in groups:
                for row in _hold(group, size, job, settings):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    lines = table(rows, settings.peak_tflops)
    print("\n".join(lines))
    if settings.output:
        directory = pathlib.Path(settings.output)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
        (directory / "gpu.md").write_text("\n".join(lines) + "\n")
    return int(any("reason" in row for row in rows))


def _parser():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("--size", action="append", choices=SIZES, help="default base, large")
    add("--job", action="append", choices=("training", "inference"))
    add("--contender", action="append", choices=CONTENDERS)
    add("--batch-size", type=int, help="default 32; large: 16")
    add("--tokens", type=int, default=512)
    add("--targets", type=int, default=85)
    add("--memory-length", type=int, default=384)
    add("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=10, help="steps per round")
    add("--peak-tflops", type=float, help="highest rate of the device")
    add("--timeout", type=float, default=900, help="seconds per contender")
    add("--together", action="store_true", help="set up all contenders first")
    add("--output", metavar="DIR", help="for gpu.json and gpu.md")
    add("--tiny", action="store_true", help="tiny check on any machine")
    add("--worker", help=argparse.SUPPRESS)
    return parser


def _hold(names, size, job, settings):
    """Measure contenders in turns; yield each contender's row."""
    processes = [_Process(name, size, job, settings) for name in names]
    for process in processes:
        process.ask("")  # wait for the set-up
    for _ in range(1 if settings.tiny else settings.rounds):
        for process in processes:
            process.ask("round")
    for process in processes:
        process.finish()
        yield process.row


class _Process:
    """Contender in a separate process.

    Attributes:
        row: dict, row of the table. It has `name`, `size`, `job`, `batch_size`,
            `num_tokens`, and the answers of `answer_rounds`. If there is no
            result, it has the `reason` instead of the answers.
    """

    def __init__(self, name, size, job, settings):
        module, options = CONTENDERS[name]
        if settings.tiny:
            size = "tiny"
        batch_size = settings.batch_size or {"large": 16, "tiny": 2}.get(
            size, 32
        )
        shape = {
            "model": SIZES[size],
            "batch_size": batch_size,
            "num_tokens": 16 if settings.tiny else settings.tokens,
        }
        if job == "training":
            shape["num_targets"] = 3 if settings.tiny else settings.targets
            memory_length = 8 if settings.tiny else settings.memory_length
            shape["memory_length"] = memory_length
        self.row = {
            "name": name,
            "size": size,
            "job": job,
            "batch_size": batch_size,
            "num_tokens": shape["num_tokens"],
        }
        task = {
            "module": module,
            "job": job,
            "shape": shape,
            "options": {**options, "precision": settings.precision},
            "steps": 1 if settings.tiny else settings.steps,
        }
        environment = {**os.environ, "KERAS_BACKEND": "jax"}
        if settings.together:
            # Otherwise the first contender would allocate the whole device
            # memory.
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self._timeout = settings.timeout
        self._printed = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(pathlib.Path(__file__).resolve()),
                "--worker",
                json.dumps(task),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            encoding="utf-8",
            env=environment,
        )

    def ask(self, request):
        """Send a request; add the answer or the error's reason to the row."""
        if "reason" in self.row:
            return
        timer = threading.Timer(self._timeout, self._process.kill)
        timer.start()
        try:
            if request:
                self._process.stdin.write(request + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            answer = json.loads(line)
            self.row.setdefault("seconds", []).extend(answer.pop("seconds", []))
            self.row.update(answer)
        else:
            self.row.pop("seconds", None)
            self.row["reason"] = self._reason()

    def finish(self):
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._wait()
        self._process.stdout.close()
        self._printed.close()

    def _wait(self):
        """Wait for the exit status; kill the process if it hangs."""
        try:
            return self._process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _reason(self):
        if self._wait() == -signal.SIGKILL:
            return f"no answer in {self._timeout:g} s, or out of memory"
        self._printed.seek(0)
        lines = [line for line in self._printed if line.strip()]
        errors = [x for x in lines if "Error" in x or "EXHAUSTED" in x]
        told = (errors or lines or ["it ended without a word"])[-1]
        return told.strip()[:300]


def answer_rounds(task):
    """Set up a contender, then time a round for each line of the input.

    The answers are lines of JSON. After the set-up, the answer has `device`,
    `flops` of a step, `first_seconds` and the `warnings` so far. After each
    round, the answer has `seconds` (a list with the mean time of a step),
    `peak_bytes` (the peak of the memory so far) and `result` (the result of the
    last step).

    Args:
        task: dict with `module`, `job`, `shape`, `options`, `steps`.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # redirect output of libraries
    module = importlib.import_module(f"benchmarks.contenders.{task['module']}")
    if hasattr(module, "check_backend"):
        module.check_backend()
    shape = task["shape"]
    if task["job"] == "training":
        factory, count = module.training_step, flops.training_step_flops
    else:
        factory, count = module.inference, flops.forward_flops

    def answer(**values):
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as found:
        warnings.filterwarnings("always", "the kernel .* computes attention")
        run, wait = factory(**shape, **task["options"])
        run()
        wait()
    first = time.perf_counter() - begun
    for _ in range(2):
        run()
    wait()
    answer(
        device=module.device_name(),
        flops=count(**shape),
        first_seconds=first,
        warnings=sorted({str(one.message) for one in found}),
    )
    for _ in sys.stdin:
        begun = time.perf_counter()
        for _ in range(task["steps"]):
            run()
        result = wait()
        seconds = (time.perf_counter() - begun) / task["steps"]
        answer(seconds=[seconds], peak_bytes=module.peak_bytes(), result=result)


def table(rows, peak_tflops=None):
    """Make the table in Markdown.

    Args:
        rows: list of dicts; see `row` of `_Process`.
        peak_tflops: float, highest bfloat16 rate of the device, in 10^12
            operations per second. None: the rate follows from the device's
            name.

    Returns:
        list of str, lines of the table, followed by the contenders' warnings,
        for example about a kernel that replaced the requested kernel.
    """
    lines = [
        "| what | contender | device | a step (quartiles) | MFU | memory | "
        "set-up and first step |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        what = (
            f"{row['size']} {row['job']}, {row['batch_size']} rows of "
            f"{row['num_tokens']}"
        )
        if "reason" in row:
            lines.append(f"| {what} | {row['name']} | {row['reason']} |||||")
            continue
        low, median, high = (1e3 * x for x in quartiles(row["seconds"]))
        peak = peak_of(row["device"], peak_tflops)
        share, memory = "unknown", "unknown"
        if peak:
            share = f"{row['flops'] / (median / 1e3) / peak:.1%}"
        if row["peak_bytes"]:
            memory = f"{row['peak_bytes'] / 2**30:.1f} GiB"
        lines.append(
            f"| {what} | {row['name']} | {row['device']} | {median:.2f} ms "
            f"({low:.2f} to {high:.2f}) | {share} | {memory} | "
            f"{row['first_seconds']:.1f} s |"
        )
    said = {line: None for row in rows for line in row.get("warnings", ())}
    return lines + ["", *said] if said else lines


def peak_of(device, peak_tflops=None):
    """Highest rate of a device in operations per second; None if unknown."""
    if peak_tflops:
        return peak_tflops * 1e12
    for name, peak in PEAKS.items():
        if name.lower() in device.lower():
            return peak
    return None


if __name__ == "__main__":
    sys.exit(main())
