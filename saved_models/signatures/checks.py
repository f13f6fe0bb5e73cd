"""Checks of requests; a server reports a failed check as INVALID_ARGUMENT."""

import tensorflow as tf


def at_most(size, limit, of_what):
    """Make an op that refuses a size above a limit.

    Args:
        size: int tensor [].
        limit: int, maximum size.
        of_what: str, name of the counted things for the message, such as
            "windows in a request".
    """
    message = f"there may be at most {limit} {of_what}. Received:"
    return tf.debugging.Assert(size <= limit, [message, size])


def of_bytes(inputs, limit):
    """Return the inputs; refuse texts that have too many bytes in total."""
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
    """Make the features available only after the checks have passed."""
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}


def same_rows(**tensors):
    """Return the tensors; refuse tensors whose numbers of rows differ.

    Args:
        **tensors: tensors by name. The first tensor has the expected number of
            rows.

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
