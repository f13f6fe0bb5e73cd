"""Pretrains an XLNet: `python -m xlnet_tf.train`.

    python -m xlnet_tf.train --config small --records DIR --output DIR \\
        --steps 1000 --batch-size 32

The output directory holds `checkpoints/`, TensorBoard logs, `metrics.jsonl`,
and at the end `model.keras`, the tokenizer and `preset/` for `from_preset`.
The same command again goes on where the run stopped.
"""

import argparse
import sys

from data_pipeline import command_line


def parse_arguments(argv=None):
    """Options of the command; the rest is in `--training FILE`."""
    parser = argparse.ArgumentParser(
        prog="python -m xlnet_tf.train",
        description="Pretrain an XLNet on records of build_records.",
    )
    add = parser.add_argument
    add(
        "--strategy",
        default="auto",
        help="auto, one_device, mirrored, multi_worker or tpu (default auto)",
    )
    add("--tpu", help='name or grpc:// address of a TPU, or "local"')
    add(
        "--config",
        default="base",
        help="tiny, small, base, large, or an xlnet_config.json",
    )
    add("--records", required=True, help="directory made by build_records")
    add("--eval-records", help="other records to evaluate on")
    add("--output", required=True, help="directory of the run")
    add("--steps", type=int, required=True, help="optimizer steps in all")
    add("--batch-size", type=int, help="sequences of all replicas together")
    add("--learning-rate", type=float, help="peak of the learning rate")
    add(
        "--memory-length",
        type=int,
        help="tokens remembered (default: the config's, or 3/4 of a record)",
    )
    add("--precision", help="float32 or bfloat16 (mixed)")
    add("--seed", type=int, help="of weights, order, permutations, dropout")
    add(
        "--training",
        metavar="FILE",
        help="JSON with any field of TrainingConfig; options given here win",
    )
    add("--preset", help="directory of weights to start from")
    add("--export", metavar="DIR", help="write a SavedModel to DIR/STEP")
    add(
        "--compilation-cache",
        metavar="DIR",
        help="keep what XLA compiles there, for the next start",
    )
    add(
        "--skip-corrupt",
        action="store_true",
        help="count damaged records and leave them out",
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the command; see the module's text."""
    arguments = parse_arguments(argv)
    from xlnet_tf.training.compilation_cache import compilation_cache

    with compilation_cache(arguments.compilation_cache):
        from xlnet_tf.training.pretraining import Run

        with Run(arguments) as run:
            run.announce(sys.stdout.write)
            sys.stdout.flush()  # before the progress, which goes to stderr
            return run.train()


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
