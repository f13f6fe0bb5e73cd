"""Commands of a comparison, with expected times and stored settings."""

from data_pipeline.base.files import read_json
from data_pipeline.base.files import write_json
from examples.commands import options_of

PLAN = "plan.json"


class Comparison:
    """Commands of a comparison, with their output paths.

    A system is one of the compared models. A command is a tuple (output,
    *arguments): the output path, and the arguments after `python`.

    Args:
        settings: dict, see compare_objectives.yaml.
        text: list of str, files or globs.
        text_format: str, see `build_records`.
        tasks: dict from the name of a task to a list of one or two paths, for
            training and evaluation.
        output: path of the directory for all outputs.
        seeds: int, number of runs of every task.
        steps: int, number of steps of pretraining, or None for the number in
            the settings.
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
        """List the commands that a system needs before pretraining."""
        vocabulary_size = self.settings["vocabulary_size"]
        records = self.records(system)
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
                *options_of(
                    {**self.settings["records"], **system.get("records", {})}
                ),
            ),
        ]

    def records(self, system):
        """Path of a system's records, shared by systems with equal settings."""
        values = system.get("records", {})
        name = "-".join(f"{name}={values[name]}" for name in sorted(values))
        return self.output / "records" / (name or "plain")

    def pretrain(self, name, system, steps=None):
        """Write a system's settings of pretraining; return the command."""
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
        write_json(output.parent / "model.json", model)
        write_json(output.parent / "training.json", training)
        return (
            output,
            *("-m", "xlnet_tf.train", "--records", self.records(system)),
            *("--config", output.parent / "model.json"),
            *("--training", output.parent / "training.json"),
            *("--output", output, "--steps", training["steps"]),
        )

    def finetuning(self, task):
        """Make the dict of settings of fine-tuning on a task."""
        own = self.settings["tasks"].get(task, {})
        return {**self.settings["finetuning"], **own}

    def finetune(self, name, task):
        """Write the settings of fine-tuning on a task; return the command."""
        place = self.output / name
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / f"{task}.json", self.finetuning(task))
        train, *evaluation = self.tasks[task]
        return (
            place / task,
            *("-m", "xlnet_tf.finetune", "--task", task, "--data", train),
            *(("--eval-data", evaluation[0]) if evaluation else ()),
            *("--training", place / f"{task}.json", "--output", place / task),
            *("--preset", self.preset(name), "--seeds", self.seeds),
        )

    def plan(self, names, tasks):
        """Make a dict of all settings that determine the results."""
        own = ("systems", "tasks", "finetuning", "pretraining")
        shared = {k: v for k, v in self.settings.items() if k not in own}
        return {
            "settings": {
                **shared,
                "pretraining": self.pretraining,
                "text": self._text,
                "text_format": self._text_format,
            },
            "systems": {x: self.settings["systems"][x] for x in names},
            "tasks": {
                task: {
                    "data": list(map(str, self.tasks[task])),
                    **self.finetuning(task),
                }
                for task in tasks
            },
        }

    def preset(self, name):
        """Path of the pretrained weights of a system."""
        return self.output / name / "pretrained" / "preset"

    def parts(self, names):
        """Yield the commands for some systems, in the order of running.

        Yields:
            (name, kind, command, preset): name of the system; "pretrain" or the
            name of a task; command; path of the initial weights or None.
        """
        systems = self.settings["systems"]
        for name in names:
            yield name, "pretrain", self.pretrain(name, systems[name]), None
            for task in self.tasks:
                command = self.finetune(name, task)
                yield name, task, command, self.preset(name)


def check_plan(comparison, names):
    """Refuse to add results to a table of results with other settings.

    Args:
        comparison: Comparison.
        names: list of str, systems to run.

    Raises:
        ValueError: if the stored results come from another text, another number
            of tokens or other shared settings, or if the settings of a system
            or task have changed since the stored result.
    """
    before = _kept_plan(comparison)
    for kind, values in comparison.plan(names, comparison.tasks).items():
        for name, value in values.items():
            known = before.get(kind, {})
            if name in known and known[name] != value:
                raise ValueError(
                    f"{comparison.output} holds results of other {kind}: "
                    f"{name} was {known[name]!r}. Received: {value!r}. Give "
                    "another --output."
                )


def keep_plan(comparison, names=(), tasks=()):
    """Store the settings on which the finished results depend.

    Args:
        comparison: Comparison, whose records must be built.
        names: names of newly pretrained systems.
        tasks: tasks with a new result.
    """
    before = _kept_plan(comparison)
    merged = {
        kind: before.get(kind, {}) | values
        for kind, values in comparison.plan(names, tasks).items()
    }
    write_json(comparison.output / PLAN, merged)


def _kept_plan(comparison):
    file = comparison.output / PLAN
    return read_json(file) if file.is_file() else {}


def seconds_of_part(comparison, kind, measured):
    """Estimate the seconds of pretraining, or of a task with all seeds."""
    start, step = measured["start"], measured["step"]
    if kind == "pretrain":
        return start + comparison.pretraining["steps"] * step
    settings = comparison.finetuning(kind)
    tokens = settings["batch_size"] * settings["sequence_length"]
    of_step = comparison.pretraining["batch_size"] * comparison.sequence_length
    # Assume the same time per token as in pretraining. Every seed compiles and
    # evaluates.
    steps = settings["steps"] * step * tokens / of_step
    return comparison.seeds * (start + steps)
