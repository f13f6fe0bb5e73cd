"""Command that runs an export in this process, or queries a model server.

    python -m saved_models.predict --model saved_models/demo \\
        --text 'The <mask> is open.'
    python -m saved_models.predict --model saved_models/reviews \\
        --file reviews.csv --columns text=review
    python -m saved_models.predict --model saved_models/squad \\
        --inputs questions.jsonl   # {"question": "Who?", "context": "She."}
    python -m saved_models.predict --url http://HOST:8501/v1/models/demo ...
    python -m saved_models.predict --url grpc://HOST:8500 --name demo ...

The command prints a JSON object for each row, with the row's inputs and
outputs. An output replaces an input of the same name. The object of a refused
row has the key `error`. The exit status is 1 if a row is refused.
"""

import math
import sys

import numpy as np

from data_pipeline.base import command_line
from data_pipeline.base.files import json_line
from data_pipeline.base.progress import track
from data_pipeline.tasks.table import is_json_lines
from data_pipeline.tasks.table import is_table
from data_pipeline.tasks.task_data import tell_guess
from saved_models.client.client import connect
from saved_models.client.client import inputs_of
from saved_models.client.local import add_trust_options
from saved_models.client.rows import ask_rows
from saved_models.client.rows import check_rows
from saved_models.client.rows import read_json_lines
from saved_models.client.rows import read_lines_or_table
from saved_models.client.rows import read_texts
from saved_models.loading import load

_DIGITS = 6  # after the decimal point
_MASK = "<mask>"  # a blank in a text
_TIMEOUT = 30.0  # seconds
_OF_SERVERS = ("--name", "--timeout", "--ca-file", "--header")
_MOST_SHOWN = 60  # maximum characters of a text in a warning


def fill(text, candidates, blank=_MASK):
    """Fill each blank of a text with one piece.

    Args:
        text: str with blanks.
        candidates: list of str, one piece for each blank. U+2581, which marks
            the beginning of a word, becomes a space.
        blank: str, mark of a blank. Default "<mask>".

    Returns:
        str.
    """
    parts = text.split(blank)
    filled = parts[0]
    # Blanks beyond the model's length have no candidates, and stay unchanged.
    missing = len(parts) - 1 - len(candidates)
    candidates = [*candidates, *[blank] * missing]
    for piece, part in zip(candidates, parts[1:], strict=True):
        word = piece.replace("\u2581", " ")
        if filled.endswith(" ") or not filled:
            word = word.removeprefix(" ")
        filled += word + part
    return filled


def as_line(row, answer):
    """Format a row and its answer as one line of JSON.

    Args:
        row: dict of the inputs as JSON values, or None for a blank line.
        answer: a ValueError for a blank line or a refused row, else a dict from
            output name to NumPy array or scalar; see `ask_rows`.

    Returns:
        str, one line with a newline.
    """
    if isinstance(answer, ValueError):
        return json_line({**(row or {}), "error": str(answer)})
    count = answer.get("count")
    if count is not None:
        # Further values are padding to the longest row of the batch.
        answer = {
            name: value[:count] if np.ndim(value) else value
            for name, value in answer.items()
        }
    values = {name: _as_json(value) for name, value in answer.items()}
    if "pieces" in values:
        pieces = values["pieces"]
        values = {
            "filled": fill(row["text"], [blank[0] for blank in pieces]),
            "candidates": pieces,
            "log_probabilities": values["log_probabilities"],
        }
    return json_line({**row, **values})


def _as_json(value):
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, float):  # JSON has neither NaN nor infinity
        return round(value, _DIGITS) if math.isfinite(value) else None
    return value


def parse_arguments(argv=None):
    """Parse the options of the command."""
    parser = command_line.Parser(
        prog="python -m saved_models.predict",
        description="Run an exported model; prints one JSON object per row.",
    )
    add = parser.add_argument
    add("--model", help="NAME, or NAME/VERSION, of an export")
    add(
        "--url",
        help="http://HOST:8501/v1/models/NAME or grpc://HOST:8500; https:// "
        "and grpcs:// with TLS",
    )
    add("--name", help="name of the model on a grpc:// server")
    add(
        "--timeout",
        type=float,
        help="time limit for a server, in seconds (default: 30)",
    )
    add(
        "--ca-file",
        metavar="FILE",
        help="file of trusted certificates, for https:// or grpcs://",
    )
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="header of each request, such as authorization; @FILE reads "
        "headers from the lines of a file, which hides them from process "
        "lists; may be repeated",
    )
    add("--text", action="append", default=[], help="a text; may be repeated")
    add(
        "--file",
        help="texts, one per line, or a table (.csv, .tsv, .jsonl, .parquet) "
        "with a column of texts",
    )
    add("--columns", help='column of a table that has the texts: "text=review"')
    add(
        "--inputs",
        metavar="FILE",
        help="JSON lines, each an object with the signature's inputs by name",
    )
    add(
        "--signature",
        default="serving_default",
        help="signature to run (default: serving_default)",
    )
    add(
        "--batch-size",
        type=int,
        default=32,
        help="rows per batch (default: 32)",
    )
    add_trust_options(parser)
    command_line.add_quiet(parser)
    return command_line.parse(parser, argv, ("header", "text"))


