"""The log of TensorFlow's C++ code, which a command's user cannot act on."""

import ctypes
import os
import pathlib
import re
import sys

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LIBRARY = "libtensorflow_framework.so.2"
_OPTIONS = "include/absl/base/options.h"


def is_command():
    """Whether one of our commands is starting, not somebody's own program."""
    return bool(sys.argv) and (
        sys.argv[0] == "-m"
        or os.path.basename(sys.argv[0]).startswith("xlnet-")
    )


def set_level():
    """Silences the log, unless the user chose a level.

    To be called before TensorFlow is imported, which reads the variable then.
    `xlnet_tf/__init__.py` does the same, for it is imported before our code.
    """
    os.environ.setdefault(LEVEL, "3")


def apply_to_abseil():
    """Applies the level to what TensorFlow logs through Abseil, too.

    There the variable has no effect (TensorFlow 2.20), so that the first
    program that XLA compiles is announced, and Python has no function for it.
    Where the library has no such symbol, or TensorFlow is not loaded, nothing
    is done.
    """
    tensorflow = sys.modules.get("tensorflow")
    level = os.environ.get(LEVEL, "")
    if tensorflow is None or level not in ("1", "2", "3"):
        return
    directory = pathlib.Path(tensorflow.__file__).parent
    try:
        options = (directory / _OPTIONS).read_text(encoding="utf-8")
        library = ctypes.CDLL(str(directory / _LIBRARY))
    except OSError:  # another system's names, or no headers
        return
    namespace = re.search(
        r"define ABSL_OPTION_INLINE_NAMESPACE_NAME (\w+)", options
    )
    if namespace is None:
        return
    # absl::NAMESPACE::SetMinLogLevel(absl::NAMESPACE::LogSeverityAtLeast)
    name = namespace[1]
    symbol = (
        f"_ZN4absl{len(name)}{name}14SetMinLogLevelENS0_18LogSeverityAtLeastE"
    )
    if hasattr(library, symbol):
        getattr(library, symbol)(int(level))
