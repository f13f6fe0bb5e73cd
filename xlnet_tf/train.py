"""Pretrain an XLNet: `python -m xlnet_tf.train`.

    python -m xlnet_tf.train --config small --records DIR --output DIR \\
        --steps 1000 --batch-size 32

The output directory holds `checkpoints/`, TensorBoard logs, `metrics.jsonl`,
`training.json` for `--training`, and at the end `model.keras`, the tokenizer
and `preset/` for `from_preset`. The same command again resumes a stopped run.
"""

import dataclasses
import shlex
import sys
import time

from data_pipeline.base import command_line
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import add_print_config
from data_pipeline.base.settings import read_file
from xlnet_tf.training.recipes import PRETRAINING
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.startup import check_backend
from xlnet_tf.training.startup import check_config
from xlnet_tf.training.startup import check_strategy
from xlnet_tf.training.startup import keep_freed_memory
from xlnet_tf.training.startup import keep_programs
from xlnet_tf.training.trackers import check_tracker

FREQUENT = ("steps", "batch_size", "learning_rate", "precision", "seed")
FURTHER = tuple(
    field.name
    for field in dataclasses.fields(PretrainingSettings)
    if field.name not in FREQUENT
)
_RECORDS = (
    "output of build_records; several sets are mixed, in the shares of "
    "DIR=WEIGHT or of their sizes"
)
# The command has no default number of steps, unlike PretrainingSettings.
_DEFAULTS = {"steps": "required, unless --recipe or --training sets it"}
# Options of build_records that users may look for here.
_OF_RECORDS = dict.fromkeys(
    ("--sequence-length", "--tokenizer", "--lowercase", "--input"),
    "set when records are built, see build_records",
)


def parse_arguments(argv=None):
    """Options of the command, with a field of PretrainingSettings each."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.train",
        usage="%(prog)s --records DIR --output DIR --steps N [options]",
        description="Pretrain an XLNet or a BERT on records.",
    )
    parser.elsewhere = _OF_RECORDS
    add = parser.add_argument
    add("--records", required=True, nargs="+", metavar="DIR", help=_RECORDS)
    add("--output", required=True, metavar="DIR", help="directory of the run")
    add(
        "--recipe",
        choices=PRETRAINING,
        help="model and settings by name; other options override it: "
        + "; ".join(f"{name}, {x.text}" for name, x in PRETRAINING.items()),
    )
    add(
        "--config",
        help="tiny, small, base, large, or an xlnet_config.json (default: the "
        "recipe's, or base)",
    )
    add(
        "--backbone",
        choices=("xlnet", "bert"),
        default="xlnet",
        help="architecture of a named --config: xlnet, or bert (absolute "
        "positions, no memory) (default xlnet)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field of the model's config, as num_layers=6; may be repeated",
    )
    add("--preset", metavar="DIR", help="directory of weights to start from")
    add_options(parser, PretrainingSettings, skip=FURTHER, defaults=_DEFAULTS)
    add(
        "--memory-length",
        type=int,
        metavar="N",
        help="tokens to remember (default: the config's, or 3/4 of a record)",
    )
    _add_reading(add)
    add("--export", metavar="DIR", help="write SavedModels to DIR/STEP")
    add(
        "--strategy",
        default="auto",
        help="auto, one_device, mirrored, multi_worker or tpu (default auto)",
    )
    add("--tpu", help='name or grpc:// address of a TPU, or "local"')
    add(
        "--training",
        metavar="FILE",
        help="JSON or YAML file with any of the settings; options override it",
    )
    add_print_config(parser)
    command_line.add_quiet(parser)
    group = parser.add_argument_group("further settings")
    add_options(group, PretrainingSettings, skip=FREQUENT)
    group.add_argument(
        "--compilation-cache",
        metavar="DIR",
        help="keep programs that XLA has compiled, for the next start",
    )
    return command_line.parse(parser, argv)


def _add_reading(add):
    """Options of which records are read, and by whom."""
    add("--eval-records", metavar="DIR", help="other records to evaluate on")
    add("--skip-corrupt", action="store_true", help="leave out damaged records")
    add(
        "--data-service",
        metavar="ADDRESS",
        help="grpc://HOST:PORT of a tf.data service whose workers read the "
        "records, under the same path",
    )


def read_config(options):
    """PretrainingSettings of options, file and recipe; completes the options.

    Args:
        options: argparse.Namespace of `parse_arguments`; `config` and `set`
            become those of the recipe where they are not given.

    Raises:
        ValueError: if the number of steps is nowhere, or a value is wrong.
    """
    check_strategy(options.strategy)
    if options.preset and options.config:
        sys.stderr.write(
            "warning: --preset has a config of its own; --config "
            f"{options.config} is not used\n"
        )
    if options.config is not None:
        check_config(options.config)
    recipe = PRETRAINING.get(options.recipe)
    training = recipe.training if recipe else {}
    if recipe and options.config is None and not options.preset:
        options.config = recipe.config
        fields = (f"{name}={value}" for name, value in recipe.fields.items())
        options.set = [*fields, *options.set]
    options.config = options.config or "base"
    given = dict(training)
    if options.training:
        given |= read_file(PretrainingSettings, options.training)
    is_given = "steps" in given or options.steps is not None
    if not is_given and not options.print_config:
        # Reports other errors.
        PretrainingSettings.read(options.training, options)
        raise ValueError(
            "the number of optimizer steps is not known: give --steps N, or "
            "--recipe, or --training with a file that sets it."
        )
    steps = options.steps or given.get("steps", 0)
    is_number = isinstance(steps, int)  # if not, `read` says so
    if is_number and 0 < steps <= training.get("warmup_steps", 0):
        # The recipe's warm-up is for far more steps: use the default share.
        training = {k: v for k, v in training.items() if k != "warmup_steps"}
    return PretrainingSettings.read(options.training, options, **training)


def main(argv=None):
    """Run the command; see the module's text."""
    options = parse_arguments(argv)
    config = read_config(options)
    if options.print_config:
        sys.stdout.write(_model_options(options) + config.to_yaml())
        return 0
    check_tracker(config.log_to)
    check_directory(options.output)
    if options.export:
        check_directory(options.export)
    options.begun = time.monotonic()  # --time-limit counts from here
    keep_programs(options.compilation_cache)
    backend_name = check_backend("pretraining", ("tensorflow", "jax"))
    from xlnet_tf.training.pretrain import pretrain

    if backend_name == "jax":
        from xlnet_tf.training.on_jax import Jax

        return pretrain(options, config, Jax(options, config))
    from xlnet_tf.training.devices import make_strategy
    from xlnet_tf.training.on_tensorflow import TensorFlow

    with command_line.warnings_in_a_line():
        strategy = make_strategy(
            options.strategy, options.tpu, config.worker_timeout
        )
    return pretrain(options, config, TensorFlow(strategy), export)


def _model_options(options):
    """Comment with the options of the model, which training settings lack."""
    given = ["--config", options.config]
    if options.preset:
        given = ["--preset", options.preset]
    if options.backbone != "xlnet":
        given += ["--backbone", options.backbone]
    if options.memory_length is not None:
        given += ["--memory-length", str(options.memory_length)]
    for field in options.set:
        given += ["--set", field]
    return f"# Training. The model has its own options: {shlex.join(given)}\n"


def export(model, tokenizer, directory, sequence_length):
    """Write the SavedModel of a model, replacing an existing one."""
    from saved_models.export import export_model

    export_model(
        model,
        tokenizer,
        directory,
        sequence_length=sequence_length,
        overwrite=True,
    )


def command():
    """Entry point of the console script."""
    keep_freed_memory()
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
