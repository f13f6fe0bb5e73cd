"""Check of the operations in a SavedModel, before they run in this process.

A SavedModel is a program: its operations can read and write files. Exports of
this package have only the operations in `ALLOWED`. If a SavedModel has other
operations, the user must allow them with `trust`. Attributes in a SavedModel
can make TensorFlow run one function in place of another. Only functions that
the saved objects can run are checked. Therefore all other functions are removed
before TensorFlow loads the SavedModel.
"""

import contextlib
import pathlib
import tempfile

from google.protobuf import message
from tensorflow.core.protobuf import saved_model_pb2

from data_pipeline.base.files import as_path
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import check_length

# Operations that only compute. None of these operations reads or writes files,
# opens connections or calls Python.
ALLOWED = frozenset(
    """
    Abs Add AddN AddV2 All Any ArgMax ArgMin AsString Assert BatchMatMul
    BatchMatMulV2 BatchMatMulV3 BiasAdd Bincount Bitcast BitwiseAnd
    BitwiseOr BitwiseXor BroadcastTo Case Cast Ceil CheckNumerics
    ClipByValue ConcatV2 Const Cos Cosh Cumprod Cumsum DenseBincount
    DynamicStitch Einsum Elu EnsureShape Equal Erf Erfc Exp ExpandDims Expm1
    Fill Floor FloorDiv FloorMod GatherNd GatherV2 Greater GreaterEqual
    Identity IdentityN If InvertPermutation IsFinite IsInf IsNan LeakyRelu
    LeftShift Less LessEqual LinSpace Log Log1p LogSoftmax LogicalAnd
    LogicalNot LogicalOr LowerBound MatMul MatrixBandPart MatrixDiagV3
    MatrixSetDiagV3 Max Maximum Mean Min Minimum Mod Mul Neg NoOp NotEqual
    OneHot Pack Pad PadV2 ParallelDynamicStitch PartitionedCall Placeholder
    PlaceholderWithDefault Pow PreventGradient Prod RaggedGather RaggedRange
    RaggedTensorToTensor Range Rank ReadVariableOp RealDiv Reciprocal
    ReduceJoin RegexFullMatch RegexReplace Relu Relu6 Reshape ResourceGather
    ReverseV2 RightShift Roll Round Rsqrt ScatterNd SegmentMax SegmentMean
    SegmentMin SegmentSum SelectV2 Selu SentencepieceOp
    SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp Shape Sigmoid
    Sign Sin Sinh Size Slice Softmax Softplus Softsign Split SplitV Sqrt
    Square SquaredDifference Squeeze StatefulPartitionedCall StatelessCase
    StatelessIf StatelessRandomGetKeyCounter StatelessRandomUniformV2
    StatelessWhile StaticRegexFullMatch StaticRegexReplace StopGradient
    StridedSlice StringJoin StringLength StringLower StringSplitV2
    StringStrip StringUpper Sub Substr Sum Tan Tanh TensorListConcatV2
    TensorListFromTensor TensorListGetItem TensorListLength
    TensorListReserve TensorListSetItem TensorListStack TensorScatterUpdate
    Tile TopKV2 Transpose TruncateDiv UnicodeDecode UnicodeEncode
    UnicodeTranscode Unique Unpack UnsortedSegmentJoin UnsortedSegmentMax
    UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound
    VariableShape Where While ZerosLike
    """.split()
)

# Allowed attributes of functions and of operations, besides the attributes that
# an operation declares. Other attributes could select functions, kernels or
# compilers.
_FUNCTION_ATTRIBUTES = frozenset(
    ("_construction_context", "_input_shapes", "_noinline", "_XlaMustCompile")
)
_NODE_ATTRIBUTES = frozenset(
    """
    _XlaCompile _XlaMustCompile _XlaScope _XlaSeparateCompiledGradients _class
    _collective_manager_ids _gradient_op_type
    _has_manual_control_dependencies _lower_using_switch_merge
    _num_original_outputs _output_shapes _read_only_resource_inputs
    """.split()
)
# Allowed classes of objects in a SavedModel. TensorFlow would also make objects
# of classes that other packages registered.
_CLASSES = frozenset(
    """
    _generic_user_object signature_map tf.TrackableConstant
    trackable_list_wrapper
    """.split()
)

