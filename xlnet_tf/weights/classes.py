"""Checks of the classes in a file's config before Keras creates objects."""

import importlib

import keras

# Modules of Keras' classes for settings, not layers or models, by their names
# in configs.
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
# Names of objects that Keras makes from a value in the config itself.
_VALUES = (
    "__bytes__",
    "__ellipsis__",
    "__numpy__",
    "__slice__",
    "__tensor__",
    "function",
)
# Packages whose registered classes do not belong to the user.
_OTHERS = ("keras", "tensorflow_text.", "xlnet_tf.")
# A model has a backbone, a memory, and tens of metrics and precisions.
_MOST_LAYERS, _MOST_OBJECTS = 8, 1000


def objects_in(config, models=()):
    """List the objects that Keras would make from a config; refuse others.

    Allowed are classes of this library except its inner layers, classes
    registered by the user, and Keras' own losses, metrics, optimizers and
    precisions. Others could have any size or run code. Users must check the
    contents of their own classes.

    Args:
        config: JSON value.
        models: tuple of classes, the allowed layers of this library.

    Returns:
        list of (class, dict of its config).

    Raises:
        ValueError: if it contains another class, or too many.
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
            # Keras makes weights with the shapes in a `build_config`.
            is_safe = is_known and not value.get("build_config")
            if not (is_safe or is_theirs or is_users):
                raise ValueError(
                    f"it holds a {value.get('module')}.{value['class_name']}, "
                    "and files of models hold no such objects; if the class is "
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
    """Whether Keras looks for the class of a dict, bool."""
    is_whole = "class_name" in value and "config" in value
    return is_whole and value["class_name"] not in _VALUES


def _class_of(value, models):
    """The class that Keras would make from a dict; None if not allowed."""
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
