"""Fine-tune an XLNet on a task: `python -m xlnet_tf.finetune`.

    python -m xlnet_tf.finetune --task rte --data glue/RTE --preset DIR \\
        --output runs/rte

The output directory holds `results.json`, `best/` for `from_preset`,
`model.keras`, `metrics.jsonl`, predictions of the held-out examples and, for
some tasks, a report and a picture. The same command again resumes a stopped
run; with `--predict FILE` it predicts.
"""

import argparse
import copy
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
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.tfds import check_has
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.startup import check_backend
from xlnet_tf.training.startup import check_strategy
from xlnet_tf.training.startup import keep_freed_memory
from xlnet_tf.training.startup import keep_programs
from xlnet_tf.training.trackers import check_tracker

FREQUENT = (
    "steps",
    "epochs",
    "batch_size",
    "learning_rate",
    "sequence_length",
    "seed",
)
FURTHER = tuple(
    field.name
    for field in dataclasses.fields(FinetuningSettings)
    if field.name not in FREQUENT
)


def parse_arguments(argv=None):
    """Options of the command, with a field of FinetuningSettings each."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.finetune",
        usage="%(prog)s --task NAME --preset DIR --output DIR [options]",
        description="Fine-tune an XLNet on a task.",
        epilog=_listed_tasks(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--task", required=True, metavar="NAME", help="one of those below")
    add(
        "--data",
        metavar="PATH",
        help="directory, archive or file of the task (default: fetched by "
        "name through TensorFlow Datasets)",
    )
    add("--eval-data", metavar="PATH", help="file or directory to evaluate on")
    add("--columns", help='columns to read: "text=review,label=stars"')
    add(
        "--preset",
        required=True,
        metavar="DIR",
        help="model directory to start from",
    )
    add(
        "--random-start",
        action="store_true",
        help="use the preset's config and tokenizer, not its weights",
    )
    add("--output", required=True, metavar="DIR", help="directory of the run")
    add_options(parser, FinetuningSettings, skip=FURTHER)
    add(
        "--seeds",
        type=int,
        metavar="N",
        help="number of runs of different seeds, with median and spread",
    )
    add("--strategy", default="auto", help="as in xlnet_tf.train")
    add("--tpu", help='name or grpc:// address of a TPU, or "local"')
    add(
        "--training",
        metavar="FILE",
        help="JSON or YAML file with any of the settings; options override it",
    )
    add("--predict", metavar="FILE", help="examples to predict at the end")
    add_print_config(parser)
    command_line.add_quiet(parser)
    group = parser.add_argument_group(
        "further settings", "Defaults are those without a recipe of the task."
    )
    add_options(group, FinetuningSettings, skip=FREQUENT)
    group.add_argument(
        "--compilation-cache", metavar="DIR", help="as in xlnet_tf.train"
    )
    return command_line.parse(parser, argv)


def _listed_tasks():
    """Names and descriptions of all tasks, lines of `--help`, str."""
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


def read_config(options):
    """FinetuningSettings of options, file and recipe; loads nothing heavy.

    Args:
        options: argparse.Namespace of `parse_arguments`.

    Raises:
        ValueError: a name is unknown, a value is wrong, or the task has no
            data.
    """
    # --print-config works without a task.
    task = options.task or "classification"
    find_task(task)
    check_strategy(options.strategy)
    if options.steps == 0:
        raise ValueError(
            "`steps` must be a positive integer. To evaluate a model without "
            f"training: xlnet evaluate --task {task} --model DIR --data FILE. "
            "Received: steps=0."
        )
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(
            f"`--seeds` must be at least 1. Received: {options.seeds}."
        )
    if not options.print_config and options.data is None:
        check_has(task)
    return FinetuningSettings.for_task(task, options.training, options)


def main(argv=None):
    """Run the command; see the module's text."""
    options = parse_arguments(argv)
    config = read_config(options)
    if options.print_config:
        sys.stdout.write(config.to_yaml())
        return 0
    check_directory(options.output)
    check_tracker(config.log_to)
    options.begun = time.monotonic()  # --time-limit counts from here
    keep_programs(options.compilation_cache)
    check_backend("fine-tuning")
    from data_pipeline.base.models import RESULTS_FILE
    from xlnet_tf.training.devices import make_strategy
    from xlnet_tf.training.directory import first_begun
    from xlnet_tf.training.finetune import finetune
    from xlnet_tf.training.on_tensorflow import TensorFlow
    from xlnet_tf.training.results.summary import write_summary

    seeds, outputs = [config.seed], [options.output]
    if options.seeds is not None:
        seeds = range(config.seed, config.seed + options.seeds)
        outputs = [as_path(options.output) / f"seed-{seed}" for seed in seeds]
    begun = first_begun(outputs, RESULTS_FILE)
    with command_line.warnings_in_a_line():
        data = _read(options, config, begun)
        strategy = make_strategy(
            options.strategy, options.tpu, config.worker_timeout
        )
    all_results = []
    for seed, output in zip(seeds, outputs, strict=True):
        of_seed = copy.copy(options)
        of_seed.output = str(output)
        seeded = dataclasses.replace(config, seed=seed)
        backend = TensorFlow(strategy)
        status, results = finetune(of_seed, seeded, backend, data)
        if status:
            return status
        all_results.append(results)
    # None on workers other than the chief.
    if options.seeds is not None and all_results[0] is not None:
        write_summary(options.output, all_results, sys.stdout.write)
    return 0


def _read(options, config, begun):
    """TaskData of the options; a resumed run holds out the same examples."""
    from data_pipeline.tasks import reading
    from xlnet_tf.tasks import task_class
    from xlnet_tf.weights.heads import labels_of_head
    from xlnet_tf.weights.preset import open_source

    data = reading.read_task(
        options.task,
        options.data,
        evaluation=options.eval_data,
        columns=options.columns,
        fraction=config.hold_out,
        # Of a run of several seeds, that of the first.
        seed=begun["held_out_seed"] if begun else config.seed,
    )
    if data.labels and data.task.labels is None:
        labels = labels_of_head(
            task_class(data.task.kind), open_source(options.preset)
        )
        if set(labels) == set(data.labels):  # in the order of its logits
            data = dataclasses.replace(data, labels=labels)
        elif len(labels) == len(data.labels) and not options.random_start:
            warnings.warn(
                f"training begins with the head of {options.preset}, which has "
                f"the classes {', '.join(labels)}, not "
                f"{', '.join(data.labels)}",
                stacklevel=1,
            )
    if options.predict:  # read now: a mistake should not cost a training
        reading.read_unlabelled(
            data.task, options.predict, data.columns, data.labels
        )
    return data


def command():
    """Entry point of the console script."""
    keep_freed_memory()
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
