"""Config entries for frozen and quantized layers, and layers with LoRA.

Keras stores one `trainable` flag and one precision per model. `layer_state`
makes config entries for the layers and weights with another flag or precision.
`restore_layer_state` applies these entries to a model.

COMPATIBILITY: `_trainable_variables` of a Keras 3 layer is undocumented. It
lists the layer's own weights that were created as trainable.
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

# Keys in a config. A key without entries is omitted.
STATE_KEYS = (
    "trainable_layers",
    "quantized_layers",
    "lora_layers",
    "trainable_weights",
)


def layer_state(model):
    """Make the config entries of a model's frozen, quantized and LoRA layers.

    Args:
        model: keras.Layer, built.

    Returns:
        dict with some of `STATE_KEYS`. `trainable_layers` is a dict of layer
        paths to `trainable`, for layers that differ from their outer layer.
        `quantized_layers` is a list of dicts with the keys `mode`, `config` and
        `layers` (list of paths). `lora_layers` is a list of dicts with the keys
        `rank`, `alpha` and `layers` (list of paths). `trainable_weights` is a
        dict of weight paths to `trainable`, for weights that differ from their
        layer.
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
    """Map weight paths to `trainable` where it differs from the layer's."""
    is_adapted = getattr(layer, "lora_enabled", False)
    return {
        prefix + weight.name: weight.trainable
        for weight in layer._trainable_variables
        if weight.trainable != layer.trainable
        # A kernel with adapters is always frozen, so the config needs no entry.
        and not (is_adapted and weight.name == "kernel")
    }


def restore_layer_state(model, config):
    """Freeze layers, quantize layers and enable LoRA, as a config describes.

    Call this function before the weights of quantized layers are loaded.

    Args:
        model: keras.Layer, built. Layers that the config lists and the model
            lacks are skipped.
        config: dict with `trainable` and the entries of `layer_state`.
    """
    layers = layers_by_path(model)
    for group in config.get("quantized_layers", ()):
        objects_in(group["config"])  # refuses unsafe classes
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
