"""Functions for commands: options, exit status, one-line errors, signals."""

import argparse
import codecs
import contextlib
import errno
import os
import re
import signal
import sys
import threading
import types
import typing
import warnings

from data_pipeline.base.suggestions import closest
from data_pipeline.base.suggestions import did_you_mean

# Control characters, line ends, and marks that change the writing direction. We
# escape them because they could control the terminal or begin a new line.
_CONTROLS = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
}


def printable(text):
    """Replace the control characters of a text by JSON escapes, \\uXXXX.

    Args:
        text: any value; it is converted with `str`.

    Returns:
        str, one line.
    """
    return str(text).translate(_CONTROLS)


def print_lines(*lines):
    """Print lines of results on standard output and flush the stream.

    Args:
        *lines: str, each printed as one line, see `printable`.
    """
    _print(sys.stdout, lines)


def print_notes(*lines):
    """Print notes, warnings or errors on standard error; see `print_lines`."""
    _print(sys.stderr, lines)


def _print(stream, lines):
    stream.write("".join(f"{printable(line)}\n" for line in lines))
    stream.flush()


def _escape(error):
    """Error handler of `codecs`: escape unencodable characters as JSON does."""
    text = error.object[error.start : error.end]
    units = text.encode("utf-16-be", "surrogatepass").hex("\n", 2).split()
    return "".join(f"\\u{unit}" for unit in units), error.end


codecs.register_error("escape_as_json", _escape)


