"""Matrix products that eager TensorFlow computes."""

import contextlib

from tensorflow.python.framework import op_callbacks

_BATCHES = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


@contextlib.contextmanager
def recorded_broadcasts():
    """Context that yields the list of products of a batch and a single matrix.

    An entry is (type of the operation, shapes of its two factors). One factor
    has several matrices. The other factor has one, which is broadcast.
    """
    found = []

    def record(op_type, inputs, attributes, outputs, *others):
        if op_type == "Einsum":
            # Without an ellipsis no axis is broadcast.
            names = attributes[::2], attributes[1::2]
            equation = dict(zip(*names, strict=True))["equation"]
            is_batch = "..." in str(equation)
        else:
            is_batch = op_type in _BATCHES
        if not is_batch or len(inputs) != 2:
            return
        shapes = [tuple(x.shape) for x in inputs]
        counts = sorted(_num_matrices(shape) for shape in shapes)
        if counts[0] == 1 < counts[1]:
            found.append((op_type, *shapes))

    op_callbacks.add_op_callback(record)
    try:
        yield found
    finally:
        op_callbacks.remove_op_callback(record)


def _num_matrices(shape):
    count = 1
    for size in shape[:-2]:
        count *= size
    return count
