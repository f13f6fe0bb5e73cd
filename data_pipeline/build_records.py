"""Build records from text: `python -m data_pipeline.build_records`.

This module reads the options and prints the results. The build itself is in
`data_pipeline.records.build`.
"""

import argparse
import os
import sys

from data_pipeline.base import command_line
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_object
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.progress import Progress
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import add_print_config
from data_pipeline.base.settings import given_options
from data_pipeline.records import schema
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import describe_bad_text
from data_pipeline.text.files import sizes_of
from data_pipeline.text.options import TEXT_DEFAULTS
from data_pipeline.text.options import add_text_options
from data_pipeline.text.options import fill_text_options
from data_pipeline.tokenization.symbols import UNKNOWN
from data_pipeline.tokenization.symbols import UNKNOWN_ID

_UNKNOWN_WARNING = 0.01
# Difference between requested and real share of held-out records that causes a
# warning.
_FAR_OFF = 0.1


def main(argv=None):
    """Run the command: build a set of records.

    Args:
        argv: list of str, or None for the arguments of the process.

    Returns:
        int, the exit status.
    """
    parser = _parser()
    argv = sys.argv[1:] if argv is None else argv
    if not any(str(x).startswith("--runner") for x in argv):
        parser.refuse_unknown(argv)
    arguments, beam_options = parser.parse_known_args(argv)
    if beam_options and arguments.runner is None:
        parser.error(f"unknown arguments: {' '.join(beam_options)}")
    _take_text_options(arguments)
    if arguments.print_config:
        sys.stdout.write(read_settings(arguments).to_yaml())
        return 0
    command_line.refuse_empty(parser, arguments)
    check_directory(arguments.output)

    from data_pipeline.records import build
    from data_pipeline.records.manifest import MANIFEST
    from data_pipeline.tokenization.hugging_face import find_tokenizer

    tokenizer = find_tokenizer(arguments.tokenizer, arguments.lowercase)
    corpus = Corpus(
        arguments.input,
        arguments.text_format,
        arguments.encoding,
        arguments.on_bad_text,
        arguments.text_field,
    )
    command_line.print_lines(*corpus.notes)
    was_complete = not arguments.overwrite and (
        (as_path(arguments.output) / MANIFEST).exists()
    )
    common = {
        "text": corpus,
        "tokenizer": tokenizer,
        "output": arguments.output,
        "settings": read_settings(arguments),
        "overwrite": arguments.overwrite,
    }
    with command_line.warnings_in_a_line():
        if arguments.runner is None:
            size = sum(sizes_of(corpus.files))
            shown = not arguments.quiet
            with Progress("text", "B", size, shown=shown) as bar:
                manifest = build.build_records(
                    **common,
                    processes=arguments.processes,
                    progress=bar.update,
                )
        else:
            from data_pipeline.records import beam

            manifest = build.build_records(
                **common,
                build_parts=beam.Builder(arguments.runner, beam_options),
            )
    warnings = _warnings(manifest, tokenizer, common["settings"])
    command_line.print_lines(
        *_summary(manifest, warnings, arguments.output, was_complete)
    )
    return 0


def _take_text_options(arguments):
    """Set missing text options from a plan (see `_read_plan`) or defaults."""
    plan = _read_plan(arguments.settings) or {}
    planned = {name: plan[name] for name in TEXT_DEFAULTS if name in plan}
    fill_text_options(arguments, planned)
    if arguments.lowercase is None:
        arguments.lowercase = plan.get("lowercase")


def read_settings(arguments):
    """Make RecordSettings from a file and options; options have precedence."""
    plan = _read_plan(arguments.settings)
    if plan is None:
        return schema.RecordSettings.read(arguments.settings, arguments)
    given = given_options(schema.RecordSettings, plan)
    return schema.RecordSettings.read(None, arguments, **given)


def _read_plan(file):
    """Read a plan as a dict; return None if the file is not a plan.

    A plan, the file `build.json` of a set of records, contains the set's
    settings, input and tokenizer.
    """
    from data_pipeline.records.plan import PLAN

    if file is None or os.path.basename(file) != PLAN:
        return None
    if not as_path(file).is_file():
        raise FileNotFoundError(f"there is no file {file}.")
    verify_checksums(os.path.dirname(file) or ".", [PLAN])
    return read_json_object(file)


def _summary(manifest, warnings, output, was_complete):
    totals = manifest.totals
    counts = ", ".join(
        f"{manifest.num_records(split):,} {split} records in {len(shards)} "
        "shard(s)"
        for split, shards in manifest.splits.items()
    )
    share = totals["unknown_tokens"] / max(1, totals["tokens"])
    ending = (
        f"{output} was complete already" if was_complete else f"wrote {output}"
    )
    return [
        f"{totals['documents']:,} documents, {totals['characters']:,} "
        f"characters, {totals['tokens']:,} tokens",
        f"{counts} of {manifest.sequence_length} tokens, "
        f"{manifest.num_predict} predicted",
        f"{share:.2%} of the tokens are unknown",
        *filter(None, warnings),
        "; ".join([ending, *describe_bad_text(totals)]),
    ]