def _read_rows(arguments):
    """Read the rows: a list of rows and a list of the rows' places."""
    texts = list(arguments.text)
    if arguments.inputs and (texts or arguments.file):
        raise ValueError("give either --inputs, or --text and --file.")
    if arguments.columns and not arguments.file:
        raise ValueError("--columns needs --file, which is not given.")
    if arguments.inputs:
        if is_table(arguments.inputs) and not is_json_lines(arguments.inputs):
            raise ValueError(
                "`--inputs` takes JSON lines, not compressed, each an object "
                "with the inputs of a row; give a table to --file, which reads "
                f"its column of texts. Received: --inputs {arguments.inputs}."
            )
        rows, places = read_json_lines(arguments.inputs)
    else:
        places = [f"text {number}" for number in range(1, len(texts) + 1)]
        if file := arguments.file:
            with command_line.warnings_in_a_line():
                found, guessed = read_lines_or_table(file, arguments.columns)
            tell_guess(guessed)
            unit = "text" if is_table(file) else "line"
            places += [f"{file}, {unit} {i + 1}" for i in range(len(found))]
            texts += found
        rows = [{"text": text} for text in texts]
    if not rows:
        raise ValueError(_why_nothing(arguments))
    return rows, places


def _why_nothing(arguments):
    """Make the message about a request without rows."""
    file = arguments.file or arguments.inputs
    if not file:
        return "there is nothing to ask: give --text or --file, or --inputs."
    found = "lines that are blank, or none"
    if arguments.file and is_table(file):  # a table has at least a header
        found = "a header and no rows"
    return f"there is nothing to ask: {file} has {found}."


def _headers(given):
    """Parse the values of `--header`: dict from header name to header value."""
    lines = []
    for text in given:
        is_file = text.startswith("@")
        lines += filter(str.strip, read_texts(text[1:])) if is_file else [text]
    headers = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or not name.strip():
            # The message must not show the line, which may be a secret.
            raise ValueError("`--header` must be NAME:VALUE.")
        headers[name.strip()] = value.strip()
    return headers


def _check_place(arguments):
    """Refuse options that do not fit `--model` or `--url`."""
    if bool(arguments.model) == bool(arguments.url):
        raise ValueError("give either --model or --url.")
    for option in _OF_SERVERS:
        value = getattr(arguments, option.strip("-").replace("-", "_"))
        if arguments.model and value not in (None, []):
            raise ValueError(
                f"{option} is for a model on a server: give --url, not --model."
            )
    for option, is_given in (
        ("--trust", arguments.trust),
        ("--no-verify", not arguments.verify),
    ):
        if arguments.url and is_given:
            raise ValueError(
                f"{option} is for an export in files: give --model, not --url."
            )


def main(argv=None):
    """Run the command; see the module's docstring."""
    arguments = parse_arguments(argv)
    rows, places = _read_rows(arguments)
    _check_place(arguments)
    if arguments.url:
        timeout = arguments.timeout
        export = connect(
            arguments.url,
            arguments.name,
            _TIMEOUT if timeout is None else timeout,
            ca_file=arguments.ca_file,
            headers=_headers(arguments.header),
        )
    else:
        export = load(arguments.model, arguments.verify, arguments.trust)
    signature = arguments.signature
    signatures = export.signatures()
    takes = inputs_of(signatures, signature)
    if not arguments.inputs and list(takes) != ["text"]:
        raise ValueError(
            f"the signature {signature!r} takes {', '.join(takes)}, not text "
            "alone: give --inputs."
        )
    check_rows(rows, places, signatures, signature)
    answers = ask_rows(export, rows, signature, arguments.batch_size, places)
    # On a terminal the output lines already show the progress.
    shown = not (arguments.quiet or sys.stdout.isatty())
    answers = track(answers, "asking", "rows", len(rows), shown=shown)
    unfilled, failed = [], 0
    for row, answer in zip(rows, answers, strict=True):
        sys.stdout.write(as_line(row, answer))
        if isinstance(answer, ValueError):
            failed += 1
        elif "pieces" in answer and _MASK not in row["text"]:
            unfilled.append(row["text"])
    if unfilled:
        command_line.print_notes(_without_blanks(unfilled))
    if failed:
        command_line.print_notes(
            f"error: {failed} of {len(rows)} rows have no answer; see `error` "
            "in their lines."
        )
    return int(bool(failed))


def _without_blanks(texts):
    """Make the warning about texts without a blank."""
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return (
        f"warning: a text must have a blank, {_MASK}, to be filled in. "
        f"Received: {texts[0][:_MOST_SHOWN]!r}{more}."
    )


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
