"""XLNet-Base and -Large on one GPU, beside Hugging Face on PyTorch.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --size large --job training --batch-size 8

Ours runs on Keras' JAX backend and needs no TensorFlow: keras, jax, numpy,
h5py and safetensors are enough; Hugging Face needs torch and transformers.
Training is a step of AdamW in bfloat16 with weights in float32: 512 tokens, 85
targets, memory of 384. Inference is the content stream of 512 tokens. Each
contender has a process of its own. MFU is the share of the device's greatest
bfloat16 rate that the necessary matrix products (`flops.py`) come to.
"""

import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import flops
from benchmarks import workload
from benchmarks.contest import quartiles

# Dense bfloat16 products per second by the maker's data sheets, the first
# name that fits.
PEAKS = {
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
}

SIZES = {
    "tiny": workload.TINY,
    "base": workload.BASE,
    "large": {
        "vocabulary_size": 32000,
        "num_layers": 24,
        "num_heads": 16,
        "hidden_dim": 1024,
        "head_dim": 64,
        "intermediate_dim": 4096,
    },
}

# name: (module, options)
CONTENDERS = {
    "xlnet_tf": ("ours_on_jax", {}),
    "xlnet_tf, rematerialised": ("ours_on_jax", {"rematerialize": True}),
    "Hugging Face": ("hugging_face_on_gpu", {}),
    "Hugging Face, torch.compile": ("hugging_face_on_gpu", {"compiled": True}),
}


def main(argv=None):
    """Measures from the command line.

    Args:
        argv: list of str, or None for the process's.

    Returns:
        int, the exit status.
    """
    settings = _parser().parse_args(argv)
    if settings.worker:
        print(json.dumps(measure(json.loads(settings.worker))))
        return 0
    rows = []
    for size in settings.size or ("base", "large"):
        for job in settings.job or ("training", "inference"):
            for name in settings.contender or CONTENDERS:
                if job == "inference" and "rematerialised" in name:
                    continue
                row = _in_a_process(name, size, job, settings)
                rows.append(row)
                print(json.dumps(row), flush=True)
    lines = table(rows, settings.peak_tflops)
    print("\n".join(lines))
    if settings.output:
        directory = pathlib.Path(settings.output)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
        (directory / "gpu.md").write_text("\n".join(lines) + "\n")
    return int(any("seconds" not in row for row in rows))


def _parser():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("--size", action="append", choices=SIZES, help="default base, large")
    add("--job", action="append", choices=("training", "inference"))
    add("--contender", action="append", choices=CONTENDERS)
    add("--batch-size", type=int, help="default 32, of the large model 16")
    add("--tokens", type=int, default=512)
    add("--targets", type=int, default=85)
    add("--memory-length", type=int, default=384)
    add("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=10, help="steps of a round")
    add("--peak-tflops", type=float, help="of the device, if not known here")
    add("--timeout", type=float, default=900, help="seconds of a contender")
    add("--output", metavar="DIR", help="write gpu.json and gpu.md there")
    add("--tiny", action="store_true", help="see that it runs, anywhere")
    add("--worker", help=argparse.SUPPRESS)
    return parser


def _in_a_process(name, size, job, settings):
    """One contender's row; a reason instead of seconds where it failed."""
    module, options = CONTENDERS[name]
    if settings.tiny:
        size = "tiny"
    batch_size = settings.batch_size or {"large": 16, "tiny": 2}.get(size, 32)
    shape = {
        "model": SIZES[size],
        "batch_size": batch_size,
        "num_tokens": 16 if settings.tiny else settings.tokens,
    }
    if job == "training":
        shape["num_targets"] = 3 if settings.tiny else settings.targets
        shape["memory_length"] = 8 if settings.tiny else settings.memory_length
    row = {"name": name, "size": size, "job": job, "batch_size": batch_size}
    task = {
        "module": module,
        "job": job,
        "shape": shape,
        "options": {**options, "precision": settings.precision},
        "rounds": 1 if settings.tiny else settings.rounds,
        "steps": 1 if settings.tiny else settings.steps,
    }
    program = str(pathlib.Path(__file__).resolve())
    try:
        done = subprocess.run(
            [sys.executable, program, "--worker", json.dumps(task)],
            capture_output=True,
            encoding="utf-8",
            timeout=settings.timeout,
            env={**os.environ, "KERAS_BACKEND": "jax"},
        )
    except subprocess.TimeoutExpired:
        return {**row, "reason": f"took more than {settings.timeout:g} s"}
    if done.returncode:
        return {**row, "reason": _reason(done.stderr)}
    return {**row, **json.loads(done.stdout.splitlines()[-1])}


def _reason(printed):
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "EXHAUSTED" in line]
    return (errors or lines or ["it ended without a word"])[-1][:300]


def measure(task):
    """Sets a contender up and times it, in this process.

    Args:
        task: dict with `module`, `job`, `shape`, `options`, `rounds`, `steps`.

    Returns:
        dict: `device`, `flops` a step, `first_seconds`, `seconds` (a list, of
        a step, one a round), `peak_bytes`, `result`.
    """
    module = importlib.import_module(f"benchmarks.contenders.{task['module']}")
    if hasattr(module, "check_backend"):
        module.check_backend()
    shape = task["shape"]
    if task["job"] == "training":
        factory, count = module.training_step, flops.training_step_flops
    else:
        factory, count = module.inference, flops.forward_flops
    begun = time.perf_counter()
    run, wait = factory(**shape, **task["options"])
    run()
    wait()
    first = time.perf_counter() - begun
    for _ in range(2):
        run()
    wait()
    seconds = []
    for _ in range(task["rounds"]):
        begun = time.perf_counter()
        for _ in range(task["steps"]):
            run()
        result = wait()
        seconds.append((time.perf_counter() - begun) / task["steps"])
    return {
        "device": module.device_name(),
        "flops": count(**shape),
        "first_seconds": first,
        "seconds": seconds,
        "peak_bytes": module.peak_bytes(),
        "result": result,
    }


def table(rows, peak_tflops=None):
    """Lines of Markdown.

    Args:
        rows: list of dicts, of `measure` and with `name`, `size`, `job`,
            `batch_size`; those that failed have a `reason`.
        peak_tflops: float, of the device, or None to look it up.

    Returns:
        list of str.
    """
    lines = [
        "| what | contender | device | a step (quartiles) | MFU | memory | "
        "first step |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        what = f"{row['size']} {row['job']}, {row['batch_size']} rows"
        if "seconds" not in row:
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
    return lines


def peak_of(device, peak_tflops=None):
    """Operations a second of a device, or None if it is not known."""
    if peak_tflops:
        return peak_tflops * 1e12
    for name, peak in PEAKS.items():
        if name.lower() in device.lower():
            return peak
    return None


if __name__ == "__main__":
    sys.exit(main())
