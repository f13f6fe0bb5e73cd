"""Sizes of tensors: ints if they are known before the call."""

from keras import ops


def sizes_of(tensor):
    """Shape of a tensor.

    `keras.ops.shape` makes a TensorFlow operation even if every size is known,
    and each operation adds time to trace and to compile.

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


def begins_with_one(tensor):
    """Whether the first axis of a tensor is known to have one element."""
    first = sizes_of(tensor)[0]
    return isinstance(first, int) and first == 1


def slice_axis(tensor, begin, count, axis=-1):
    """Slice one axis.

    With all sizes known this makes three TensorFlow operations; an index would
    make four and take longer.

    Args:
        tensor: tensor or array.
        begin, count: ints, or scalars of the backend.
        axis: int. Default -1.

    Returns:
        tensor, with `count` elements on this axis, from `begin` on.
    """
    sizes, axis = list(tensor.shape), axis % len(tensor.shape)
    sizes[axis] = count
    if not all(isinstance(size, int) for size in (*sizes, begin)):
        before = [slice(None)] * axis
        return tensor[(*before, slice(begin, begin + count))]
    begins = [0] * len(sizes)
    begins[axis] = begin
    return ops.slice(tensor, begins, sizes)
