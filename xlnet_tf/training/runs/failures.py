"""TensorFlow's errors in words for users, with what to do about them."""

import errno

import tensorflow as tf

from xlnet_tf.files import is_of_full_disk
from xlnet_tf.files.limits import first_line


def explained(error, output, smaller):
    """An error of TensorFlow's or of the machine as one that says what to do.

    Args:
        error: tf.errors.OpError, MemoryError or OSError.
        output: path of the run's directory.
        smaller: str, the options to reduce when memory runs out.

    Returns:
        Exception; `error` itself where there is nothing to add.
    """
    reason = first_line(error)
    says = f"TensorFlow says: {reason}"
    is_emfile = getattr(error, "errno", None) == errno.EMFILE
    if is_emfile or "Too many open files" in str(error):
        return RuntimeError(
            "this process may not open more files: raise the limit, as by "
            f"`ulimit -n 65536`. The system says: {reason}"
        )
    if is_of_full_disk(error):
        where = getattr(error, "filename", None) or str(output)
        return OSError(errno.ENOSPC, "No space left", where)
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return RuntimeError(
            f"out of memory: take a smaller {smaller}, or more "
            f"gradient_accumulation_steps in --training. {says}"
        )
    if isinstance(error, OSError):
        return error
    if isinstance(
        error, (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
    ):
        silent = "a worker stopped answering; start all of them again and they"
        if "HTTP" in str(error):  # the file system of gs:// says so
            silent = "a bucket does not answer; start the run again and it will"
        return RuntimeError(f"{silent} go on from the last checkpoint. {says}")
    return RuntimeError(reason)
