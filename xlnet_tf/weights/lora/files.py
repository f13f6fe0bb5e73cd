"""Adapter files: HDF5 with only the LoRA adapters and the head of a task.

For each layer PATH with adapters, the file has the arrays
`layers/PATH/lora_kernel_a` and `layers/PATH/lora_kernel_b`. A third array,
`layers/PATH/base`, has a few values of the kernel that the adapters were
trained with. The array `heads/NAME/PATH/N` is weight N of the layer PATH in the
head NAME. The attribute `adapters` of the file is JSON with the backbone's
config, the class of the model, and the rank and alpha of each layer's adapters.
"""

import json

import numpy as np
from keras import ops

from data_pipeline.base.files import as_path
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import written_whole
from data_pipeline.base.limits import in_a_line
from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.lora.layers import KERNEL_A
from xlnet_tf.weights.lora.layers import KERNEL_B
from xlnet_tf.weights.lora.model import adapt
from xlnet_tf.weights.lora.model import adaptable_layers
from xlnet_tf.weights.lora.model import adapters_in
from xlnet_tf.weights.lora.model import adapters_of
from xlnet_tf.weights.lora.model import kinds_of
from xlnet_tf.weights.lora.model import lora_groups
from xlnet_tf.weights.lora.model import lora_layers
from xlnet_tf.weights.lora.model import own_values
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import check_fields
from xlnet_tf.weights.tensor_files import open_arrays
from xlnet_tf.weights.tensor_files import written_arrays

ADAPTERS_FILE = "adapters.lora.h5"  # name of the file in a preset
_SUFFIX = ".lora.h5"
_ATTRIBUTE = "adapters"
_BASE = "base"
# Config fields that do not change the outputs of a trained model.
_WITHOUT_INFLUENCE = (
    "dropout",
    "attention_dropout",
    "initializer_range",
    "memory_length",
    "reuse_length",
    "reverse_half_batch",
)
_NUM_VALUES = 16  # stored values of a kernel, to recognize the base weights
# Tolerances for stored values by precision. float16, in which presets may be
# stored, and bfloat16 have smaller rounding errors.
_ROUNDING = {"float32": 2**-10, "float64": 2**-10}
_NARROW_ROUNDING = 2**-7


def save_adapters(model, path):
    """Write the adapters of a model and the head of a task to a file.

    Args:
        model: a backbone or a task with adapters.
        path: str or path, ending in ".lora.h5".

    Raises:
        ValueError: if the model has no adapters, or the path has another
            ending.
    """
    import h5py  # imported on use, as in Keras

    path = as_path(path)
    if not path.name.endswith(_SUFFIX):
        raise ValueError(
            f"the name of a file of adapters must end in {_SUFFIX}. Received: "
            f"filepath={path}."
        )
    backbone = backbone_of(model)
    layers = lora_layers(backbone)
    if not layers:
        raise ValueError(
            "the model has no adapters to save: call `enable_lora(rank)`, and "
            "train them, first."
        )
    arrays = {}
    for place, layer in layers.items():
        arrays[f"layers/{place}/{KERNEL_A}"] = layer.lora_kernel_a
        arrays[f"layers/{place}/{KERNEL_B}"] = layer.lora_kernel_b
        if layer.quantization_mode is None:
            arrays[f"layers/{place}/{_BASE}"] = _sample(layer)
    for name, head in _heads(model).items():
        for place, layer in _parts(head).items():
            for key, value in own_values(layer).items():
                arrays[f"heads/{name}/{place}{key}"] = value
    facts = {
        "class": type(model).__name__,
        "layers": lora_groups(backbone),
        "config": backbone.config.to_dict(),
        "labels": getattr(model, "labels", None),
    }
    with written_whole(path) as temporary, written_arrays(temporary) as memory:
        with h5py.File(memory, "w") as file:
            file.attrs[_ATTRIBUTE] = json.dumps(facts)
            for name, value in arrays.items():
                value = ops.convert_to_numpy(ops.cast(value, "float32"))
                file.create_dataset(name, data=value)


def _heads(model):
    """Map the names of a task's heads to the heads; empty for a backbone."""
    if backbone_of(model) is model:
        return {}
    return model.heads(model.get_config())


def _parts(head):
    """Map "" to a head, and "PATH/" to each inner layer of the head."""
    inner = layers_by_path(head).items()
    return {"": head, **{f"{path}/": layer for path, layer in inner}}


def _sample(layer):
    """Read a layer's first kernel values, without adapters, as float32."""
    kernel = ops.convert_to_tensor(layer._kernel)
    values = ops.reshape(kernel, [-1])[:_NUM_VALUES]
    return ops.convert_to_numpy(ops.cast(values, "float32"))


