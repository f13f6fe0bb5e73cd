"""Limits on file sizes, checked before memory is allocated.

Model files may come from untrusted sources. A small file may expand to a huge
value through YAML aliases, archive members or nested JSON lists. The limits
bound this expansion.
"""

import collections
import io
import re

import yaml

# Nested lists take 24 times the bytes of their JSON text in memory: 0.8 GB.
MOST_JSON_BYTES = 2**25
# For lists that a build of records writes itself, with an entry for each file.
MOST_LIST_BYTES = 2**30
# Settings are short files, written by hand. Parsing a megabyte of YAML takes
# seconds.
MOST_SETTINGS_BYTES = 2**17
# Largest number of values that the merge keys (<<) of a YAML file may copy.
_MOST_MERGED = 10**5
# Largest depth of nesting in a YAML file.
_MOST_NESTED = 50
# Number of characters of a library's message to show.
_MOST_SHOWN = 500
# Compressed text has a tenth of its size, a decompression bomb a thousandth.
_MOST_EXPANSION = 100
_ALWAYS_ALLOWED = 2**26


def check_length(file, size, most):
    """Refuse a file that is longer than a limit.

    Args:
        file: path or str, for the message.
        size: int, length of the file in bytes.
        most: int, the limit in bytes.

    Raises:
        ValueError: `size` is above `most`. The message gives both numbers.
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
        str, without a full stop at the end.
    """
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return _shortened(text)


def first_line(error):
    """Return the first line of an error's text, shortened if it is too long.

    The lines after the first line are omitted: TensorFlow and other libraries
    put stack traces there.

    Args:
        error: Exception, or its text.

    Returns:
        str. A full stop at the end stays. If the text is empty, the name of the
        error's type.
    """
    text = str(error).strip() or type(error).__name__
    return _shortened(text.splitlines()[0])


def _shortened(text):
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def shown(value, most=60):
    """Format a value with `repr` for an error message; shorten a long text.

    Args:
        value: any object.
        most: int, largest number of characters. Default 60.

    Returns:
        str. It ends with "..." if it is shortened.
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Loader(yaml.SafeLoader):
    """Safe YAML loader with limits on nesting and on merge keys."""

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


# YAML 1.1 reads numbers such as 1e-3 as text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def parse_yaml(text):
    """Parse YAML text from an untrusted source.

    Args:
        text: str or bytes.

    Raises:
        ValueError: the text is not valid YAML. The message has one line.
    """
    try:
        return yaml.load(text, _Loader)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        # PyYAML raises these errors if a value does not match its tag, such as
        # `!!bool x`.
        AttributeError,
        LookupError,
        TypeError,
        OverflowError,
    ) as error:
        raise ValueError(in_a_line(error)) from error


def most_expanded(stored_bytes, times=_MOST_EXPANSION):
    """Largest size in bytes that a compressed file may expand to, int.

    Args:
        stored_bytes: int, size before decompression.
        times: int, the allowed ratio of the expanded size to the stored size.
            Every file may expand to 64 MiB, even above this ratio.
    """
    return max(_ALWAYS_ALLOWED, times * stored_bytes)


def check_expansion(name, stored_bytes, expanded_bytes):
    """Refuse a file that expands to far more than its own size.

    Args:
        name: str, name of the file.
        stored_bytes: int, size before decompression.
        expanded_bytes: int, size after decompression.

    Raises:
        ValueError: the file expands to more than 100 times its own size and to
            more than 64 MiB.
    """
    most = most_expanded(stored_bytes)
    if expanded_bytes > most:
        raise ValueError(
            f"{name} expands to more than {most:,} bytes, {_MOST_EXPANSION} "
            "times its size: it is damaged, or made to fill the memory. If you "
            "trust it, decompress it first."
        )


class WrappedFile(io.RawIOBase):
    """Base class of binary files that read and check another file's bytes.

    Args:
        file: binary file to read.
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
