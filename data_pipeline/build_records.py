"""Text -> record shards: `python -m data_pipeline.build_records`.

The work itself is in `data_pipeline.records.build`.
"""

import argparse
import dataclasses
import os
import sys

from data_pipeline import command_line
from data_pipeline import progress
from data_pipeline.records import schema as features
from data_pipeline.text import documents as text_files

_UNKNOWN_WARNING = 0.01


def main(argv=None):
    """Builds a set of records from the command line.

    Args:
        argv: list of str, or None for the process's.

    Returns:
        int, the exit status.
    """
    parser = _parser()
    arguments, beam_options = parser.parse_known_args(argv)
    if beam_options and arguments.runner is None:
        parser.error(f"unrecognized arguments: {' '.join(beam_options)}")

    from data_pipeline.records import build as building
    from data_pipeline.records import manifest
    from data_pipeline.records import settings as record_settings
    from data_pipeline.tokenization import tokenizer as tokenizers

    tokenizer = tokenizers.Tokenizer(
        arguments.tokenizer, lowercase=arguments.lowercase
    )
    settings = record_settings.Settings(
        **{
            field.name: getattr(arguments, field.name)
            for field in dataclasses.fields(record_settings.Settings)
            if hasattr(arguments, field.name)
        }
    )
    size = sum(map(os.path.getsize, text_files.find_files(arguments.input)))
    is_there = not arguments.overwrite and os.path.exists(
        os.path.join(arguments.output, manifest.MANIFEST)
    )
    common = {
        "settings": settings,
        "text_format": arguments.text_format,
        "encoding": arguments.encoding,
        "overwrite": arguments.overwrite,
    }
    place = (arguments.input, tokenizer, arguments.output)
    if arguments.runner is None:
        with progress.Progress(size, sys.stderr) as bar:
            made = building.build_records(
                *place,
                **common,
                processes=arguments.processes,
                progress=bar.update,
            )
    else:
        from data_pipeline.records import beam as beam_building

        made = beam_building.build_records(
            *place, **common, runner=arguments.runner, options=beam_options
        )
    sys.stdout.write(_summary(made, arguments.output, is_there))
    return 0


def _available_cores():
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _summary(manifest, output, is_there):
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
    if is_there:
        return text + f"{output} was complete already\n"
    return text + f"wrote {output}\n"


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.build_records",
        description="Turns text into records for pretraining.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", required=True, help="text files: a path or a quoted glob")
    add("--tokenizer", required=True, help="SentencePiece model, spiece.model")
    add("--output", required=True, help="directory to make")
    add("--sequence-length", type=int, default=512, help="tokens of a record")
    add(
        "--reuse-length",
        type=int,
        help="tokens shared with the record before; default half, 0 = none",
    )
    add(
        "--num-predict",
        type=int,
        help="targets of a record; default length / tokens per target",
    )
    add(
        "--tokens-per-target",
        type=int,
        default=6,
        help="predict about 1 token in so many",
    )
    add(
        "--permutation-length",
        type=int,
        help="block that is permuted as a whole; default each half",
    )
    add(
        "--spans",
        choices=features.SPANS,
        default="words",
        help="predict whole words, or subwords as the released code does",
    )
    add(
        "--both-directions",
        action="store_true",
        help="add records that read backwards",
    )
    add(
        "--frozen",
        action="store_true",
        help="draw permutations now and store perm_mask and target_mapping",
    )
    _add_text_options(add)
    return parser


def _add_text_options(add):
    add(
        "--text-format",
        choices=text_files.TEXT_FORMATS,
        default="auto",
        help="sentences: one a line, blank line ends a document; running: a "
        'file is a document; jsonl: {"text": ...} a line',
    )
    add("--encoding", default="utf-8", help="of the text files")
    add("--lowercase", action="store_true", help="for an uncased vocabulary")
    add(
        "--validation-fraction",
        type=float,
        default=0.0,
        help="share of the documents to hold out",
    )
    add("--seed", type=int, default=0, help="of everything random")
    add(
        "--processes",
        type=int,
        default=_available_cores(),
        help="default all cores; the output does not depend on it",
    )
    add(
        "--runner",
        help="build on Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, "
        "SparkRunner; options that are not listed here are Beam's",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace a complete set, or start a stopped build again",
    )


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
