"""Checks of requests; a server reports failures as invalid arguments."""

import tensorflow as tf


def at_most(size, limit, of_what):
    """Operation that refuses sizes above a limit.

    Args:
        size: int tensor [].
        limit: int.
        of_what: str, name of the counted units.
    """
    message = f"there may be at most {limit} {of_what}. Received:"
    return tf.debugging.Assert(size <= limit, [message, size])


def of_bytes(inputs, limit):
    """Return the inputs; refuse texts with more bytes together."""
    sizes = [
        tf.reduce_sum(tf.cast(tf.strings.length(x), tf.int64))
        for x in inputs.values()
        if x.dtype == tf.string
    ]
    if not sizes:
        return inputs
    check = at_most(tf.add_n(sizes), limit, "bytes of text in a request")
    return after([check], inputs)


def after(checks, features):
    """Make reads of features wait until the checks have passed."""
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}


def same_rows(**tensors):
    """Return the tensors; refuse different numbers of rows.

    Args:
        **tensors: the first one's number of rows is the expected one.

    Returns:
        list of tensors.
    """
    (name, first), *others = tensors.items()
    checks = [
        tf.debugging.assert_equal(
            tf.shape(other)[0],
            tf.shape(first)[0],
            f"`{other_name}` must have a row for each row of `{name}`",
        )
        for other_name, other in others
    ]
    return list(after(checks, tensors).values())