def _warnings(manifest, tokenizer, settings):
    """List the warnings about a set of records; "" stands for no warning."""
    from data_pipeline.tokenization.cleaning import accents_note

    totals = manifest.totals
    return [
        _unknown_warning(totals, tokenizer),
        accents_note(totals.get("dropped_accents", 0), totals["characters"]),
        _few_targets_warning(manifest),
        _long_sentences_warning(manifest),
        _held_out_warning(manifest, settings.validation_fraction),
    ]


def _unknown_warning(totals, tokenizer):
    """Warning about many unknown tokens, str or ""."""
    written = totals.get("written_unknown", 0)
    tokens_each = tokenizer.encode(UNKNOWN).count(UNKNOWN_ID)
    other_unknown = totals["unknown_tokens"] - written * tokens_each
    if other_unknown > _UNKNOWN_WARNING * totals["tokens"]:
        cause = "Is it made for this language and script, and is --encoding "
        cause += "right?"
        if not tokenizer.lowercase and not _has_capitals(tokenizer):
            cause = "It has no capital letters: give --lowercase."
        return (
            "warning: more than 1 % of the tokens are unknown to the "
            f"tokenizer. {cause}"
        )
    if totals["unknown_tokens"] > _UNKNOWN_WARNING * totals["tokens"]:
        return (
            f"note: the text itself contains {UNKNOWN} {written:,} times, "
            "which gives most of the unknown tokens."
        )
    return ""


def _has_capitals(tokenizer):
    """Whether a piece of a tokenizer has a capital letter, bool.

    Also True if no piece has a cased letter.
    """
    pieces = map(tokenizer.id_to_piece, range(tokenizer.vocabulary_size))
    # Symbols and single bytes, such as <unk> and <0xE4>, are no text.
    letters = "".join(p for p in pieces if not p.startswith("<"))
    return letters.lower() != letters or letters.upper() == letters


def _few_targets_warning(manifest):
    """Warning about records with few targets, str or ""."""
    if "targets" not in manifest.totals:
        return ""
    num_records = sum(map(manifest.num_records, manifest.splits))
    mean = manifest.totals["targets"] / max(1, num_records)
    return (
        f"warning: a record has {mean:.1f} targets on average, and room for "
        f"{manifest.num_predict}: whole words are predicted, and those of "
        "scripts without spaces between words are too long. Build with --spans "
        "subwords, except for the objective causal, which predicts all."
    )


def _long_sentences_warning(manifest):
    """Warning about sentences too long for the segments A and B, str or ""."""
    totals = manifest.totals
    mean = totals["tokens"] / max(1, totals["sentences"])
    room = manifest.sequence_length - manifest.reuse_length - 3
    # Above this limit B follows A in a fifth of the pairs, instead of a half.
    if mean <= 2 * room:
        return ""
    text = (
        f"warning: a sentence has {mean:,.0f} tokens on average, and A and B "
        f"have room for {room:,}: B seldom follows on A, which "
        "next-sentence prediction needs. "
    )
    advice = {
        "sentences": "Divide long lines, or raise --sequence-length.",
        "running": "Few ends of sentences were found: if a line is a sentence, "
        "give --text-format sentences.",
    }.get(
        manifest.text_format,
        "A mark before a capital letter ends a sentence, and few were found.",
    )
    return text + advice


def _held_out_warning(manifest, asked):
    """Warning about far more or less held-out text than requested, or ""."""
    records = {x: manifest.num_records(x) for x in manifest.splits}
    share = records.get("validation", 0) / sum(records.values())
    if abs(share - asked) < _FAR_OFF:
        return ""
    return (
        f"warning: --validation-fraction asks for {asked:.3g} of the text, and "
        f"{share:.2f} of the records are held out, because a document is held "
        "out as a whole. Divide long documents, as by blank lines in text of "
        "sentences, or try another --seed."
    )


def _parser():
    parser = command_line.Parser(
        prog="python -m data_pipeline.build_records",
        description="Build records for pretraining from text.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--input",
        required=True,
        nargs="+",
        metavar="GLOB",
        help="paths or globs of text, JSON lines, CSV, Parquet or Arrow "
        "files, which may be compressed, or of saved data sets; also gs://, "
        "s3://, https:// and hf://datasets/OWNER/NAME/...",
    )
    add(
        "--tokenizer",
        required=True,
        help="SentencePiece model, or directory of a model",
    )
    add("--output", required=True, help="directory of the set of records")
    add(
        "--settings",
        metavar="FILE",
        help="JSON or YAML file with settings, or the build.json of another "
        "set, whose text options then apply too; options override the file",
    )
    add_text_options(add)
    add(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lowercase the text, for an uncased vocabulary",
    )
    add(
        "--processes",
        type=int,
        default=command_line.available_cores(),
        help="number of parallel processes; the output does not depend on it "
        "(default: all cores)",
    )
    add(
        "--runner",
        help="build on Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, "
        "SparkRunner; options not listed here are passed to Beam",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace a complete set and files of the same names, or restart "
        "an interrupted build",
    )
    command_line.add_quiet(parser)
    add_print_config(parser)
    add_options(parser.add_argument_group("settings"), schema.RecordSettings)
    return parser


def command():
    """Entry point of the console script of this module."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
