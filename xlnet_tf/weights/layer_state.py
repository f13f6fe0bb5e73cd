"""Frozen, quantized and adapted layers in a model's config.

For a model that rebuilds its layers from its config, Keras stores one
`trainable` flag and one precision. The functions here store the layers and
weights that differ.

COMPATIBILITY: `_trainable_variables` of a layer of Keras 3, its own weights
created as trainable, is undocumented.
"""

import keras

from xlnet_tf.weights.classes import objects_in
from xlnet_tf.weights.layer_paths import inner_layers
from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.layer_paths import set_trainable
from xlnet_tf.weights.layer_paths import walk_layers
from xlnet_tf.weights.lora.model import adaptable_layers
from xlnet_tf.weights.lora.model import adapters_in
from xlnet_tf.weights.lora.model import lora_groups

# Keys of a config, omitted if nothing differs.
STATE_KEYS = (
    "trainable_layers",
    "quantized_layers",
    "lora_layers",
    "trainable_weights",
)


def layer_state(model):
    """State of layers for a config, besides `trainable` and `dtype`.

    Args:
        model: keras.Layer, built.

    Returns:
        dict of some of `STATE_KEYS`: `trainable_layers`, dict of path to
        `trainable` if it differs from the outer layer's; `quantized_layers`,
        list of dicts of `mode`, `config` and `layers`, their paths;
        `lora_layers`, list of dicts of `rank`, `alpha` and `layers`; and
        `trainable_weights`, dict of path to `trainable` if it differs from the
        layer's.
    """
    trainable, quantized, weights = {}, [], _trainable_weights("", model)
    for path, layer, around in walk_layers(model):
        if layer.trainable != around.trainable:
            trainable[path] = layer.trainable
        weights |= _trainable_weights(f"{path}/", layer)
        mode = layer.quantization_mode
        if mode is None or any(inner_layers(layer)):
            continue
        config = getattr(layer, "quantization_config", None)
        config = config and keras.saving.serialize_keras_object(config)
        for group in quantized:
            if (group["mode"], group["config"]) == (mode, config):
                group["layers"].append(path)
                break
        else:
            group = {"mode": mode, "config": config, "layers": [path]}
            quantized.append(group)
    parts = trainable, quantized, lora_groups(model), weights
    state = dict(zip(STATE_KEYS, parts, strict=True))
    return {key: value for key, value in state.items() if value}


def _trainable_weights(prefix, layer):
    """dict by path of a layer's own weights that differ from it."""
    is_adapted = getattr(layer, "lora_enabled", False)
    return {
        prefix + weight.name: weight.trainable
        for weight in layer._trainable_variables
        if weight.trainable != layer.trainable
        # Adapters freeze the kernel.
        and not (is_adapted and weight.name == "kernel")
    }


def restore_layer_state(model, config):
    """Freeze, quantize and adapt the layers in a config, if they exist.

    Args:
        model: keras.Layer, built. Weights of quantized layers are read
            afterwards.
        config: dict of a config with `trainable` and the result of
            `layer_state`.
    """
    layers = layers_by_path(model)
    for group in config.get("quantized_layers", ()):
        objects_in(group["config"])  # refuses classes of any size
        quantization = keras.saving.deserialize_keras_object(group["config"])
        for path in group["layers"]:
            layer = layers.get(path)
            if layer is not None and layer.quantization_mode is None:
                layer.quantize(group["mode"], config=quantization)
    if not config.get("trainable", True):
        set_trainable(model, False)
    for path, trainable in config.get("trainable_layers", {}).items():
        if path in layers:
            set_trainable(layers[path], trainable)
    adaptable = adaptable_layers(model)
    adapters = adapters_in(config.get("lora_layers", ()))
    for path, (rank, alpha) in adapters.items():
        layer = adaptable.get(path)
        if layer is not None and not layer.lora_enabled:
            layer.check_adapters(rank, alpha)
            layer.enable_lora(rank, lora_alpha=alpha)
    for path, trainable in config.get("trainable_weights", {}).items():
        place, _, name = path.rpartition("/")
        layer = layers.get(place) if place else model
        for weight in layer._trainable_variables if layer else ():
            if weight.name == name:
                weight.trainable = trainable
