"""SavedModels of strangers, whose functions are chosen by other than names."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf import saved_model_pb2

import saved_models
from saved_models.client.operations import ALLOWED
from saved_models.client.operations import as_checked
from saved_models.client.operations import check_operations

TEXT = tf.TensorSpec([None], tf.string, "text")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A SavedModel of allowed operations, and a function that writes."""
    directory = tmp_path_factory.mktemp("stranger")
    written = directory / "written"

    @tf.function(input_signature=[TEXT])
    def innocent(text):
        return tf.strings.join([text, "!"])

    @tf.function(input_signature=[TEXT])
    def writes(text):
        tf.io.write_file(str(written), tf.strings.reduce_join(text))
        return tf.strings.join([text, "?"])

    class Module(tf.Module):
        @tf.function(input_signature=[TEXT])
        def serve(self, text):
            return {"text": innocent(text)}

    module = Module()
    signatures = {"serving_default": module.serve}
    tf.saved_model.save(module, str(directory / "1"), signatures)
    return directory / "1", writes.get_concrete_function().function_def, written


def changed(stranger, change):
    """The answer of what `change` makes of the SavedModel, or why not.

    Args:
        stranger: the fixture.
        change: function of the SavedModel's only meta graph, its function
            `innocent`, the operation that calls it, and the one that writes,
            which it may add.
    """
    directory, writes, _ = stranger
    file = directory / "saved_model.pb"
    content = file.read_bytes()
    saved = saved_model_pb2.SavedModel.FromString(content)
    (graph,) = saved.meta_graphs
    functions = graph.graph_def.library.function
    (innocent,) = (x for x in functions if "innocent" in x.signature.name)
    (call,) = (
        node
        for function in functions
        for node in function.node_def
        if "f" in node.attr
        and node.attr["f"].func.name == innocent.signature.name
    )
    change(graph, innocent, call, functions.add())
    if not functions[-1].signature.name:
        functions[-1].CopyFrom(writes)
    try:
        file.write_bytes(saved.SerializeToString())
        predictor = saved_models.load(directory, verify=False)
        return predictor(["a"])["text"].tolist()
    except ValueError as error:
        return str(error)
    finally:
        file.write_bytes(content)


def test_functions_are_not_exchanged(stranger):
    """Two functions that TensorFlow takes for one, on other devices."""
    directory, writes, written = stranger

    def exchange(graph, innocent, call, added):
        added.CopyFrom(writes)
        for function, device in (innocent, b"GPU"), (added, b"CPU"):
            function.attr["api_implements"].s = b"same"
            function.attr["api_preferred_device"].s = device

    message = changed(stranger, exchange)
    assert "the attribute api_implements, the attribute api_pref" in message
    assert message.count("\n") == 0 and "--trust" in message
    assert not written.exists()


