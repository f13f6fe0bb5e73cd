"""The ablation of the XLNet paper on your own text: `make comparison`.

Trains small models that differ in one thing each (compare_objectives.yaml), on
one text, for the same number of tokens, with the same tokenizer, optimizer and
seed, fine-tunes every one on the same tasks with several seeds, and writes
`table.md`, `comparison.json` and `comparison.png` and `.svg`.

    python examples/compare_objectives.py --text 'text/*.txt' \\
        --tasks sst-2=SST-2 wnut-17=train.conll,dev.conll \\
        --output runs/comparison

It says first how long it will take. What is done is not done again: after a
stop the same command goes on, and with other `--only` it adds to the table.
"""

import argparse
import json
import pathlib
import sys
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipeline import command_line  # noqa: E402
from examples import comparison_report as report  # noqa: E402
from examples.commands import is_done  # noqa: E402
from examples.commands import run_once  # noqa: E402
from xlnet_tf.training.runs.progress import duration  # noqa: E402

SETTINGS = pathlib.Path(__file__).with_suffix(".yaml")
# Steps of the run that measures how fast this machine is.
TIMED_STEPS = 100


class Comparison:
    """The commands of a comparison, and where each of them writes.

    Args:
        settings: dict, as compare_objectives.yaml has it.
        text: list of str, files or patterns.
        text_format: str, as build_records takes it.
        tasks: dict of task to list of one or two paths.
        output: path.
        seeds: int, runs of every task.
        steps: int, of pretraining, or None for those of the settings.
    """

    def __init__(
        self, settings, text, text_format, tasks, output, seeds, steps
    ):
        self.settings, self.tasks, self.output = settings, tasks, output
        self._text, self._text_format, self.seeds = text, text_format, seeds
        self.pretraining = dict(settings["pretraining"])
        if steps is not None:
            self.pretraining["steps"] = steps
        warmup = self.pretraining.get("warmup_steps", 0)
        self.pretraining["warmup_steps"] = min(
            warmup, self.pretraining["steps"] // 4
        )
        self.sequence_length = settings["records"]["sequence_length"]
        self._tokenizer = output / "tokenizer" / "spiece.model"

    def prepare(self, system):
        """The commands before pretraining: (output, *command) of each."""
        vocabulary_size = self.settings["vocabulary_size"]
        records = self.records(system)
        options = []
        for name, value in self._record_settings(system).items():
            name = name.replace("_", "-")
            if isinstance(value, bool):
                options.append(f"--{name}" if value else f"--no-{name}")
            else:
                options += [f"--{name}", value]
        text = ["--input", *self._text, "--text-format", self._text_format]
        return [
            (
                self._tokenizer.parent,
                *("-m", "data_pipeline.train_tokenizer", *text),
                *("--output", self._tokenizer),
                *("--vocabulary-size", vocabulary_size),
            ),
            (
                records,
                *("-m", "data_pipeline.build_records", *text),
                *("--tokenizer", self._tokenizer, "--output", records),
                *options,
            ),
        ]

    def _record_settings(self, system):
        return {**self.settings["records"], **system.get("records", {})}

    def records(self, system):
        """Path of the records of a system, shared by equal settings."""
        values = system.get("records", {})
        name = "-".join(f"{name}={values[name]}" for name in sorted(values))
        return self.output / "records" / (name or "plain")

    def pretrain(self, name, system, steps=None):
        """The command of pretraining: (output, *command)."""
        output = self.output / name / "pretrained"
        if steps is not None:
            output = self.output / "timing" / "pretrained"
        output.mkdir(parents=True, exist_ok=True)
        model = {
            "vocabulary_size": self.settings["vocabulary_size"],
            **self.settings["model"],
            **self.settings[system["backbone"]],
            **system.get("model", {}),
        }
        training = {**self.pretraining, **system.get("pretraining", {})}
        if steps is not None:
            training |= {"steps": steps, "warmup_steps": 1}
        _write(output.parent / "model.json", model)
        _write(output.parent / "training.json", training)
        return (
            output,
            *("-m", "xlnet_tf.train", "--records", self.records(system)),
            *("--config", output.parent / "model.json"),
            *("--training", output.parent / "training.json"),
            *("--output", output, "--steps", training["steps"]),
        )

    def finetune(self, name, task, steps=None):
        """The command of fine-tuning on a task: (output, *command)."""
        place = self.output / name
        preset = place / "pretrained" / "preset"
        if steps is not None:
            place = self.output / "timing"
        output = place / task
        place.mkdir(parents=True, exist_ok=True)
        training = {
            **self.settings["finetuning"],
            **self.settings["tasks"].get(task, {}),
        }
        if steps is not None:
            training |= {"steps": steps, "warmup_steps": 1}
        _write(place / f"{task}.json", training)
        train, *evaluation = self.tasks[task]
        return (
            output,
            *("-m", "xlnet_tf.finetune", "--task", task, "--data", train),
            *(("--eval-data", evaluation[0]) if evaluation else ()),
            *("--training", place / f"{task}.json", "--output", output),
            *("--preset", preset, "--seeds", self.seeds),
        )

    def preset(self, name):
        """Path of the weights of a system."""
        return self.output / name / "pretrained" / "preset"

    def parts(self, names):
        """What is to be done for some systems, in order.

        Yields:
            (kind, command, preset): "pretrain" or a task; (output, *command);
            path of the weights it starts from, or None.
        """
        systems = self.settings["systems"]
        for name in names:
            yield "pretrain", self.pretrain(name, systems[name]), None
            for task in self.tasks:
                command = self.finetune(name, task)
                yield task, command, self.preset(name)


