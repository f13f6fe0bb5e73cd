"""Command `xlnet`, whose subcommands run modules of the project.

`xlnet train ...` is the same as `python -m xlnet_tf train ...`. A subcommand
has the options of its module. `python -m MODULE` with these options does the
same work.
"""

import importlib
import sys

from data_pipeline.base.command_line import print_notes
from data_pipeline.base.suggestions import did_you_mean
from xlnet_tf.version import __version__

# Subcommand -> (module, description), in the order of use.
COMMANDS = {
    "train-tokenizer": (
        "data_pipeline.train_tokenizer",
        "train a SentencePiece model on text",
    ),
    "build-records": (
        "data_pipeline.build_records",
        "turn text into records for pretraining",
    ),
    "inspect": (
        "data_pipeline.inspect",
        "show the contents of records, and verify them",
    ),
    "train": ("xlnet_tf.train", "pretrain a model on records"),
    "finetune": ("xlnet_tf.finetune", "fine-tune a model on a task"),
    "evaluate": ("xlnet_tf.evaluate", "measure a model on text or a task"),
    "generate": ("xlnet_tf.generate", "continue texts"),
    "convert": ("xlnet_tf.convert", "convert weights between formats"),
    "export": ("saved_models.export", "write a SavedModel for TF Serving"),
    "predict": ("saved_models.predict", "run a SavedModel or query a server"),
    "show": ("xlnet_tf.show", "draw masks, attention, memory and curves"),
}


def main(argv=None):
    """Run the subcommand that the first argument names.

    Args:
        argv: list of str, or None (default) for the arguments of the process.

    Returns:
        int, the exit status of the subcommand, or 2 for an unknown subcommand.
    """
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if name == "--version":
        sys.stdout.write(f"xlnet_tf {__version__}\n")
        return 0
    # Accept the names of modules too, such as build_records.
    name = name.replace("_", "-")
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or "."
        print_notes(
            f"error: there is no command {name[:80]}{hint} "
            "xlnet --help lists them."
        )
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    sys.argv = [f"xlnet {name}", *arguments]
    return module.command()


def _help():
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:{width}}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: xlnet COMMAND [options]",
            "",
            "XLNet for TensorFlow and Keras 3: pretrain, fine-tune, serve.",
            "",
            *lines,
            "",
            "xlnet COMMAND --help explains a command; xlnet --version.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
