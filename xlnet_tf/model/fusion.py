"""Compilation of a function by XLA, without the function's matrix products.

On a CPU, XLA multiplies bfloat16 matrices as slowly as float32 matrices.
TensorFlow's oneDNN is faster, because it uses the processor's instructions for
products of bfloat16.
"""

import contextvars

# Operations that XLA does not compile. These are matrix products, and
# operations that read variables, call functions or copy no data, for which XLA
# would only wait. XLA would also compute the padded scores of the relative
# shift's gradient element by element, with divisions of indices.
_LEFT_OUT = frozenset(
    "BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum MatMul "
    "Const Identity If NoOp Pad PadV2 PartitionedCall Placeholder "
    "ReadVariableOp ResourceGather StatefulPartitionedCall StatelessIf "
    "StatelessWhile VarHandleOp While".split()
)
_IS_ON = contextvars.ContextVar("is_on", default=False)


def without_products(function):
    """Make XLA compile a function's operations except its matrix products.

    The returned function marks the operations that XLA compiles. A SavedModel
    keeps the marks.

    Args:
        function: function that `tf.function` will trace.

    Returns:
        function with the arguments of `function`.
    """

    def marked(*args, **kwargs):
        token = _IS_ON.set(True)
        try:
            with marks():
                return function(*args, **kwargs)
        finally:
            _IS_ON.reset(token)

    return marked


def is_without_products():
    """Whether a function returned by `without_products` is running, bool."""
    return _IS_ON.get()


def marks():
    """Context manager that marks the operations of the current graph."""
    import tensorflow as tf

    return tf.xla.experimental.jit_scope(
        compile_ops=lambda node: node.op not in _LEFT_OUT
    )
