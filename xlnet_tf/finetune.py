"""Fine-tunes an XLNet on a task: `python -m xlnet_tf.finetune`.

    python -m xlnet_tf.finetune --task rte --data glue/RTE --preset DIR \\
        --output runs/rte

The output directory holds `results.json`, `best/` for `from_preset`,
`model.keras`, `metrics.jsonl`, predictions of the held-out examples and, where
they say something, a report and a picture. The same command again goes on where
the run stopped; with `--predict FILE` it predicts.
"""

import argparse
import copy
import json
import pathlib
import sys

from data_pipeline import command_line


def parse_arguments(argv=None):
    """Options of the command; the rest is in `--training FILE`."""
    from data_pipeline.tasks.catalog import TASKS

    parser = argparse.ArgumentParser(
        prog="python -m xlnet_tf.finetune",
        description="Fine-tune an XLNet on a task.",
        epilog="tasks: " + ", ".join(TASKS),
    )
    add = parser.add_argument
    add("--task", required=True, help="its name, see below")
    add(
        "--data",
        help="directory, archive or file of the task (default: fetched by "
        "name through TensorFlow Datasets)",
    )
    add("--eval-data", help="file or directory to evaluate on")
    add("--columns", help='which ones to read: "text=review,label=stars"')
    add("--preset", required=True, help="directory of the weights")
    add(
        "--random-start",
        action="store_true",
        help="use the preset's config and tokenizer, not its weights",
    )
    add("--output", required=True, help="directory of the run")
    add("--steps", type=int, help="optimizer steps in all")
    add("--epochs", type=float, help="instead of --steps")
    add("--batch-size", type=int, help="rows of all replicas together")
    add("--learning-rate", type=float, help="peak of the learning rate")
    add("--sequence-length", type=int, help="tokens at most")
    add("--seed", type=int, help="of the head, the order and dropout")
    add("--seeds", type=int, help="so many runs, with median and spread")
    add("--strategy", default="auto", help="as of xlnet_tf.train")
    add("--tpu", help='name or grpc:// address of a TPU, or "local"')
    add(
        "--training",
        metavar="FILE",
        help="JSON with any field of FinetuningConfig; options given win",
    )
    add("--predict", metavar="FILE", help="write predictions of a file")
    add("--compilation-cache", metavar="DIR", help="as of xlnet_tf.train")
    return parser.parse_args(argv)


def finetuning_config(options):
    """The settings of a run: the task's recipe, the file, the options."""
    from xlnet_tf.training.finetuning_config import FinetuningConfig
    from xlnet_tf.training.finetuning_config import recipe

    file = {}
    if options.training:
        given = FinetuningConfig.from_json(options.training).to_dict()
        named = json.loads(pathlib.Path(options.training).read_text("utf-8"))
        file = {name: given[name] for name in named}
    names = ("steps", "epochs", "batch_size", "learning_rate", "seed")
    values = {
        name: getattr(options, name)
        for name in (*names, "sequence_length")
        if getattr(options, name) is not None
    }
    if {"steps", "epochs"} <= set(values):
        raise ValueError("give either --steps or --epochs, not both.")
    if "epochs" in values:
        file.pop("steps", None)
    given = {**file, **values}
    settings = recipe(options.task)
    if {"steps", "epochs"} & set(given):
        # The recipe's warm-up belongs to its own number of steps.
        for name in ("steps", "epochs", "warmup_steps"):
            settings.pop(name, None)
    return FinetuningConfig(**{**settings, **given})


def main(argv=None):
    """Runs the command; see the module's text."""
    options = parse_arguments(argv)
    from xlnet_tf.training.compilation_cache import compilation_cache

    with compilation_cache(options.compilation_cache):
        return finetune(options)


def finetune(options):
    """All runs that the options ask for.

    Returns:
        int, the exit status.
    """
    from data_pipeline.tasks import reading
    from xlnet_tf.training.finetuning import one_run
    from xlnet_tf.training.results import write_summary
    from xlnet_tf.training.strategy import make_strategy

    config = finetuning_config(options)
    with command_line.warnings_in_a_line():
        data = reading.read_task(
            options.task,
            options.data,
            evaluation=options.eval_data,
            columns=options.columns,
            fraction=config.hold_out,
            seed=config.seed,
        )
    strategy = make_strategy(options.strategy, options.tpu)
    if options.seeds is None:
        return one_run(options, strategy, data, config)[0]
    if options.seeds < 1:
        raise ValueError(
            f"`--seeds` must be at least 1. Received: {options.seeds}."
        )
    results = []
    for seed in range(config.seed, config.seed + options.seeds):
        mine = copy.copy(options)
        mine.seed = seed
        mine.output = str(pathlib.Path(options.output) / f"seed-{seed}")
        status, result = one_run(mine, strategy, data, finetuning_config(mine))
        if status:
            return status
        results.append(result)
    if results[0] is not None:  # of a worker that is not the chief
        write_summary(options.output, results, sys.stdout.write)
    return 0


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
