"""Sizes of tensors: ints where they are known before the call."""

from keras import ops


def sizes_of(tensor):
    """Shape of a tensor.

    `keras.ops.shape` makes an operation of TensorFlow even where every size is
    known, and each operation takes its time to trace and to compile.

    Args:
        tensor: tensor or array.

    Returns:
        tuple, an int for each size that is known, or a scalar of the backend.
    """
    shape = tuple(tensor.shape)
    if all(isinstance(size, int) for size in shape):
        return shape
    return tuple(ops.shape(tensor))


def is_zero(size):
    """Whether a size, an int or a scalar of the backend, is known to be 0."""
    return isinstance(size, int) and size == 0
