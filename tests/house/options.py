"""Options of the commands, as `tests/golden/options.json` keeps them.

    python -m tests.house.options

writes that file anew, where an option was added on purpose.
"""

import argparse
import importlib
import json
import pathlib
import unittest.mock

FILE = pathlib.Path(__file__).parents[1] / "golden" / "options.json"
COMMANDS = (
    "data_pipeline.build_records",
    "data_pipeline.inspect",
    "data_pipeline.train_tokenizer",
    "saved_models.export",
    "saved_models.predict",
    "xlnet_tf.convert",
    "xlnet_tf.evaluate",
    "xlnet_tf.finetune",
    "xlnet_tf.generate",
    "xlnet_tf.show",
    "xlnet_tf.train",
)


class _Parsing(Exception):
    """Raised in place of parsing; holds the parser."""


def parser(command):
    """The argparse.ArgumentParser of a command, by starting its `main`."""

    def stop(self, *arguments, **keywords):
        raise _Parsing(self)

    main = importlib.import_module(command).main
    with unittest.mock.patch.multiple(
        argparse.ArgumentParser, parse_args=stop, parse_known_args=stop
    ):
        try:
            main([])
        except _Parsing as found:
            return found.args[0]
    raise RuntimeError(f"{command} parsed nothing")


def options():
    """dict of command to dict of option to what it takes.

    That is "flag", "value" or the choices; "required" comes behind.
    """
    return {
        command: dict(sorted(_options_of(parser(command)).items()))
        for command in COMMANDS
    }


def _options_of(parser, prefix=""):
    """Those of subcommands have its name before them."""
    found = {}
    for action in parser._actions:
        takes = "flag" if action.nargs == 0 else "value"
        if action.choices:
            takes = "|".join(map(str, action.choices))
        if action.required:
            takes += ", required"
        for name in action.option_strings or [action.dest]:
            found[prefix + name] = takes
        if isinstance(action, argparse._SubParsersAction):
            for name, subcommand in action.choices.items():
                found |= _options_of(subcommand, f"{name} ")
    return found


def main():
    """Write the file."""
    FILE.write_text(json.dumps(options(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