# Maximum size of the graphs; weights are in other files.
_MOST_BYTES = 2**28


def check_operations(directory):
    """Refuse a SavedModel with operations that exports do not have.

    The check covers all functions that can run when Python loads or calls the
    SavedModel. All other functions, such as the saver's, are removed.

    Args:
        directory: path of the SavedModel.

    Returns:
        saved_model_pb2.SavedModel with only the checked functions.

    Raises:
        ValueError: if the SavedModel has operations that are not allowed; the
            message lists these operations.
    """
    file = as_path(directory) / "saved_model.pb"
    check_length(file, size_of(file), _MOST_BYTES)
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(file.read_bytes())
        (meta_graph,) = saved.meta_graphs
    except (message.DecodeError, ValueError) as error:
        raise ValueError(
            f"{directory} cannot be loaded as a SavedModel: {error}"
        ) from error
    library, objects = meta_graph.graph_def.library, meta_graph.object_graph_def
    reached = _reached(library, objects)
    others = _names(reached, objects) - ALLOWED
    if not meta_graph.HasField("object_graph_def"):
        others.add("a graph of TensorFlow 1")
    if len({x.signature.name for x in library.function}) < len(
        library.function
    ):
        others.add("two functions of one name")
    if others:
        raise ValueError(
            f"{directory} holds operations that exports of this package do not "
            f"use: {_listed(others)}. A SavedModel is a program; if "
            "you trust this one, give --trust (`trust=True`)."
        )
    del library.function[:]
    library.function.extend(reached)
    return saved


@contextlib.contextmanager
def as_checked(saved, directory):
    """Context with a temporary directory that contains a checked SavedModel.

    Args:
        saved: saved_model_pb2.SavedModel, the result of `check_operations`.
        directory: path of the original SavedModel.

    Yields:
        pathlib.Path of the temporary directory, which has the checked graph and
            the weights of `directory`.
    """
    with (
        local_copy(directory / "variables") as weights,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = pathlib.Path(name)
        (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
        (folder / "variables").symlink_to(weights.absolute())
        yield folder


def _listed(names):
    """Join names from an untrusted file to one printable line."""
    shown = [x if x.isprintable() else repr(x) for x in sorted(names)[:20]]
    return ", ".join(shown + ["..."] * (len(names) > len(shown)))


def _reached(library, objects):
    """List the FunctionDefs that the saved objects can run."""
    functions = {x.signature.name: x for x in library.function}
    waiting = list(objects.concrete_functions)
    for node in objects.nodes:
        waiting += node.function.concrete_functions
        waiting.append(node.bare_concrete_function.concrete_function_name)
    found = {}
    while waiting:
        name = waiting.pop()
        if name in found or name not in functions:
            continue
        found[name] = functions[name]
        for node in functions[name].node_def:
            waiting += [x.name for x in _named_functions(node)]
    return list(found.values())


def _named_functions(node):
    """List the references to functions in an operation's attributes."""
    return [
        function
        for value in node.attr.values()
        for function in (value.func, *value.list.func)
    ]


def _names(functions, objects):
    """Make the set of str that is compared with `ALLOWED`.

    The set contains the `op` of each NodeDef. An `op` can be the name of a
    function, but exports do not call functions in this way. The set also has
    descriptions of attributes and classes that exports do not use, such as
    "the attribute NAME". `ALLOWED` has no descriptions, so `check_operations`
    refuses the SavedModel and lists the descriptions.
    """
    nodes = [node for function in functions for node in function.node_def]
    found = {node.op for node in nodes}
    classes = {
        name
        for node in objects.nodes
        for name in (
            node.registered_name,
            node.registered_saver,
            node.user_object.identifier,
        )
    }
    attributes = {x for function in functions for x in function.attr}
    attributes -= _FUNCTION_ATTRIBUTES
    for node in nodes:
        private = {name for name in node.attr if name.startswith("_")}
        attributes |= private - _NODE_ATTRIBUTES
        # Exports have no functions whose attributes the caller sets.
        if any(x.attr for x in _named_functions(node)) or any(
            x.WhichOneof("value") == "placeholder" for x in node.attr.values()
        ):
            found.add(f"{node.op} of a function with attributes")
    found |= {f"the attribute {name}" for name in attributes}
    found |= {f"an object {name}" for name in classes - _CLASSES if name}
    return found
