"""Running commands: exit status, one-line errors, signals, warnings."""

import contextlib
import errno
import os
import signal
import sys
import warnings


def run(main, argv=None):
    """Run `main(argv)` and print an error of the user in one line.

    Errors of the user are `ValueError`, `TypeError`, `OSError` and
    `RuntimeError`. Any other exception is a bug and keeps its traceback.

    Args:
        main: function of a list of str, or None for `sys.argv`, that returns
            an exit status or None.
        argv: list of str, default None.

    Returns:
        int, the exit status: 0 success, 1 error of the user, 130 stopped by
        Ctrl-C, 143 stopped by SIGTERM.
    """
    # The log level of TensorFlow's C++ code, read at its import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    terminated = False

    def stop(signal_number, frame):
        # Unwind as for Ctrl-C, so that `with` and `finally` remove unfinished
        # files.
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: a test, or a notebook
        pass
    try:
        return main(argv) or 0
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 143 if terminated else 130
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        sys.stderr.write(f"error: {_message(error)}\n")
        return 1


def parse(parser, argv=None, may_be_empty=()):
    """Options of a command, without empty ones.

    Args:
        parser: argparse.ArgumentParser.
        argv: list of str, default None for those of the process.
        may_be_empty: names of options that hold text, which may be "".

    Returns:
        argparse.Namespace.
    """
    options = parser.parse_args(argv)
    refuse_empty(parser, options, may_be_empty)
    return options


def refuse_empty(parser, options, may_be_empty=()):
    """End with a usage error if an option is empty, as unset variables are.

    Args:
        parser, may_be_empty: see `parse`.
        options: argparse.Namespace.
    """
    for name, value in vars(options).items():
        values = value if isinstance(value, list) else [value]
        if name not in may_be_empty and any(
            isinstance(x, str) and not x.strip() for x in values
        ):
            parser.error(
                f"argument {name.replace('_', '-')}: must not be empty; leave "
                "it out, or give a value"
            )


@contextlib.contextmanager
def warnings_in_a_line():
    """Context manager that prints warnings in one line each."""

    def write(message, category, *where, **arguments):
        if issubclass(category, UserWarning):
            sys.stderr.write(f"warning: {message}\n")
        else:
            show(message, category, *where, **arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        show, warnings.showwarning = warnings.showwarning, write
        yield


def _message(error):
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = error.filename or "the output"
        return (
            f"the disk is full while writing {where}. Nothing that was "
            "complete is lost; free some space and run the command again."
        )
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split())