def _write(file, values):
    file.write_text(json.dumps(values, indent=2))


def seconds_of_parts(comparison, first):
    """How long each kind of part takes here, by a short run of one system.

    Args:
        comparison: Comparison.
        first: str, the system whose run is timed.

    Returns:
        dict of "pretrain" and every task to seconds.
    """
    file = comparison.output / "timing" / "seconds.json"
    wanted = ["pretrain", *comparison.tasks]
    known = json.loads(file.read_text()) if file.is_file() else {}
    if set(wanted) <= set(known):
        return known
    print(f"\nmeasuring how fast this machine is, by {first}", flush=True)
    system = comparison.settings["systems"][first]
    begun = time.monotonic()
    output, *command = comparison.pretrain(first, system, TIMED_STEPS)
    run_once(output, *command)
    whole = time.monotonic() - begun
    rate = report.seconds_per_step(output, comparison.sequence_length)
    steps = comparison.pretraining["steps"]
    found = {"pretrain": whole + (steps - TIMED_STEPS) * rate}
    for task in comparison.tasks:
        settings = {
            **comparison.settings["finetuning"],
            **comparison.settings["tasks"].get(task, {}),
        }
        tokens = settings["batch_size"] * settings["sequence_length"]
        of_step = (
            comparison.pretraining["batch_size"] * comparison.sequence_length
        )
        # A step of fine-tuning costs about as much a token; evaluation and
        # starting as much again as the run that was timed took to start.
        start = max(10.0, whole - TIMED_STEPS * rate)
        seconds = start + settings["steps"] * rate * tokens / of_step
        found[task] = comparison.seeds * seconds
    _write(file, found)
    return found


def run_all(comparison, names):
    """Do what is not done yet, and say how far it is.

    Raises:
        SystemExit: if a command fails or is stopped.
    """
    systems = comparison.settings["systems"]
    for name in names:
        for output, *command in comparison.prepare(systems[name]):
            output.mkdir(parents=True, exist_ok=True)
            run_once(output, *command)
    seconds = seconds_of_parts(comparison, names[0])
    parts = list(comparison.parts(names))
    left = [
        (kind, command, preset)
        for kind, command, preset in parts
        if not is_done(*command, preset=preset)
    ]
    expected = sum(seconds[kind] for kind, _, _ in left)
    print(
        f"\n{len(left)} of {len(parts)} parts to do, about "
        f"{duration(expected)}",
        flush=True,
    )
    begun, planned = time.monotonic(), 0.0
    for number, (kind, command, preset) in enumerate(left, 1):
        run_once(*command, preset=preset)
        planned += seconds[kind]
        passed = time.monotonic() - begun
        rest = (expected - planned) * passed / planned
        print(
            f"\npart {number} of {len(left)} done in "
            f"{duration(passed)}; about {duration(rest)} left",
            flush=True,
        )


def parse_tasks(given):
    """dict of task to its paths, of NAME=DATA or NAME=TRAIN,DEV.

    Raises:
        ValueError: if one is not of that form, or is unknown or missing.
    """
    from data_pipeline.tasks.catalog import find_task

    tasks = {}
    for one in given:
        name, equals, places = one.partition("=")
        if not equals:
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
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(
        description="Compare pretraining objectives on your own text."
    )
    add = parser.add_argument
    add("--text", nargs="+", required=True, metavar="GLOB")
    add("--text-format", default="auto", help="as build_records takes it")
    add("--tasks", nargs="*", default=[], metavar="NAME=DATA[,DEV]")
    add("--output", required=True, type=pathlib.Path, metavar="DIR")
    add("--only", nargs="+", metavar="SYSTEM", help="some of the systems")
    add("--steps", type=int, help="of pretraining (default: the settings')")
    add("--seeds", type=int, default=3, help="runs of each task (default 3)")
    add("--settings", type=pathlib.Path, default=SETTINGS, metavar="FILE")
    options = parser.parse_args(argv)
    settings = yaml.safe_load(options.settings.read_text(encoding="utf-8"))
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
    run_all(comparison, options.only or list(systems))
    # Those too that an earlier command trained.
    results = report.read_results(
        output, systems, tasks, comparison.sequence_length
    )
    report.write(output, results, tasks)
    print(f"\n{report.table(results, tasks)}\n\nwrote {output / 'table.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
