"""LoRA of a whole model: enable, describe and merge adapters."""

import contextlib
import math

from keras import ops

from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.layer_paths import set_trainable
from xlnet_tf.weights.lora.layers import Adaptable


def adaptable_layers(model):
    """Map paths to all layers of a model that can have adapters."""
    return {
        path: layer
        for path, layer in layers_by_path(model).items()
        if isinstance(layer, Adaptable)
    }


def lora_layers(model):
    """Map paths to all layers of a model that have adapters."""
    return {
        path: layer
        for path, layer in adaptable_layers(model).items()
        if layer.lora_enabled
    }


def adapters_of(model):
    """Map the path of each layer with adapters to (rank, alpha)."""
    return {
        path: (int(layer.lora_rank), float(layer.lora_alpha))
        for path, layer in lora_layers(model).items()
    }


def lora_groups(model):
    """Group a model's adapters as dicts of `rank`, `alpha` and `layers`."""
    groups = {}
    for path, kind in adapters_of(model).items():
        groups.setdefault(kind, []).append(path)
    return [
        {"rank": rank, "alpha": alpha, "layers": paths}
        for (rank, alpha), paths in groups.items()
    ]


def adapters_in(groups):
    """Map each layer path in the result of `lora_groups` to (rank, alpha)."""
    return {
        path: (group["rank"], group["alpha"])
        for group in groups
        for path in group["layers"]
    }


def enable_lora(backbone, rank, names, alpha=None):
    """Freeze a backbone and add adapters to some of its layers.

    Args:
        backbone: a backbone.
        rank: int, rank of the adapters.
        names: list of str, names of the layers that get adapters.
        alpha: float, or None (default) to use the rank as alpha.

    Raises:
        ValueError: if the backbone already has adapters, or `rank`, `alpha` or
            a name is invalid.
    """
    if lora_layers(backbone):
        raise ValueError(
            "the model has adapters (LoRA) already. `model.without_lora()` "
            "gives a copy with these merged, which can have others."
        )
    layers = adaptable_layers(backbone)
    known = {layer.name for layer in layers.values()}
    if isinstance(names, str) or not names or not set(names) <= known:
        raise ValueError(
            "`target_layer_names` must be a list of names of dense layers: "
            f"{', '.join(sorted(known))}. Received: "
            f"target_layer_names={names!r}."
        )
    chosen = {p: layer for p, layer in layers.items() if layer.name in names}
    adapt(backbone, {path: (rank, alpha) for path in chosen})


def adapt(backbone, adapters):
    """Freeze a backbone and add adapters to some of its layers.

    `adapters` is a dict from layer path to (rank, alpha or None).
    """
    layers = adaptable_layers(backbone)
    for path, arguments in adapters.items():
        layers[path].check_adapters(*arguments)
    strategy = getattr(backbone, "_distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        set_trainable(backbone, True)
        for layer in layers_by_path(backbone).values():
            layer.trainable = False
        for path in adapters:
            layers[path].trainable = True
        # Also freeze the biases of layers with adapters, and weights of the
        # backbone itself.
        for weight in backbone.weights:
            weight.trainable = False
        for path, (rank, alpha) in adapters.items():
            layers[path].enable_lora(rank, lora_alpha=alpha)


@contextlib.contextmanager
def merged_when_written(model):
    """Context in which weight files get merged kernels instead of adapters."""
    layers = lora_layers(model).values()
    for layer in layers:
        layer.writes_merged = True
    try:
        yield
    finally:
        for layer in layers:
            layer.writes_merged = False


def config_without_lora(config):
    """Copy a config without adapters.

    The entries that freeze layers of the backbone are left out too. A head's
    entries in `trainable_layers` and `trainable_weights` stay. A config without
    adapters is copied unchanged.

    Args:
        config: dict, the result of `get_config` of a backbone or a task.

    Returns:
        dict.
    """
    config = dict(config)
    nested = config.get("backbone")
    if config.pop("lora_layers", None):
        for key in ("trainable_layers", "trainable_weights"):
            of_head = {
                path: value
                for path, value in config.pop(key, {}).items()
                if nested and path.partition("/")[0] != "backbone"
            }
            if of_head:
                config[key] = of_head
    if nested:
        inner = config_without_lora(nested["config"])
        config["backbone"] = {**nested, "config": inner}
    return config


def copy_merged(model, copy):
    """Assign the merged weights of a model to a copy without adapters.

    Args:
        model: a backbone or a task, with or without adapters.
        copy: model of the same class, made from the config that
            `config_without_lora` returns. Layers that the copy lacks are
            skipped.
    """
    twins = {"": copy, **layers_by_path(copy)}
    with merged_when_written(model):
        for path, layer in {"": model, **layers_by_path(model)}.items():
            if path in twins:
                twins[path].load_own_variables(own_values(layer))


def own_values(layer):
    """Make a dict of the arrays that a layer's `save_own_variables` saves."""
    values = {}
    layer.save_own_variables(values)
    return {k: ops.convert_to_numpy(value) for k, value in values.items()}


def kinds_of(adapters):
    """Summarize the result of `adapters_of` for messages."""
    kinds = sorted({f"rank {r}, alpha {a:g}" for r, a in adapters.values()})
    return f"{len(adapters)} layers of {' and '.join(kinds)}"


def num_trained(model):
    """Count the trainable parameters of a model."""
    return sum(math.prod(v.shape) for v in model.trainable_variables)


def describe_lora(model):
    """Make a list with one line about a model's adapters, or an empty list."""
    adapters = adapters_of(model)
    if not adapters:
        return []
    return [
        f"lora      {kinds_of(adapters)}: {num_trained(model):,} parameters "
        "are trained"
    ]