def _prepare_streams():
    """Make standard output and standard error accept every text.

    The encoding of the terminal may lack a letter of a result or path. If a
    byte of a file name is not UTF-8, Python represents the byte by a lone
    surrogate. Standard encodings cannot write lone surrogates.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the shell closed it
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            # `reconfigure` changes the handler first. It then fails if a pipe
            # has replaced the file.
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="escape_as_json")


def run(main, argv=None):
    """Run the `main` function of a command; print a user's error in one line.

    `ValueError`, `TypeError`, `OSError`, `RuntimeError` and TensorFlow's errors
    of reading and writing count as errors of the user. Any other exception is a
    bug: Python prints its traceback.

    Args:
        main: function with the argument `argv`. It returns an exit status, or
            None for success.
        argv: list of str, the arguments of the command, or None for
            `sys.argv[1:]`.

    Returns:
        int, the exit status: 0 after success, 1 after an error of the user, 130
        after Ctrl-C, 141 if the reader of the output has quit, 143 after
        SIGTERM. If a library swallows the KeyboardInterrupt that a signal
        raises, the status is still 130 or 143.
    """
    _prepare_streams()
    # TensorFlow reads the log level of its C++ code when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    signals = _Signals()
    status = 0
    try:
        signals.install()
        status = main(argv) or 0
        signals.raises = False
    except KeyboardInterrupt:
        signals.raises = False
        signals.received = signals.received or signal.SIGINT
    except Exception as error:
        signals.raises = False
        # A library may turn an interruption into an error of its own class.
        if not signals.received:
            status = _status_of(error)
            if status is None:
                raise
    finally:
        signals.restore()
        _is_unread()
    if signals.received:
        print_notes("stopped")
        return 128 + signals.received
    return status


def _status_of(error):
    """Print a user's error in one line and return the exit status.

    Args:
        error: Exception.

    Returns:
        int, or None if the error is a bug.
    """
    if isinstance(error, (ValueError, TypeError, OSError, RuntimeError)):
        # Print a newline to test the pipe: after a failed write, Python may
        # have dropped the text from the buffer.
        if isinstance(error, BrokenPipeError) and _is_unread("\n"):
            return 141
        print_notes(f"error: {_message(error)}")
        return 1
    text = _told_of_tensorflow(error)
    if text is None:
        return None
    print_notes(f"error: {text}")
    return 1


class _Signals:
    """Signal handlers that stop a command on SIGTERM or Ctrl-C.

    The handlers raise KeyboardInterrupt, so that `with` and `finally` blocks
    remove half-written files. Some libraries swallow this exception in their
    callbacks. A thread therefore repeats the signal until the exception ends
    the command.

    During an import, the exception could crash the process or leave modules
    incomplete. During imports, the handlers therefore end the process at once.
    This is safe because all writes are atomic.

    Attributes:
        received: int, number of the first signal, such as 15 for SIGTERM, or
            None before any signal.
        raises: bool, whether the handlers raise KeyboardInterrupt. Default
            True.
    """

    _AGAIN = 0.1  # seconds
    _NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self):
        self.received = None
        self.raises = True
        self._before = {}
        self._is_sent_again = False
        self._sender = self._is_over = None
        self._hook = sys.unraisablehook

    def install(self):
        """Set the signal handlers if the caller is the main thread."""
        global _signals
        _signals = self
        if threading.current_thread() is threading.main_thread():
            for number in self._NUMBERS:
                self._before[number] = signal.signal(number, self._handle)
        sys.unraisablehook = self._ignore

    def restore(self):
        """Restore the signal handlers that `install` replaced."""
        global _signals
        _signals = None
        self._end_sending()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def take(self):
        """Return and forget the received signal, see `take_signal`."""
        self._end_sending()
        number, self.received = self.received, None
        return number

    def _end_sending(self):
        if self._sender is not None:
            self._is_over.set()
            self._sender.join()
            self._sender = None

    def _ignore(self, unraisable):
        """Hook for unraisable exceptions, see `sys.unraisablehook`.

        If a signal was received, KeyboardInterrupt is ignored. In all other
        cases, the previous hook reports the exception.
        """
        if not (self.received and unraisable.exc_type is KeyboardInterrupt):
            self._hook(unraisable)

    def _handle(self, number, frame):
        is_sent_again, self._is_sent_again = self._is_sent_again, False
        if self.received is None:
            self.received = number
            self._is_over = threading.Event()
            self._sender = threading.Thread(
                target=self._send_again, daemon=True
            )
            self._sender.start()
        if not self.raises:
            return
        if _is_importing(frame):
            _is_unread()
            os.write(2, b"stopped\n")
            os._exit(128 + self.received)
        if _is_spawning(frame):
            return  # the thread sends it again
        # A second signal from the user may interrupt the cleanup after the
        # first. A repeated signal from the thread may not.
        if not (is_sent_again and _is_unwinding()):
            raise KeyboardInterrupt

    def _send_again(self):
        main = threading.main_thread().ident
        while not self._is_over.wait(self._AGAIN):
            # The command may have set other handlers for a while.
            if signal.getsignal(self.received) == self._handle:
                self._is_sent_again = True
                signal.pthread_kill(main, self.received)


_signals = None  # of the running command


def take_signal():
    """Return the received signal, for a caller with its own signal handlers.

    `_Signals` forgets the signal, which then no longer interrupts the command.

    Returns:
        int, such as 15 for SIGTERM, or None if no signal was received.
    """
    return None if _signals is None else _signals.take()


def _is_importing(frame):
    """Whether a stack frame or its callers import a module, bool."""
    return any(x.startswith("<frozen importlib") for x in _files_of(frame))


def _is_spawning(frame):
    """Whether a stack frame or its callers start a process, bool.

    During the start, the signal handlers do not raise KeyboardInterrupt. The
    exception would make the new process print a traceback.
    """
    return any(
        x.endswith("multiprocessing/popen_spawn_posix.py")
        for x in _files_of(frame)
    )


def _files_of(frame):
    """Yield the paths of the source files of a stack frame and its callers."""
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _is_unwinding():
    """Whether the interrupted code cleans up after a KeyboardInterrupt."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def available_cores():
    """Number of cores that this process may use, int."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_unread(more=""):
    """Flush standard output and check whether its reader has quit.

    Args:
        more: str, text to print first.

    Returns:
        bool, True if the reader has quit, as `head` does after its last line.
    """
    try:
        sys.stdout.write(more)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at exit, which would print an error.
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        return True
    except OSError:  # Python reports it at exit
        pass
    return False


def _told_of_tensorflow(error):
    """Message for TensorFlow's read and write errors, or None for other errors.

    An unknown URL scheme and a full disk are recognized by the error's text,
    because not every command imports TensorFlow's error classes.
    """
    if "File system scheme" in str(error):
        return (
            f"{_message(error)}. TensorFlow reads gs:// by itself, and others "
            "where a package such as tensorflow-io adds them."
        )
    if "No space left" in str(error) or "quota exceeded" in str(error):
        return _message(OSError(errno.ENOSPC, "No space left"))
    tensorflow = sys.modules.get("tensorflow")
    kinds = tensorflow.errors.OpError if tensorflow else ()
    if isinstance(error, kinds) and "HTTP" in str(error):
        return (
            f"{_message(error)}. The file is in a bucket: check the path, the "
            "network and the credentials of this machine."
        )
    return None


PRINT_CONFIG = "--print-config"


class Parser(argparse.ArgumentParser):
    """Parser of a command's options that prints a user's mistake in one line.

    For an unknown option or choice, the line suggests a similar known name.
    After a mistake, the command ends with the exit status 2.
    """

    # Dict of an option that belongs to another command to advice for the user.
    elsewhere: typing.Mapping[str, str] = types.MappingProxyType({})
    _subcommands = None

    def add_subparsers(self, **arguments):
        self._subcommands = super().add_subparsers(**arguments)
        return self._subcommands

    def parse_args(self, args=None, namespace=None):
        args = sys.argv[1:] if args is None else args
        # Check this first: argparse would complain about missing options.
        self.refuse_unknown(args)
        return super().parse_args(args, namespace)

    def parse_known_args(self, args=None, namespace=None):
        args = sys.argv[1:] if args is None else args
        if PRINT_CONFIG in args and PRINT_CONFIG in self._option_string_actions:
            for action in self._actions:
                action.required = False
        return super().parse_known_args(args, namespace)

    def refuse_unknown(self, args):
        """End the process if an argument is an unknown option.

        Args:
            args: list of str, the arguments of the command.
        """
        known = set(self._option_string_actions)
        if self._subcommands is not None:
            for parser in self._subcommands.choices.values():
                known |= set(parser._option_string_actions)
        for argument in args:
            name = str(argument).partition("=")[0]
            if name == "--":
                return
            if name.startswith("--") and not any(
                option.startswith(name) for option in known
            ):
                self.error(
                    f"there is no option {name}{self._hint(name, known)}"
                )

    def _hint(self, name, known):
        names = [*known, *self.elsewhere]
        meant = closest(name, names)
        if meant in self.elsewhere:
            return f"; {meant} is {self.elsewhere[meant]}"
        return did_you_mean(name, names)

    def error(self, message):
        """Print the error in one line and end the process with status 2."""
        choice = re.search(
            r"invalid choice: '([^']*)' \(choose from (.*)\)", message
        )
        if choice:
            choices = re.findall(r"[^', ]+", choice[2])
            message += did_you_mean(choice[1], choices)
        message = message.replace("unrecognized arguments", "unknown arguments")
        end = "" if message.endswith("?") else "."
        line = f"error: {message}{end} {self.prog} --help explains."
        self.exit(2, f"{printable(line)}\n")


def parse(parser, argv=None, may_be_empty=()):
    """Parse the options of a command; refuse empty values.

    Args:
        parser: Parser.
        argv: list of str, or None for the arguments of the process.
        may_be_empty: names of the options whose value may be "".

    Returns:
        argparse.Namespace.
    """
    options = parser.parse_args(argv)
    refuse_empty(parser, options, may_be_empty)
    return options


def add_quiet(parser):
    """Add the option `--quiet`, which turns off the progress messages.

    Args:
        parser: Parser.
    """
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="print no progress, only results, warnings and errors",
    )


def tell(options, work):
    """Announce long work before it begins; with `--quiet`, print nothing.

    Args:
        options: argparse.Namespace, with the option `--quiet`.
        work: str, name of the work, such as "training a tokenizer".
    """
    if not options.quiet:
        print_notes(f"{work}, which takes from seconds to minutes")


def refuse_empty(parser, options, may_be_empty=()):
    """End the process with a usage error if an option has an empty value.

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
    """Context manager that prints each `UserWarning` in one line."""

    def write(message, category, *where, **arguments):
        if issubclass(category, UserWarning):
            print_notes(f"warning: {' '.join(str(message).split())}")
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
    if isinstance(error, UnicodeEncodeError):  # from TensorFlow, for a path
        return (
            f"{error.object[:200]!r} is not UTF-8, as it must be. Rename the "
            "file, or correct the text."
        )
    return " ".join(str(error).split())
