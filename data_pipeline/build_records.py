"""Text -> record shards: `python -m data_pipeline.build_records`.

This module only reads options; see `data_pipeline.records.build`.
"""

import argparse
import os
import sys

from data_pipeline import command_line
from data_pipeline.records import schema
from data_pipeline.settings import add_options
from data_pipeline.settings import given_options
from data_pipeline.text.documents import TEXT_FORMATS
from data_pipeline.text.documents import find_files

_LOG_SECONDS = 30.0
_UNKNOWN_WARNING = 0.01


def main(argv=None):
    """Build a set of records from the command line.

    Args:
        argv: list of str, or None for `sys.argv`.

    Returns:
        int, the exit status.
    """
    parser = _parser()
    arguments, beam_options = parser.parse_known_args(argv)
    if beam_options and arguments.runner is None:
        parser.error(f"unrecognized arguments: {' '.join(beam_options)}")

    from data_pipeline.records import build
    from data_pipeline.records.manifest import MANIFEST
    from data_pipeline.tokenization.tokenizer import Tokenizer

    tokenizer = Tokenizer(arguments.tokenizer, lowercase=arguments.lowercase)
    settings = read_settings(arguments)
    size = sum(map(os.path.getsize, find_files(arguments.input)))
    was_complete = not arguments.overwrite and os.path.exists(
        os.path.join(arguments.output, MANIFEST)
    )
    common = {
        "settings": settings,
        "text_format": arguments.text_format,
        "encoding": arguments.encoding,
        "overwrite": arguments.overwrite,
    }
    inputs = (arguments.input, tokenizer, arguments.output)
    if arguments.runner is None:
        import tqdm

        is_terminal = sys.stderr.isatty()
        with tqdm.tqdm(
            total=size,
            unit="B",
            unit_scale=True,
            desc="text done",
            # In a log, a line from time to time, and none of short builds.
            mininterval=0.1 if is_terminal else _LOG_SECONDS,
            delay=0 if is_terminal else _LOG_SECONDS,
        ) as bar:
            manifest = build.build_records(
                *inputs,
                **common,
                processes=arguments.processes,
                progress=bar.update,
            )
    else:
        from data_pipeline.records import beam

        manifest = beam.build_records(
            *inputs, **common, runner=arguments.runner, options=beam_options
        )
    sys.stdout.write(_summary(manifest, arguments.output, was_complete))
    return 0


def read_settings(arguments):
    """RecordSettings from file and options of a command; options win."""
    from data_pipeline.records import restart

    if arguments.settings is None:
        return schema.RecordSettings.read(None, arguments)
    if os.path.basename(arguments.settings) != restart.PLAN:
        return schema.RecordSettings.read(arguments.settings, arguments)
    # Beside settings, the plan of a set holds its input and tokenizer.
    plan = restart.read_plan(os.path.dirname(arguments.settings) or ".")
    if plan is None:
        raise FileNotFoundError(
            f"{arguments.settings} is not the plan of a set of records."
        )
    given = given_options(schema.RecordSettings, plan)
    return schema.RecordSettings.read(None, arguments, **given)


def _available_cores():
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _summary(manifest, output, was_complete):
    totals = manifest.totals
    counts = ", ".join(
        f"{manifest.num_records(split):,} {split} records in {len(shards)} "
        "shard(s)"
        for split, shards in manifest.splits.items()
    )
    share = totals["unknown_tokens"] / max(1, totals["tokens"])
    text = (
        f"{totals['documents']:,} documents, {totals['characters']:,} "
        f"characters, {totals['tokens']:,} tokens\n"
        f"{counts} of {manifest.sequence_length} tokens, "
        f"{manifest.num_predict} predicted\n"
        f"{share:.2%} of the tokens are unknown\n"
    )
    if share > _UNKNOWN_WARNING:
        text += (
            "warning: more than 1 % of the tokens are unknown to the "
            "tokenizer. Is it made for this language and script, and is "
            "--encoding right?\n"
        )
    if was_complete:
        return text + f"{output} was complete already\n"
    return text + f"wrote {output}\n"


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.build_records",
        description="Build records for pretraining from text.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", required=True, help="text files: a path or a quoted glob")
    add("--tokenizer", required=True, help="SentencePiece model, spiece.model")
    add("--output", required=True, help="directory of the set of records")
    add(
        "--settings",
        metavar="FILE",
        help="JSON or YAML file with any of the settings below, or the "
        "build.json of another set; options win over the file",
    )
    _add_text_options(add)
    add_options(parser.add_argument_group("settings"), schema.RecordSettings)
    return parser


def _add_text_options(add):
    add(
        "--text-format",
        choices=TEXT_FORMATS,
        default="auto",
        help="sentences: one per line, a blank line ends a document; running: "
        'a file is a document; jsonl: {"text": ...} per line',
    )
    add("--encoding", default="utf-8", help="of the text files")
    add("--lowercase", action="store_true", help="for an uncased vocabulary")
    add(
        "--processes",
        type=int,
        default=_available_cores(),
        help="default all cores; the output does not depend on it",
    )
    add(
        "--runner",
        help="build on Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, "
        "SparkRunner; options not listed here are passed to Beam",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace a complete set, or restart an interrupted build",
    )


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
