"""The directory of a run: whose it is, and what kills left in it."""

import contextlib
import warnings

from xlnet_tf.files import as_path
from xlnet_tf.files import check_tensorflow_reads
from xlnet_tf.files import is_remote
from xlnet_tf.files import is_unfinished
from xlnet_tf.files import remove
from xlnet_tf.files.locking import CannotLock
from xlnet_tf.files.locking import locked
from xlnet_tf.training.runs.checkpoints import remove_leftovers


@contextlib.contextmanager
def claimed(directory):
    """Context in which no other program runs in the directory of a run.

    At its start, files are removed that a killed run had not finished writing.
    Nothing is locked in a bucket, nor on a disk that cannot lock files, which
    is warned of.

    Args:
        directory: path, which is made. If it did not exist and nothing was
            written, it is removed again.

    Raises:
        RuntimeError: if another program runs there.
        ValueError: if TensorFlow cannot write there.
    """
    directory = as_path(directory)
    check_tensorflow_reads(
        directory,
        "Give such an --output; `convert` and `saved_models.export` write "
        "models anywhere.",
    )
    is_new = not directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.ExitStack() as held:
            if not is_remote(directory):
                try:
                    held.enter_context(_lock(directory))
                except CannotLock as error:
                    warnings.warn(
                        f"{directory} is not locked, because its disk cannot "
                        f"lock files ({error}): see to it that no other "
                        "program works there",
                        stacklevel=3,
                    )
            for path in list(directory.iterdir()):
                if is_unfinished(path):
                    remove(path)
            remove_leftovers(directory / "checkpoints")
            yield
    finally:
        if is_new and not is_remote(directory):
            with contextlib.suppress(OSError):  # not empty
                directory.rmdir()


def _lock(directory):
    return locked(
        directory / ".lock",
        directory / ".lock-owner",
        f"is working in {directory}. Wait for it, or stop it, or give another "
        "--output.",
    )