def load_adapters(model, path):
    """Load an adapter file, and enable LoRA in the model if LoRA is off.

    Args:
        model: a backbone or a task, with the base weights that the adapters
            were trained with. A task also loads its head if the file has a
            head.
        path: str or path.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file is damaged, or its config, head or base weights
            do not fit the model.
    """
    path = as_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of adapters at {path}.")
    facts, arrays = _read(path)
    backbone = backbone_of(model)
    _check_config(path, facts["config"], backbone.config)
    adapters = adapters_in(facts["layers"])
    layers = adaptable_layers(backbone)
    _check_base(path, layers, adapters, arrays)
    heads = _head_values(path, model, facts, arrays)
    now = adapters_of(backbone)
    if now and now != adapters:
        raise ValueError(
            f"{path} has adapters of other layers, or of another rank or "
            f"alpha, than the model: {kinds_of(adapters)} there, "
            f"{kinds_of(now)} here. Load it into a model without LoRA."
        )
    if not now:
        adapt(backbone, adapters)
    for place in adapters:
        layer = layers[place]
        layer.lora_kernel_a.assign(arrays[f"layers/{place}/{KERNEL_A}"])
        layer.lora_kernel_b.assign(arrays[f"layers/{place}/{KERNEL_B}"])
    for layer, values in heads:
        layer.load_own_variables(values)


def _read(path):
    """Read the attribute `adapters` and all arrays of an adapter file.

    Returns:
        (dict, dict from the names of arrays to the arrays).
    """
    import h5py

    try:
        with local_copy(path) as local:
            with open_arrays(local) as arrays:
                values = {name: item[()] for name, item in arrays.items()}
            with h5py.File(local, "r") as file:
                facts = json.loads(file.attrs[_ATTRIBUTE])
        if not all(isinstance(name, str) for name in values):
            raise ValueError("the name of an array is not text")
        for group in facts["layers"]:
            rank, alpha, places = (
                group[k] for k in ("rank", "alpha", "layers")
            )
            if not isinstance(rank, int) or not isinstance(alpha, (int, float)):
                raise ValueError("rank and alpha are not numbers")
            missing = [
                f"layers/{place}/{name}"
                for place in places
                for name in (KERNEL_A, KERNEL_B)
                if f"layers/{place}/{name}" not in values
            ]
            if missing:
                raise ValueError(f"it lacks {missing[0]}")
        if not isinstance(facts["config"], dict):
            raise ValueError("its config is not an object")
    except (OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} is damaged or not a file of adapters: {in_a_line(error)}."
        ) from error
    return facts, values


def _check_config(path, values, config):
    """Refuse adapters that were trained with another config."""
    try:
        saved = type(config).from_dict(values).to_dict()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not fit a model with a {type(config).__name__}: "
            f"{in_a_line(error)}."
        ) from error
    names = [name for name in saved if name not in _WITHOUT_INFLUENCE]
    check_fields(path, saved, config.to_dict(), names)


def _check_base(path, layers, adapters, arrays):
    """Refuse adapters that do not fit the model's layers or base weights."""
    for place, (rank, _) in adapters.items():
        a, b = (
            arrays[f"layers/{place}/{name}"] for name in (KERNEL_A, KERNEL_B)
        )
        layer = layers.get(place)
        shape = layer and tuple(layer.kernel.shape)
        expected = shape and (shape[:-1] + (rank,), (rank, shape[-1]))
        if expected is None or (a.shape, b.shape) != expected:
            raise ValueError(
                f"{path} does not fit the model: it has adapters of the shapes "
                f"{a.shape} and {b.shape} for {place}, whose kernel is of the "
                f"shape {shape}."
            )
        base = arrays.get(f"layers/{place}/{_BASE}")
        if base is None or layer.quantization_mode is not None:
            continue
        sample = _sample(layer)
        rounding = _ROUNDING.get(layer.variable_dtype, _NARROW_ROUNDING)
        if base.shape != sample.shape or not np.allclose(
            sample, base, rtol=rounding, atol=1e-6
        ):
            raise ValueError(
                f"{path} was trained on other weights than the model has, the "
                f"kernel of {place} among them. Load the preset that the "
                "training began with; one that `save_to_preset` wrote "
                "afterwards has the adapters in its weights already."
            )


def _head_values(path, model, facts, arrays):
    """List pairs of a head's layer and the layer's weights in the file."""
    stored = {
        name.removeprefix("heads/"): value
        for name, value in arrays.items()
        if name.startswith("heads/")
    }
    if not stored or not _heads(model):
        return []
    layers = []
    for name, head in _heads(model).items():
        for place, layer in _parts(head).items():
            own = own_values(layer)
            values = {
                key: stored.pop(f"{name}/{place}{key}", None) for key in own
            }
            if any(
                value is None or value.shape != own[key].shape
                for key, value in values.items()
            ):
                stored[name] = None
            layers.append((layer, values))
    if stored:
        raise ValueError(
            f"{path} has the head of a {facts.get('class')}, which does not "
            f"fit this {type(model).__name__}. "
            "`model.backbone.load_lora_weights` reads the adapters alone."
        )
    saved, now = facts.get("labels"), getattr(model, "labels", None)
    if saved and now and list(saved) != list(now):
        raise ValueError(
            f"{path} has the head of the labels {', '.join(map(str, saved))}, "
            f"in this order. The model has {', '.join(now)}."
        )
    return layers
