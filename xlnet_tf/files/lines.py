"""Lines of JSON that any reader divides where they end."""

import json

# Ends of lines for `str.splitlines` and for some readers.
_ENDS_OF_LINES = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}


def json_line(value):
    """Write a value as one line of JSON, as readable as UTF-8 allows.

    Args:
        value: dict or list of JSON's types.

    Returns:
        str, with its end. Lone surrogates, which UTF-8 lacks, and the
        characters that some readers take for ends of lines are escaped.
    """
    line = json.dumps(value, ensure_ascii=False).translate(_ENDS_OF_LINES)
    return line.encode(errors="backslashreplace").decode() + "\n"
