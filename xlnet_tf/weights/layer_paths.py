"""The layers of a model by path: the names of attributes, joined by "/"."""

import keras


def layers_by_path(model):
    """All layers of a model, the outer ones before those that they hold.

    Args:
        model: keras.Layer.

    Returns:
        dict of str, attribute names joined by "/", to keras.Layer. A layer
        that others share has one path.
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
    """Set `trainable` of a layer and of all that is in it by now.

    The argument of a layer's constructor does not reach what is made after it,
    and Keras passes over an attribute that is set to the value it has.
    """
    for part in (layer, *layers_by_path(layer).values()):
        part.trainable = not trainable
        part.trainable = trainable
