"""Paths of a model's layers: names of attributes, joined by "/"."""

import keras


def layers_by_path(model):
    """Map paths to all layers of a model, outer layers before inner layers.

    Args:
        model: keras.Layer.

    Returns:
        dict from path to keras.Layer. A path consists of attribute names,
        joined by "/". A shared layer occurs once.
    """
    return {path: layer for path, layer, _ in walk_layers(model)}


def walk_layers(model):
    """Yield (path, layer, outer layer) for a model, outer layers first."""
    seen = {id(model)}

    def walk(parent, prefix):
        for name, layer in inner_layers(parent):
            if id(layer) not in seen:
                seen.add(id(layer))
                yield prefix + name, layer, parent
                yield from walk(layer, f"{prefix}{name}/")

    return walk(model, "")


def inner_layers(layer):
    """Yield (name, inner layer) for the public attributes of a layer.

    Layers in lists and tuples come last, with names such as "blocks/0".
    """
    values = {k: v for k, v in vars(layer).items() if not k.startswith("_")}
    for name, value in values.items():
        if isinstance(value, keras.layers.Layer):
            yield name, value
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            for index, part in enumerate(value):
                if isinstance(part, keras.layers.Layer):
                    yield f"{name}/{index}", part


def set_trainable(layer, trainable):
    """Set `trainable` of a layer and of all its inner layers.

    Inner layers may differ from their outer layer, because the constructor
    argument `trainable` does not affect layers made later. On TensorFlow, Keras
    skips an assignment that does not change a layer's `trainable`, and then
    leaves the inner layers unchanged. So each layer is first set to the
    opposite value.
    """
    for part in (layer, *layers_by_path(layer).values()):
        part.trainable = not trainable
        part.trainable = trainable
