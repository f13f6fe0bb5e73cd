"""Exports for the runtime OpenVINO, which runs on Intel and AMD processors.

    python -m saved_models.export --runtime openvino --model DIR --output NAME

`model.xml` and `model.bin` contain the network, which computes the outputs from
token ids and also runs in OpenVINO Model Server. The export also contains the
files of a preset without weights. From these files, `load` makes the signatures
for raw text. These signatures encode texts and pass the features to OpenVINO.

Shapes: R sequences, T tokens.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from data_pipeline.base.files import read_json_object
from data_pipeline.base.limits import in_a_line
from data_pipeline.base.settings import read_file
from saved_models.client.local import Predictor
from saved_models.model_card import SETTINGS_FILE
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from saved_models.versions import CARD_FILE
from saved_models.versions import NETWORK_FILE
from saved_models.warm_up import DIRECTORY
from xlnet_tf.loading import MODELS
from xlnet_tf.loading import class_of_directory
from xlnet_tf.loading import open_model
from xlnet_tf.weights.own import describe

# From our precision to OpenVINO's name. Without a name, OpenVINO uses bfloat16
# on every processor that supports it.
_HINTS = {"float32": "f32", "bfloat16": "bf16"}


def write(module, model, tokenizer, directory):
    """Write the network and the preset of an export.

    Args:
        module: ModelSignatures of the model.
        model: a backbone or a task.
        tokenizer: data_pipeline Tokenizer.
        directory: path.

    Raises:
        ValueError: if OpenVINO is not installed, or cannot compute the model.
    """
    openvino = _import()
    function = module.network()
    try:
        network = openvino.convert_model(function)
    except openvino.frontend.OpConversionFailure as error:
        raise ValueError(
            f"OpenVINO cannot compute this {type(model).__name__}: "
            f"{in_a_line(error)}"
        ) from error
    _name(network.inputs, function.structured_input_signature[1])
    _name(network.outputs, function.structured_outputs)
    openvino.save_model(
        network, directory / NETWORK_FILE, compress_to_fp16=False
    )
    describe(model, directory, tokenizer)


def _name(ports, tensors):
    """Name a network's inputs or outputs after the sorted keys of a dict."""
    for port, name in zip(ports, sorted(tensors), strict=True):
        port.get_tensor().set_names({name})


def load_network(directory):
    """Load an export for OpenVINO.

    Args:
        directory: path of a version of the export.

    Returns:
        Predictor.

    Raises:
        ValueError: if OpenVINO is not installed, or a file is damaged.
    """
    file = directory / DIRECTORY / SETTINGS_FILE
    settings = ExportSettings(**read_file(ExportSettings, file))
    name = read_json_object(directory / CARD_FILE)["model"]
    cls = MODELS.get(name) or class_of_directory(directory)
    # Variables need shapes but no values, because OpenVINO has the weights.
    with keras.StatelessScope(initialize_variables=False):
        model = cls.from_preset(directory, load_weights=False)
    network = Network(model, directory / NETWORK_FILE, settings.precision)
    tokenizer = open_model(directory).tokenizer()
    make = signatures_for(model)
    module = make(model, tokenizer, settings, served=network)
    functions = {
        name: function for name, (_, function) in module.traced().items()
    }
    return Predictor(functions, module)


class Network:
    """Model that OpenVINO computes, with the interface of `ServedModel`.

    Args:
        model: a backbone or a task; its weights are not used.
        file: path of the model's network.
        precision: "float32" or "bfloat16".

    Attributes:
        model, backbone, config: see `ServedModel`.
        variables: an empty tuple.

    Raises:
        ValueError: if OpenVINO is not installed, or cannot read the file.
    """

    variables = ()

    def __init__(self, model, file, precision):
        openvino = _import()
        self.model = model
        self.backbone = getattr(model, "backbone", model)
        self.config = self.backbone.config
        hint = {"INFERENCE_PRECISION_HINT": _HINTS[precision]}
        try:
            self._compiled = openvino.Core().compile_model(file, "CPU", hint)
        except RuntimeError as error:
            raise ValueError(
                f"OpenVINO cannot read {file}: {in_a_line(error)}"
            ) from error
        self._inputs = [port.get_any_name() for port in self._compiled.inputs]

    def run(self, function, features):
        """Compute the network's outputs from features; `function` is ignored.

        Args:
            features: dict of int32 tensors [R, T] or [R].

        Returns:
            dict of tensors.
        """
        ports = self._compiled.outputs
        types = [
            tf.as_dtype(port.get_element_type().to_dtype()) for port in ports
        ]
        outputs = tf.numpy_function(
            self._infer, [features[name] for name in self._inputs], types
        )
        for port, output in zip(ports, outputs, strict=True):
            sizes = port.get_partial_shape()
            output.set_shape(
                [None if x.is_dynamic else x.get_length() for x in sizes]
            )
        names = [port.get_any_name() for port in ports]
        return dict(zip(names, outputs, strict=True))

    def _infer(self, *arrays):
        # Each thread needs its own inference request.
        request = self._compiled.create_infer_request()
        outputs = request.infer(dict(zip(self._inputs, arrays, strict=True)))
        return [np.array(value) for value in outputs.values()]


def _import():
    # The import of OpenVINO's telemetry would connect to a server.
    sys.modules.setdefault("openvino_telemetry", None)
    try:
        import openvino
    except ModuleNotFoundError:
        raise ValueError(
            "the runtime openvino needs the package openvino, which is not "
            "installed: pip install openvino."
        ) from None
    return openvino
