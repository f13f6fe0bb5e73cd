"""Program of a contender's process: set up, then run on request.

Requests and answers are lines of JSON on standard input and output. The output
of libraries goes to standard error. The first request describes the contender:
`factory` ("module:function" below `benchmarks.contenders`), `options` of the
factory, and `matmul_size`. Each further request is {"calls": n}; the answer is
the mean seconds per call. When the input ends, the last answer has the memory
use.
"""

import importlib
import json
import os
import sys
import time


def main():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**values):
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    contender = json.loads(sys.stdin.readline())
    module, function = contender["factory"].split(":")
    module = importlib.import_module(f"benchmarks.contenders.{module}")
    from benchmarks.contest import machine

    baseline = machine.peak_bytes()
    rate = None
    if contender["matmul_size"]:
        rate = machine.matmul_rate(module.FRAMEWORK, contender["matmul_size"])
    begun = time.perf_counter()
    run = getattr(module, function)(**contender["options"])
    set_up = time.perf_counter() - begun
    answer(
        set_up_seconds=set_up,
        first_seconds=timed(run, 1),
        # The second call still allocates memory, and may trace once more.
        warm_seconds=timed(run, 1),
        matmul_rate=rate,
        framework=module.FRAMEWORK,
        facts=getattr(run, "facts", {}),
    )
    peak = machine.peak_bytes()
    can_reset = machine.reset_peak()
    for line in sys.stdin:
        answer(seconds=timed(run, json.loads(line)["calls"]))
    running = machine.peak_bytes()
    answer(
        baseline_bytes=baseline,
        peak_bytes=max(peak, running),
        running_bytes=running if can_reset else None,
    )


def timed(run, calls):
    """Measure the mean seconds per call of `run`."""
    begun = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - begun) / calls


if __name__ == "__main__":
    main()
