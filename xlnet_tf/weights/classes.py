"""Safety check of the classes in a config, before Keras creates objects."""

import importlib

import keras

# From the module name in a config to Keras' module. These modules have classes
# for settings; modules with layers or models are not allowed.
_MODULES = {
    "keras": "keras.dtype_policies",
    **{
        name: name
        for name in (
            "keras.dtype_policies",
            "keras.losses",
            "keras.metrics",
            "keras.optimizers",
            "keras.optimizers.schedules",
            "keras.quantizers",
        )
    },
}
# Class names for which Keras converts a value in the config, and imports no
# class.
_VALUES = (
    "__bytes__",
    "__ellipsis__",
    "__numpy__",
    "__slice__",
    "__tensor__",
    "function",
)
# Beginnings of module names whose classes do not belong to the user.
_OTHERS = ("keras", "tensorflow_text.", "xlnet_tf.")
# Most layers and objects in a config. A model has a backbone, a memory, and
# tens of metrics and precisions.
_MOST_LAYERS, _MOST_OBJECTS = 8, 1000


def objects_in(config, models=()):
    """List the objects that a config describes; refuse unsafe classes.

    The following classes are allowed: this library's classes except layers;
    the layers in `models`; classes registered by the user; and Keras' own
    losses, metrics, optimizers, quantizers and dtype policies. Objects of other
    classes could have any size or run code. The config inside an object of the
    user's class is not checked, so the user must check this config.

    Args:
        config: JSON value.
        models: tuple of this library's layer classes that are allowed.

    Returns:
        list of (class, dict with the config of the object).

    Raises:
        ValueError: if a class is not allowed, or there are too many objects.
    """
    found, waiting, num_layers, num_objects = [], [(config, False)], 0, 0
    while waiting:
        value, is_users = waiting.pop()
        if isinstance(value, list):
            waiting += [(x, is_users) for x in value]
        if not isinstance(value, dict):
            continue
        if _is_object(value):
            cls = _class_of(value, models)
            is_known = cls is not None
            is_theirs = is_known and not cls.__module__.startswith(_OTHERS)
            # A `build_config` is unsafe, because Keras makes weights of its
            # shapes.
            is_safe = is_known and not value.get("build_config")
            if not (is_safe or is_theirs or is_users):
                raise ValueError(
                    f"it holds a {value.get('module')}.{value['class_name']}, "
                    "and files of models have no such objects; if the class is "
                    "your own, import the module that registers it"
                )
            if is_known:
                inner = value["config"]
                found.append((cls, inner if isinstance(inner, dict) else {}))
                num_objects += not is_users
                num_layers += issubclass(cls, keras.Layer) and not is_users
                is_users = is_theirs and not issubclass(cls, models)
        waiting += [(x, is_users) for x in value.values()]
    if num_objects > _MOST_OBJECTS or num_layers > _MOST_LAYERS:
        raise ValueError(
            f"it holds {num_objects} objects and {num_layers} layers, more "
            "than a model has"
        )
    return found


def _is_object(value):
    """Whether a dict in a config describes an object of a class."""
    is_whole = "class_name" in value and "config" in value
    return is_whole and value["class_name"] not in _VALUES


def _class_of(value, models):
    """Find the allowed class of the object that a dict describes, or None."""
    name, module = value["class_name"], value.get("module")
    registered = value.get("registered_name", name)
    if not (isinstance(name, str) and isinstance(registered, str | None)):
        return None
    cls = keras.saving.get_registered_object(registered)
    if cls is None and isinstance(module, str) and module in _MODULES:
        cls = getattr(importlib.import_module(_MODULES[module]), name, None)
    if not isinstance(cls, type):
        return None
    is_layer = issubclass(cls, keras.Layer) and cls.__module__.startswith(
        _OTHERS
    )
    return None if is_layer and not issubclass(cls, models) else cls
