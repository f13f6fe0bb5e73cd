"""Options of all commands that read text files."""

from data_pipeline.text.documents import TEXT_FIELD
from data_pipeline.text.documents import TEXT_FORMATS
from data_pipeline.text.lines import BAD_TEXT

# Default values of the options.
TEXT_DEFAULTS = {
    "text_format": "auto",
    "text_field": TEXT_FIELD,
    "encoding": "utf-8",
    "on_bad_text": "refuse",
}


def fill_text_options(arguments, defaults=TEXT_DEFAULTS):
    """Set the options of `add_text_options` that are not given.

    Args:
        arguments: object with the attributes of the command line.
        defaults: mapping of name to value, some of `TEXT_DEFAULTS` (default).
    """
    for name, value in {**TEXT_DEFAULTS, **defaults}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def add_text_options(add):
    """Add options for the format, field and encoding of text, and bad text.

    Options that are not given are None until `fill_text_options`.

    Args:
        add: `add_argument` of a parser or of a group.
    """
    add(
        "--text-format",
        choices=TEXT_FORMATS,
        help="sentences: one per line, a blank line ends a document; running: "
        'a file is a document; jsonl: {"text": ...} per line; csv: a row is a '
        "document (default auto: by the name of the file, or guessed)",
    )
    add(
        "--text-field",
        metavar="NAME",
        help="field of the text in JSON lines, CSV, Parquet and Arrow; a.b is "
        "the field b of a (default text)",
    )
    add(
        "--encoding",
        help="encoding of the text files (default utf-8)",
    )
    add(
        "--on-bad-text",
        choices=BAD_TEXT,
        help="bytes that are not text: refuse stops, replace inserts U+FFFD, "
        "skip omits the line; replace and skip also omit broken lines of JSON, "
        "broken rows and empty files (default refuse)",
    )
