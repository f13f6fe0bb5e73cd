"""Frozen and quantized layers of a model, as its config keeps them.

When Keras saves a model that rebuilds its layers from its config, it stores
one `trainable` flag and one precision for the whole model. The functions here
store which layers differ.
"""

import keras

# Keys of a config. They are left out where nothing differs, so that older
# versions read the other files.
STATE_KEYS = ("trainable_layers", "quantized_layers")


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
    """Yields (path, layer, the layer around it)."""
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
    """What a config must hold beside `trainable` and `dtype` of the model.

    Args:
        model: keras.Layer, built.

    Returns:
        dict of some of `STATE_KEYS`: `trainable_layers`, dict of path to
        `trainable` where it is not that of the layer around, and
        `quantized_layers`, list of dicts of `mode`, `config` and `layers`,
        their paths.
    """
    trainable, quantized = {}, []
    for path, layer, around in _walk(model):
        if layer.trainable != around.trainable:
            trainable[path] = layer.trainable
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
    state = dict(zip(STATE_KEYS, (trainable, quantized), strict=True))
    return {key: value for key, value in state.items() if value}


def restore_layer_state(model, config):
    """Freeze and quantize the layers that a config says, if they exist.

    Args:
        model: keras.Layer, built. Weights of quantized layers are read
            afterwards.
        config: dict of a config with `trainable` and what `layer_state` gave.
    """
    layers = layers_by_path(model)
    for group in config.get("quantized_layers", ()):
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


def set_trainable(layer, trainable):
    """Set `trainable` of a layer and of all that is in it by now.

    The argument of a layer's constructor does not reach what is made after it,
    and Keras passes over an attribute that is set to the value it has.
    """
    for part in (layer, *layers_by_path(layer).values()):
        part.trainable = not trainable
        part.trainable = trainable
