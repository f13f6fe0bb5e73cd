"""A long run grows neither in memory nor in threads nor in open files.

5,000 steps of a small model, with evaluations, checkpoints and summaries:
what its process holds in the last quarter is what it held in the second.
"""

import dataclasses
import json
import pathlib
import statistics
import time

from tests.support import killed_runs

TRIALS = 1
_STEPS = 5000
# Of memory: allocators keep some of what was freed.
_SHARE = 1.02


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    command = killed_runs.pretraining(directory / "input")
    settings = directory / "input" / "training.json"
    values = json.loads(settings.read_text())
    for name in ("checkpoint_interval", "evaluation_interval"):
        values[name] = 100
    settings.write_text(json.dumps({**values, "steps_per_loop": 20}))
    options = list(command.options)
    options[options.index("--steps") + 1] = _STEPS
    command = dataclasses.replace(command, options=options)
    for number in range(count):
        yield _trial(command, directory / str(number))


def _trial(command, directory):
    """(label, problem): what was held, and what has grown."""
    quarters = {1: [], 3: []}
    with command.started(directory) as process:
        while process.exitcode is None:
            time.sleep(0.1)
            step = _last_step(directory / "run" / "metrics.jsonl")
            quarter = (step - 1) * 4 // _STEPS
            if quarter in quarters:
                with_values = _held(process.pid)
                quarters[quarter] += [with_values] if with_values else []
        if process.exitcode != 0:
            return "5,000 steps", f"status {process.exitcode}"
    before, after = (
        tuple(map(statistics.median, zip(*held, strict=True)))
        for held in quarters.values()
    )
    label = "5,000 steps: " + ", ".join(
        f"{name} {one:,.0f} -> {other:,.0f}"
        for name, one, other in zip(
            ("MB", "threads", "open files"), before, after, strict=True
        )
    )
    has_grown = after[0] > before[0] * _SHARE or any(
        other > one for one, other in zip(before[1:], after[1:], strict=True)
    )
    return label, "it has grown" if has_grown else None


def _last_step(file):
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return 0
    return json.loads(lines[-2])["step"] if len(lines) > 1 else 0


def _held(pid):
    """(megabytes, threads, open files) of a process; None once it ended."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        lines = (process / "status").read_text().splitlines()
        values = dict(line.split(":", 1) for line in lines)
        return (
            int(values["VmRSS"].split()[0]) / 1024,
            int(values["Threads"]),
            len(list((process / "fd").iterdir())),
        )
    except (FileNotFoundError, KeyError, ProcessLookupError):
        return None