def test_only_checked_functions_are_loaded(stranger):
    """Each change leads to the writing function; it is refused or not run."""
    directory, writes, written = stranger

    def alone(graph, innocent, call, added):
        pass

    def gradient(graph, innocent, call, added):
        pair = graph.graph_def.library.gradient.add()
        pair.function_name = innocent.signature.name
        pair.gradient_func = writes.signature.name

    def registered_gradient(graph, innocent, call, added):
        pair = graph.graph_def.library.registered_gradients.add()
        pair.registered_op_type = "Mine"
        pair.gradient_func = writes.signature.name
        innocent.node_def[0].attr["_gradient_op_type"].s = b"Mine"

    def config(graph, innocent, call, added):
        value = config_pb2.ConfigProto()
        options = value.graph_options.rewrite_options
        options.optimizers.append("implementation_selector")
        call.attr["config_proto"].s = value.SerializeToString()

    def alias(graph, innocent, call, added):
        names = graph.meta_info_def.function_aliases
        names[writes.signature.name] = innocent.signature.name

    for change in (alone, gradient, registered_gradient, config, alias):
        # A cycle, for TensorFlow: the function of the gradient is gone.
        answer = changed(stranger, change)
        is_gone = "cyclic dependency" in answer
        assert answer == ["a!"] or is_gone, (change.__name__, answer)
        assert not written.exists(), change.__name__

    def named(graph, innocent, call, added):
        call.attr["f"].func.name = writes.signature.name

    def listed(graph, innocent, call, added):
        call.attr["more"].list.func.add().name = writes.signature.name

    def inner(graph, innocent, call, added):
        value = call.attr["f"].func.attr["g"]
        value.func.name = writes.signature.name

    def placeholder(graph, innocent, call, added):
        call.attr["f"].placeholder = "g"

    def operation(graph, innocent, call, added):
        added.CopyFrom(writes)
        call.op = added.signature.name = "WriteFile"

    def innocent_name(graph, innocent, call, added):
        """A function of the name of an operation that writes."""
        added.CopyFrom(innocent)
        call.op = added.signature.name = "WriteFile"

    def twice(graph, innocent, call, added):
        added.CopyFrom(writes)
        added.signature.name = innocent.signature.name

    def remote(graph, innocent, call, added):
        call.op = "RemoteCall"

    def attribute(graph, innocent, call, added):
        innocent.attr["_implements"].s = b"same"

    def kernel(graph, innocent, call, added):
        innocent.node_def[0].attr["_kernel"].s = b"other"

    def loading(graph, innocent, call, added):
        """A function that TensorFlow runs when it loads a resource."""
        nodes = graph.object_graph_def.nodes
        graph.object_graph_def.concrete_functions[writes.signature.name]
        function = nodes.add().function
        function.concrete_functions.append(writes.signature.name)
        nodes[0].saveable_objects["a"].restore_function = len(nodes) - 1

    def registered(graph, innocent, call, added):
        nodes = graph.object_graph_def.nodes
        nodes[0].registered_name = "tf.StaticHashTable"

    def saver(graph, innocent, call, added):
        graph.object_graph_def.nodes[0].registered_saver = "tf.Mine"

    def user_object(graph, innocent, call, added):
        graph.object_graph_def.nodes[0].user_object.identifier = "optimizer"

    for change, expected in (
        (named, "use: WriteFile."),
        (listed, "use: WriteFile."),
        (inner, "use: PartitionedCall of a function with attributes."),
        (placeholder, "use: PartitionedCall of a function with attributes."),
        (operation, "use: WriteFile."),
        (innocent_name, "use: WriteFile."),
        (twice, "two functions of one name"),
        (remote, "use: RemoteCall."),
        (attribute, "use: the attribute _implements."),
        (kernel, "use: the attribute _kernel."),
        (loading, "use: WriteFile."),
        (registered, "use: an object tf.StaticHashTable."),
        (saver, "use: an object tf.Mine."),
        (user_object, "use: an object optimizer."),
    ):
        message = changed(stranger, change)
        assert expected in message, (change.__name__, message)
        assert not written.exists(), change.__name__


def test_all_functions_that_are_loaded_were_checked(
    pretrainer_export, classifier_export
):
    """Nothing is left for TensorFlow to choose, not even the saver."""
    for directory in pretrainer_export, classifier_export:
        with as_checked(check_operations(directory), directory) as folder:
            content = (folder / "saved_model.pb").read_bytes()
            saved = saved_model_pb2.SavedModel.FromString(content)
            names = sorted(path.name for path in folder.iterdir())
        functions = saved.meta_graphs[0].graph_def.library.function
        assert {x.op for f in functions for x in f.node_def} <= ALLOWED
        assert names == ["saved_model.pb", "variables"]
    texts = ["ba co", ""]
    trusted = saved_models.load(classifier_export, trust=True)(texts)
    for name, value in saved_models.load(classifier_export)(texts).items():
        np.testing.assert_array_equal(value, trusted[name], err_msg=name)
