"""Frozen, quantized and adapted layers of a model, as its config keeps them.

When Keras saves a model that rebuilds its layers from its config, it stores
one `trainable` flag and one precision for the whole model. The functions here
store which layers and weights differ.

COMPATIBILITY: `_trainable_variables` of a layer of Keras 3, the weights of its
own that it made trainable, is undocumented.
"""

import keras

from xlnet_tf.weights.classes import objects_in

# Keys of a config, left out where nothing differs.
STATE_KEYS = (
    "trainable_layers",
    "quantized_layers",
    "lora_layers",
    "trainable_weights",
)


def layers_by_path(model):
    """All layers of a model, the outer ones before those that they hold.

    Args:
        model: keras.Layer.

    Returns:
        dict of str, attribute names joined by "/", to keras.Layer. A layer
        that others share has one path.
    """
    return {path: layer for path, layer, _ in _walk(model)}


def _walk(model):
    """Yield (path, layer, the layer around it)."""
    seen = {id(model)}

    def walk(parent, prefix):
        for name, layer in _children(parent):
            if id(layer) not in seen:
                seen.add(id(layer))
                yield prefix + name, layer, parent
                yield from walk(layer, f"{prefix}{name}/")

    return walk(model, "")


def _children(layer):
    """(name, layer) of the public attributes, single ones before lists."""
    values = {k: v for k, v in vars(layer).items() if not k.startswith("_")}
    for name, value in values.items():
        if isinstance(value, keras.layers.Layer):
            yield name, value
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            for index, part in enumerate(value):
                if isinstance(part, keras.layers.Layer):
                    yield f"{name}/{index}", part


def layer_state(model):
    """State of layers that a config keeps besides `trainable` and `dtype`.

    Args:
        model: keras.Layer, built.

    Returns:
        dict of some of `STATE_KEYS`: `trainable_layers`, dict of path to
        `trainable` where it is not that of the layer around;
        `quantized_layers`, list of dicts of `mode`, `config` and `layers`,
        their paths; `lora_layers`, list of dicts of `rank`, `alpha` and
        `layers`; and `trainable_weights`, dict of path to `trainable` where it
        is not that of the layer.
    """
    trainable, quantized, weights = {}, [], _trainable_weights("", model)
    for path, layer, around in _walk(model):
        if layer.trainable != around.trainable:
            trainable[path] = layer.trainable
        weights |= _trainable_weights(f"{path}/", layer)
        mode = layer.quantization_mode
        if mode is None or any(_children(layer)):
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
    found = trainable, quantized, lora_groups(model), weights
    state = dict(zip(STATE_KEYS, found, strict=True))
    return {key: value for key, value in state.items() if value}


def _trainable_weights(prefix, layer):
    """dict of the paths of a layer's own weights, where they differ from it."""
    is_adapted = getattr(layer, "lora_enabled", False)
    return {
        prefix + weight.name: weight.trainable
        for weight in layer._trainable_variables
        if weight.trainable != layer.trainable
        # Adapters freeze the kernel.
        and not (is_adapted and weight.name == "kernel")
    }


def lora_layers(model):
    """The layers with adapters (LoRA) that files keep.

    Args:
        model: keras.Layer.

    Returns:
        dict of path to layer of `xlnet_tf.model.lora`.
    """
    return {
        path: layer
        for path, layer in layers_by_path(model).items()
        if getattr(layer, "keeps_lora", False) and layer.lora_enabled
    }


def lora_groups(model):
    """The adapters of a model: list of dicts of `rank`, `alpha`, `layers`."""
    groups = {}
    for path, layer in lora_layers(model).items():
        kind = int(layer.lora_rank), float(layer.lora_alpha)
        groups.setdefault(kind, []).append(path)
    return [
        {"rank": rank, "alpha": alpha, "layers": paths}
        for (rank, alpha), paths in groups.items()
    ]


def restore_layer_state(model, config):
    """Freeze, quantize and adapt the layers that a config says, if they exist.

    Args:
        model: keras.Layer, built. Weights of quantized layers are read
            afterwards.
        config: dict of a config with `trainable` and what `layer_state` gave.
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
    for group in config.get("lora_layers", ()):
        for path in group["layers"]:
            layer = layers.get(path)
            if getattr(layer, "keeps_lora", False) and not layer.lora_enabled:
                layer.add_adapters(group["rank"], group["alpha"])
    for path, trainable in config.get("trainable_weights", {}).items():
        place, _, name = path.rpartition("/")
        layer = layers.get(place) if place else model
        for weight in layer._trainable_variables if layer else ():
            if weight.name == name:
                weight.trainable = trainable


def set_trainable(layer, trainable):
    """Set `trainable` of a layer and of all that is in it by now.

    The argument of a layer's constructor does not reach what is made after it,
    and Keras passes over an attribute that is set to the value it has.
    """
    for part in (layer, *layers_by_path(layer).values()):
        part.trainable = not trainable
        part.trainable = trainable
