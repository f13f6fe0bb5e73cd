"""Limits on the size of files, checked before memory is allocated for them.

Model files may be untrusted. The limits bound the expansion of a small file by
aliases of YAML, members of archives or nested lists of JSON.
"""

import collections
import io
import re

import yaml

# Nested lists in Python take 24 times the bytes of their JSON: 0.8 GB.
MOST_JSON_BYTES = 2**25
# For files written by hand; a megabyte of YAML takes seconds.
MOST_SETTINGS_BYTES = 2**17
# Values that the merge keys (<<) of a YAML file may copy.
_MOST_MERGED = 10**5
# Depth of nesting in a YAML file.
_MOST_NESTED = 50
# Characters to show of a library's message.
_MOST_SHOWN = 500
# Text compresses to a tenth, a decompression bomb to a thousandth.
_MOST_EXPANSION = 100
_ALWAYS_ALLOWED = 2**26


def check_length(file, size, most):
    """Refuse a file with more bytes than its content needs.

    Args:
        file: path or str, for the message.
        size: int, its bytes.
        most: int.

    Raises:
        ValueError: with both numbers.
    """
    if size > most:
        raise ValueError(
            f"{file} is too long for what it should hold: expected at most "
            f"{most:,} bytes. Received: {size:,} bytes. Fetch the file again."
        )


def in_a_line(error):
    """Return the text of an error on one line, shortened if it is too long.

    Args:
        error: Exception.

    Returns:
        str, without a full stop.
    """
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return _shortened(text)


def first_line(error):
    """Return the first line of the text of an error, shortened if too long.

    The lines below it are traces of TensorFlow and other libraries.

    Args:
        error: Exception, or its text.

    Returns:
        str, with the full stop if there is one; the error's type if the text
        is empty.
    """
    text = str(error).strip() or type(error).__name__
    return _shortened(text.splitlines()[0])


def _shortened(text):
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def shown(value, most=60):
    """Format a value for an error message, as Python writes it.

    Args:
        value: any.
        most: int, characters. Default 60.

    Returns:
        str, which ends with "..." if it is cut.
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Loader(yaml.SafeLoader):
    """Loader of YAML without code, with limits on nesting and merge keys."""

    depth = merged = 0

    def compose_node(self, parent, index):
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise yaml.YAMLError("it is nested too deeply")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node, deep=False):
        if isinstance(node, yaml.MappingNode):
            names = collections.Counter(
                key.value
                for key, _ in node.value
                if isinstance(key, yaml.ScalarNode)
            )
            for name, count in names.items():
                if count > 1 and name != "<<":  # not the merge key
                    raise yaml.YAMLError(f"{name} is there {count} times")
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node):
        super().flatten_mapping(node)
        self.merged += len(node.value)
        if self.merged > _MOST_MERGED:
            raise yaml.YAMLError("its merge keys copy too many values")


# Numbers such as 1e-3, which are text in YAML 1.1.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def parse_yaml(text):
    """Parse YAML text.

    Args:
        text: str or bytes.

    Raises:
        ValueError: if it is not YAML; the message is one line.
    """
    try:
        return yaml.load(text, _Loader)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        # Errors of values that do not match their tag: `!!bool x`.
        AttributeError,
        LookupError,
        TypeError,
        OverflowError,
    ) as error:
        raise ValueError(in_a_line(error)) from error


def most_expanded(stored_bytes, times=_MOST_EXPANSION):
    """Bytes that a compressed file may expand to, int.

    Args:
        stored_bytes: int, before decompression.
        times: int, the factor. Small files may expand to 64 MiB.
    """
    return max(_ALWAYS_ALLOWED, times * stored_bytes)


def check_expansion(name, stored_bytes, expanded_bytes):
    """Refuse a file that expands to far more than its own size.

    Args:
        name: str, of the file.
        stored_bytes: int, before decompression.
        expanded_bytes: int, after decompression.

    Raises:
        ValueError: it expands to 100 times its bytes and more than 64 MiB.
    """
    most = most_expanded(stored_bytes)
    if expanded_bytes > most:
        raise ValueError(
            f"{name} expands to more than {most:,} bytes, {_MOST_EXPANSION} "
            "times its size: it is damaged, or made to fill the memory. If you "
            "trust it, decompress it first."
        )


class WrappedFile(io.RawIOBase):
    """Base of binary files that wrap another file and check its bytes.

    Args:
        file: binary file.
    """

    def __init__(self, file):
        self._file = file

    def readable(self):
        return True

    def seekable(self):
        return self._file.seekable()

    def tell(self):
        return self._file.tell()

    def seek(self, offset, whence=io.SEEK_SET):
        return self._file.seek(offset, whence)
