"""XLA for a function's operations between its matrix products.

XLA's CPU compiler multiplies bfloat16 as slowly as float32. TensorFlow's oneDNN
uses the processor's instructions for it.
"""

import tensorflow as tf

# Products; and operations that read or write variables, call functions or copy
# nothing: XLA would only wait for them.
_LEFT_OUT = frozenset(
    "BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum MatMul "
    "AssignAddVariableOp AssignSubVariableOp AssignVariableOp Const "
    "Identity If NoOp PartitionedCall Placeholder ReadVariableOp "
    "ResourceApplyAdam ResourceGather ResourceScatterAdd "
    "StatefulPartitionedCall StatelessIf StatelessWhile VarHandleOp "
    "While".split()
)


def without_products(function):
    """Let XLA compile all of a function but its products.

    Each operation gets a mark, which stays in a SavedModel.

    Args:
        function: function to trace with `tf.function`.

    Returns:
        function of the same arguments.
    """

    def marked(*args, **kwargs):
        with tf.xla.experimental.jit_scope(
            compile_ops=lambda node: node.op not in _LEFT_OUT
        ):
            return function(*args, **kwargs)

    return marked
