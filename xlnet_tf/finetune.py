"""Fine-tune an XLNet or a BERT on a task: `python -m xlnet_tf.finetune`.

    python -m xlnet_tf.finetune --task rte --data glue/RTE --preset DIR \\
        --output runs/rte

The output directory contains `results.json`, the preset `best/`, `model.keras`,
`metrics.jsonl`, the predictions for the held-out examples and, for some tasks,
a report and a picture. Repeating the command resumes a stopped run. With
`--predict FILE` the command also writes predictions for the examples in FILE.
"""

import argparse
import dataclasses
import sys
import textwrap
import time
import warnings

from data_pipeline.base import command_line
from data_pipeline.base.files import as_path
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import add_print_config
from data_pipeline.base.settings import read_file
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.tfds import check_has
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.startup import check_backend
from xlnet_tf.training.startup import keep_programs
from xlnet_tf.training.trackers import check_tracker

FREQUENT = (
    "task",
    "data",
    "eval_data",
    "columns",
    "preset",
    "random_start",
    "output",
    "steps",
    "epochs",
    "batch_size",
    "learning_rate",
    "sequence_length",
    "seed",
    "seeds",
    "strategy",
    "tpu",
    "predict",
    "quiet",
)


def parse_arguments(argv=None):
    """Parse the options, one for each field of FinetuningSettings."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.finetune",
        usage="%(prog)s --task NAME --preset DIR --output DIR [options]",
        description="Fine-tune an XLNet on a task.",
        epilog=_listed_tasks(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, FinetuningSettings, names=FREQUENT)
    parser.add_argument(
        "--training",
        metavar="FILE",
        help="JSON or YAML file of settings; options override the file",
    )
    add_print_config(parser)
    group = parser.add_argument_group(
        "further settings", "Defaults are those without a recipe of the task."
    )
    add_options(group, FinetuningSettings, skip=FREQUENT)
    return command_line.parse(parser, argv)


def _listed_tasks():
    """Return the part of `--help` that names and describes all tasks."""
    lines = [
        textwrap.fill(
            task.description,
            width=78,
            initial_indent=f"  {name:<16}",
            subsequent_indent=" " * 18,
        )
        for name, task in TASKS.items()
    ]
    return "\n".join(["tasks:", *lines])


def read_settings(options):
    """Make FinetuningSettings from options, a settings file and a recipe.

    Args:
        options: argparse.Namespace of `parse_arguments`.

    Raises:
        ValueError: if the task or a setting is unknown, if a value is wrong or
            missing, or if the task has no data.
    """
    task = options.task
    if task is None and options.training:
        task = read_file(FinetuningSettings, options.training).get("task")
    if task is None and options.print_config:  # needs no task
        task = "classification"
    if task is not None:
        find_task(task)
    if options.steps == 0:
        raise ValueError(
            "`steps` must be a positive integer. To evaluate a model without "
            f"training: xlnet evaluate --task {task} --model DIR --data FILE. "
            "Received: steps=0."
        )
    settings = FinetuningSettings.for_task(task, options.training, options)
    if options.print_config:
        return settings
    settings.require("task", "preset", "output")
    if settings.data is None:
        check_has(task)
    return settings


def main(argv=None):
    """Run the command; see the module's docstring."""
    options = parse_arguments(argv)
    settings = read_settings(options)
    if options.print_config:
        sys.stdout.write(settings.to_yaml())
        return 0
    check_directory(settings.output)
    check_tracker(settings.log_to)
    begun = time.monotonic()  # --time-limit counts from here
    keep_programs(settings.compilation_cache)
    check_backend("fine-tuning")
    from data_pipeline.base.models import RESULTS_FILE
    from xlnet_tf.training.backends import opened_backend
    from xlnet_tf.training.directory import first_begun
    from xlnet_tf.training.finetune import finetune
    from xlnet_tf.training.results.summary import write_summary

    runs = [settings]
    if settings.seeds is not None:
        runs = [
            dataclasses.replace(
                settings,
                seed=seed,
                output=str(as_path(settings.output) / f"seed-{seed}"),
            )
            for seed in range(settings.seed, settings.seed + settings.seeds)
        ]
    earlier = first_begun([run.output for run in runs], RESULTS_FILE)
    all_results = []
    with opened_backend(settings) as backend:
        with command_line.warnings_in_a_line():
            data = _read(settings, earlier)
        for run in runs:
            status, results = finetune(run, backend, data, begun)
            if status:
                return status
            all_results.append(results)
    # Only the chief has results; other workers have None.
    if settings.seeds is not None and all_results[0] is not None:
        write_summary(settings.output, all_results, command_line.print_lines)
    return 0


def _read(settings, earlier):
    """Read the examples of the task into a TaskData.

    A resumed run holds out the same examples as before the run was stopped.

    Args:
        settings: FinetuningSettings.
        earlier: dict, the contents of the resumed run's `run.json`, or None for
            a new run.
    """
    from data_pipeline.tasks import reading
    from xlnet_tf.tasks import task_kind
    from xlnet_tf.weights.heads import labels_of_head
    from xlnet_tf.weights.preset import open_source

    data = reading.read_task(
        settings.task,
        settings.data,
        evaluation=settings.eval_data,
        columns=settings.columns,
        fraction=settings.hold_out,
        # With several seeds, all runs hold out the first run's examples.
        seed=earlier["held_out_seed"] if earlier else settings.seed,
    )
    if data.labels and data.task.labels is None:
        labels = labels_of_head(
            task_kind(data.task.kind).model_class, open_source(settings.preset)
        )
        if set(labels) == set(data.labels):  # use the order of the logits
            data = dataclasses.replace(data, labels=labels)
        elif len(labels) == len(data.labels) and not settings.random_start:
            warnings.warn(
                f"training begins with the head of {settings.preset}, which "
                f"has the classes {', '.join(labels)}, not "
                f"{', '.join(data.labels)}",
                stacklevel=1,
            )
    # Read the file now, because a mistake in it would waste the training.
    if settings.predict:
        reading.read_unlabelled(
            data.task, settings.predict, data.columns, data.labels
        )
    return data


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
