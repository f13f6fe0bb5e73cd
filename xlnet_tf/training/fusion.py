"""XLA between the products of a function, which other libraries compute.

XLA's CPU compiler multiplies bfloat16 as slowly as float32. TensorFlow calls
oneDNN, which uses the instructions that processors have for it.
"""

import tensorflow as tf

# Products; and what reads or writes variables, calls functions or copies
# nothing, which XLA would only wait for.
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

    A mark on each operation says so, and stays in a SavedModel.

    Args:
        function: to be traced by `tf.function`.

    Returns:
        function of the same arguments.
    """

    def marked(*args, **kwargs):
        with tf.xla.experimental.jit_scope(
            compile_ops=lambda node: node.op not in _LEFT_OUT
        ):
            return function(*args, **kwargs)

    return marked
