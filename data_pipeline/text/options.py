"""Command-line options of all commands that read text files."""

from data_pipeline.text.documents import TEXT_FIELD
from data_pipeline.text.documents import TEXT_FORMATS
from data_pipeline.text.lines import BAD_TEXT

# Default values of the text options.
TEXT_DEFAULTS = {
    "text_format": "auto",
    "text_field": TEXT_FIELD,
    "encoding": "utf-8",
    "on_bad_text": "refuse",
}


def fill_text_options(arguments, defaults=TEXT_DEFAULTS):
    """Replace text options that are None by their default values.

    Args:
        arguments: object with the options as attributes. Changed in place.
        defaults: dict of option names to values. If an option is missing, its
            value in `TEXT_DEFAULTS` is used. Default: `TEXT_DEFAULTS`.
    """
    for name, value in {**TEXT_DEFAULTS, **defaults}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def add_text_options(add):
    """Add the text options: format, field, encoding, treatment of bad text.

    An option that is not given is None until `fill_text_options` is called.

    Args:
        add: method `add_argument` of a parser or of an argument group.
    """
    add(
        "--text-format",
        choices=TEXT_FORMATS,
        help="sentences: one per line, a blank line ends a document; running: "
        'a file is a document; jsonl: {"text": ...} per line; csv: a row is a '
        "document (default auto: by the file's name, or guessed)",
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
        "skip skips the line; replace and skip also skip broken lines of JSON, "
        "broken rows and empty files (default refuse)",
    )
