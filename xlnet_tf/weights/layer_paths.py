"""The layers of a model by path: the names of attributes, joined by "/"."""

import keras


def layers_by_path(model):
    """All layers of a model, outer layers before inner ones.

    Args:
        model: keras.Layer.

    Returns:
        dict from str, attribute names joined by "/", to keras.Layer. A shared
        layer has one path.
    """
    return {path: layer for path, layer, _ in walk_layers(model)}


def walk_layers(model):
    """Yield (path, layer, the layer around it), in the same order."""
    seen = {id(model)}

    def walk(parent, prefix):
        for name, layer in inner_layers(parent):
            if id(layer) not in seen:
                seen.add(id(layer))
                yield prefix + name, layer, parent
                yield from walk(layer, f"{prefix}{name}/")

    return walk(model, "")


def inner_layers(layer):
    """Yield (name, layer) of the public attributes, single ones first."""
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
    """Set `trainable` of a layer and of all its present inner layers.

    The constructor's argument does not reach layers made later, and Keras skips
    an assignment of the same value.
    """
    for part in (layer, *layers_by_path(layer).values()):
        part.trainable = not trainable
        part.trainable = trainable
