"""Sizes of tensors, as ints where they are known before the call."""

from keras import ops


def sizes_of(tensor):
    """Return the sizes of a tensor's axes, as ints if they are known.

    `keras.ops.shape` makes a TensorFlow operation even if every size is known,
    and each operation takes time to trace and to compile.

    Args:
        tensor: tensor or array.

    Returns:
        tuple with an int for each known size and a scalar tensor for each
        unknown size.
    """
    shape = tuple(tensor.shape)
    if all(isinstance(size, int) for size in shape):
        return shape
    return tuple(ops.shape(tensor))


def is_zero(size):
    """Whether a size (an int or a scalar tensor) is known to be 0."""
    return isinstance(size, int) and size == 0


def begins_with_one(tensor):
    """Whether the first axis of a tensor is known to have one element."""
    first = sizes_of(tensor)[0]
    return isinstance(first, int) and first == 1


def slice_axis(tensor, begin, count, axis=-1):
    """Slice one axis of a tensor.

    If all sizes are known, the function makes three TensorFlow operations.
    Indexing with a slice would make four operations and take longer.

    Args:
        tensor: tensor or array.
        begin, count: ints or scalar tensors, the index of the first element and
            the number of elements.
        axis: int. Default -1.

    Returns:
        tensor with `count` elements on this axis.
    """
    sizes, axis = list(tensor.shape), axis % len(tensor.shape)
    sizes[axis] = count
    if not all(isinstance(size, int) for size in (*sizes, begin)):
        before = [slice(None)] * axis
        return tensor[(*before, slice(begin, begin + count))]
    begins = [0] * len(sizes)
    begins[axis] = begin
    return ops.slice(tensor, begins, sizes)
