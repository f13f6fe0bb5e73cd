"""Operations that an export may hold to be run in this process.

A SavedModel is a program: its operations can read and write files. Exports of
this package hold those of `ALLOWED` only, and nothing else is run unless the
user trusts it.
"""

from google.protobuf import message
from tensorflow.core.protobuf import saved_model_pb2

from xlnet_tf.files import as_path
from xlnet_tf.files import size_of
from xlnet_tf.files.limits import check_length

# Operations that compute, none that reads or writes files, opens connections
# or calls Python.
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

# Of the graphs alone: weights are in other files.
_MOST_BYTES = 2**28


def check_operations(directory):
    """Refuse a SavedModel that holds operations beside those of exports.

    Counted are the operations of all functions that loading or asking it in
    Python can run. What only its saver holds is never run.

    Args:
        directory: path of the SavedModel.

    Raises:
        ValueError: if there are others; the message names them.
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
    others = _operations(meta_graph) - ALLOWED
    if not meta_graph.HasField("object_graph_def"):
        others.add("a graph of TensorFlow 1")
    if others:
        raise ValueError(
            f"{directory} holds operations that exports of this package do not "
            f"use: {_listed(others)}. A SavedModel is a program; if "
            "you trust this one, give --trust (`trust=True`)."
        )


def _listed(names):
    """Names of a file of strangers, on one line."""
    shown = [x if x.isprintable() else repr(x) for x in sorted(names)[:20]]
    return ", ".join(shown + ["..."] * (len(names) > len(shown)))


def _operations(meta_graph):
    """Operations that the functions of a SavedModel can run, set of str."""
    library = {
        function.signature.name: function
        for function in meta_graph.graph_def.library.function
    }
    objects = meta_graph.object_graph_def
    waiting = list(objects.concrete_functions)
    for node in objects.nodes:
        waiting += node.function.concrete_functions
        waiting.append(node.bare_concrete_function.concrete_function_name)
    found, seen = set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in library:
            continue
        seen.add(name)
        for node in library[name].node_def:
            if node.op in library:
                waiting.append(node.op)
            else:
                found.add(node.op)
            for value in node.attr.values():
                waiting.append(value.func.name)
                waiting += [function.name for function in value.list.func]
    return found
