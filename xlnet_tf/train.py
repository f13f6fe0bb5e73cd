"""Pretrain an XLNet or a BERT: `python -m xlnet_tf.train`.

    python -m xlnet_tf.train --config small --records DIR --output DIR \\
        --steps 1000 --batch-size 32

The output directory contains `checkpoints/`, TensorBoard logs, `metrics.jsonl`
and `training.json`. The option `--training` reads the settings of a run from
its `training.json`. At the end of the run the directory also contains
`model.keras`, the tokenizer and the preset `preset/`. Repeating the command
resumes a stopped run.
"""

import sys
import time

from data_pipeline.base import command_line
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import add_print_config
from data_pipeline.base.settings import given_options
from data_pipeline.base.settings import read_file
from xlnet_tf.training.recipes import PRETRAINING
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.startup import check_backend
from xlnet_tf.training.startup import check_config
from xlnet_tf.training.startup import keep_programs
from xlnet_tf.training.trackers import check_tracker

FREQUENT = (
    "records",
    "output",
    "config",
    "backbone",
    "set",
    "preset",
    "steps",
    "batch_size",
    "learning_rate",
    "precision",
    "seed",
    "memory_length",
    "eval_records",
    "skip_corrupt",
    "data_service",
    "export",
    "strategy",
    "tpu",
    "quiet",
)
# The command has no default number of steps, unlike PretrainingSettings.
_DEFAULTS = {"steps": "required, unless --recipe or --training sets it"}
# Options of build_records that users may expect here.
_OF_RECORDS = dict.fromkeys(
    ("--sequence-length", "--tokenizer", "--lowercase", "--input"),
    "set when records are built, see build_records",
)


def parse_arguments(argv=None):
    """Parse the options, one for each field of PretrainingSettings."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.train",
        usage="%(prog)s --records DIR --output DIR --steps N [options]",
        description="Pretrain an XLNet or a BERT on records.",
    )
    parser.elsewhere = _OF_RECORDS
    add_options(parser, PretrainingSettings, names=FREQUENT, defaults=_DEFAULTS)
    parser.add_argument(
        "--recipe",
        choices=PRETRAINING,
        help="named model with settings, which options override: "
        + "; ".join(f"{name}, {x.text}" for name, x in PRETRAINING.items()),
    )
    parser.add_argument(
        "--training",
        metavar="FILE",
        help="JSON or YAML file of settings; options override the file",
    )
    add_print_config(parser)
    group = parser.add_argument_group("further settings")
    add_options(group, PretrainingSettings, skip=FREQUENT)
    return command_line.parse(parser, argv)


def read_settings(options):
    """Make PretrainingSettings from options, a settings file and a recipe.

    Args:
        options: argparse.Namespace of `parse_arguments`.

    Raises:
        ValueError: if records, output or the number of steps are missing, or if
            a value is wrong.
    """
    given = given_options(PretrainingSettings, options)
    if options.training:
        file = read_file(PretrainingSettings, options.training)
        # --print-config writes null for missing values.
        given = {k: v for k, v in file.items() if v is not None} | given
    recipe = {}
    if options.recipe:
        recipe = dict(PRETRAINING[options.recipe].settings)
        fields = recipe.pop("set")
        if "config" in given or "preset" in given:  # not the recipe's model
            del recipe["config"]
        else:
            given["set"] = [*fields, *given.get("set", ())]
    steps = given.get("steps")
    if isinstance(steps, int) and 0 < steps <= recipe.get("warmup_steps", 0):
        # The recipe's warm-up is too long for so few steps. The default is a
        # share of the steps.
        del recipe["warmup_steps"]
    settings = PretrainingSettings(**{**recipe, **given})
    if settings.config is not None:
        check_config(settings.config)
    if options.print_config:
        return settings
    settings.require("records", "output")
    if "steps" not in {**recipe, **given}:
        raise ValueError(
            "the number of optimizer steps is not known: give --steps N, or "
            "--recipe, or --training with a file that sets it."
        )
    return settings


def main(argv=None):
    """Run the command; see the module's docstring."""
    options = parse_arguments(argv)
    settings = read_settings(options)
    if options.print_config:
        sys.stdout.write(settings.to_yaml())
        return 0
    if settings.preset and settings.config:
        command_line.print_notes(
            "warning: --preset has a config of its own; --config "
            f"{settings.config} is not used"
        )
    check_tracker(settings.log_to)
    check_directory(settings.output)
    if settings.export:
        check_directory(settings.export)
    begun = time.monotonic()  # --time-limit counts from here
    keep_programs(settings.compilation_cache)
    check_backend("pretraining")
    from xlnet_tf.training.backends import opened_backend
    from xlnet_tf.training.pretrain import pretrain

    with opened_backend(settings) as backend:
        return pretrain(settings, backend, export, begun)


def export(model, tokenizer, directory, sequence_length):
    """Write a model as a SavedModel; replace an existing SavedModel."""
    from saved_models.export import export_model

    export_model(
        model,
        tokenizer,
        directory,
        sequence_length=sequence_length,
        overwrite=True,
    )


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
