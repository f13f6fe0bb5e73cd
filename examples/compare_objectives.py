"""Repeat the ablation of the XLNet paper on your text: `make comparison`.

The program trains small models, called systems. Most systems differ from
another system in one setting (compare_objectives.yaml). All systems have the
same text, number of tokens, tokenizer, optimizer and seed. Then every system is
fine-tuned on the same tasks with several seeds. The results are `table.md`,
`comparison.json`, `comparison.png` and `comparison.svg`.

    python examples/compare_objectives.py --text 'text/*.txt' \\
        --tasks sst-2=SST-2 wnut-17=train.conll,dev.conll \\
        --output runs/comparison

The expected time is printed first. After a stop, the same command continues
with the first unfinished step. `--only` selects systems; a later command with
other systems adds their results to the table.
"""

import argparse
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline.base import command_line  # noqa: E402
from data_pipeline.base.files import read_json  # noqa: E402
from data_pipeline.base.files import write_json  # noqa: E402
from examples.commands import is_done  # noqa: E402
from examples.commands import run_once  # noqa: E402
from examples.comparison import report  # noqa: E402
from examples.comparison.parts import Comparison  # noqa: E402
from examples.comparison.parts import check_plan  # noqa: E402
from examples.comparison.parts import keep_plan  # noqa: E402
from examples.comparison.parts import seconds_of_part  # noqa: E402
from examples.comparison.settings import read_settings  # noqa: E402

SETTINGS = pathlib.Path(__file__).with_suffix(".yaml")
# Number of steps of the run that measures the speed of this machine.
TIMED_STEPS = 100


def measure(comparison, first):
    """Measure the speed of this machine by a short pretraining of one system.

    Args:
        comparison: Comparison.
        first: str, name of the system to run.

    Returns:
        dict of `start` (seconds before the first step) and `step` (seconds of
        a step).
    """
    file = comparison.output / "timing" / "seconds.json"
    if file.is_file():
        return read_json(file)
    print(f"\nmeasuring how fast this machine is, by {first}", flush=True)
    system = comparison.settings["systems"][first]
    begun = time.monotonic()
    output, *command = comparison.pretrain(first, system, TIMED_STEPS)
    run_once(output, *command)
    whole = time.monotonic() - begun
    step = report.seconds_per_step(output, comparison.sequence_length)
    # Without this minimum, `start` would be negative if the run was already
    # done and only this file is missing.
    found = {"start": max(10.0, whole - TIMED_STEPS * step), "step": step}
    write_json(file, found)
    return found


def run_all(comparison, names):
    """Run the unfinished commands of a comparison and print the progress.

    Raises:
        SystemExit: if a command fails or is stopped.
    """
    from data_pipeline.base.progress import duration

    systems = comparison.settings["systems"]
    for name in names:
        for output, *command in comparison.prepare(systems[name]):
            output.mkdir(parents=True, exist_ok=True)
            run_once(output, *command)
    keep_plan(comparison)
    measured = measure(comparison, names[0])
    parts = list(comparison.parts(names))
    left = [
        (name, kind, command, preset)
        for name, kind, command, preset in parts
        if not is_done(*command, preset=preset)
    ]
    seconds = [seconds_of_part(comparison, x[1], measured) for x in left]
    expected = sum(seconds)
    print(
        f"\n{len(left)} of {len(parts)} parts to do, about "
        f"{duration(expected)}",
        flush=True,
    )
    begun, planned = time.monotonic(), 0.0
    for number, (name, kind, command, preset) in enumerate(left, 1):
        run_once(*command, preset=preset)
        if kind == "pretrain":
            keep_plan(comparison, names=[name])
        else:
            keep_plan(comparison, tasks=[kind])
        planned += seconds[number - 1]
        passed = time.monotonic() - begun
        rest = (expected - planned) * passed / planned
        print(
            f"\npart {number} of {len(left)} done in "
            f"{duration(passed)}; about {duration(rest)} left",
            flush=True,
        )


def parse_tasks(given):
    """Parse tasks such as NAME=DATA or NAME=TRAIN,DEV to {name: paths}.

    Raises:
        ValueError: if a task has another form, a name is unknown, or a file
            does not exist.
    """
    from data_pipeline.tasks.catalog import find_task

    tasks = {}
    for one in given:
        name, equals, places = one.partition("=")
        if not equals or places.count(",") > 1:
            raise ValueError(
                "a task must be NAME=DATA or NAME=TRAIN,DEV, such as "
                f"sst-2=glue/SST-2. Received: {one!r}."
            )
        find_task(name)
        paths = [pathlib.Path(x).resolve() for x in places.split(",")]
        for path in paths:
            if not path.exists():
                raise ValueError(f"{name}: there is no {path}.")
        tasks[name] = paths
    return tasks


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(
        description="Compare pretraining objectives on your own text."
    )
    add = parser.add_argument
    add("--text", nargs="+", required=True, metavar="GLOB")
    add("--text-format", default="auto", help="see build_records")
    add("--tasks", nargs="*", default=[], metavar="NAME=DATA[,DEV]")
    add("--output", required=True, type=pathlib.Path, metavar="DIR")
    add("--only", nargs="+", metavar="SYSTEM", help="systems to run")
    add("--steps", type=int, help="pretraining steps (default: settings)")
    add("--seeds", type=int, default=3, help="runs of each task (default 3)")
    add("--settings", type=pathlib.Path, default=SETTINGS, metavar="FILE")
    options = parser.parse_args(argv)
    settings = read_settings(options.settings)
    systems = settings["systems"]
    for name in options.only or ():
        if name not in systems:
            raise ValueError(
                f"`--only` takes {', '.join(systems)}. Received: {name!r}."
            )
    for name in ("steps", "seeds"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"`--{name}` must be at least 1, not {value}.")
    tasks = parse_tasks(options.tasks)
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(
        settings,
        [str(pathlib.Path(x).absolute()) for x in options.text],
        options.text_format,
        tasks,
        output,
        options.seeds,
        options.steps,
    )
    names = options.only or list(systems)
    check_plan(comparison, names)
    run_all(comparison, names)
    # Include the systems that earlier commands have trained.
    results = report.read_results(
        output, systems, tasks, comparison.sequence_length
    )
    report.write(output, results, tasks)
    print(f"\n{report.table(results, tasks)}\n\nwrote {output / 'table.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
