"""LoRA of a whole model: enable, describe and merge its adapters."""

import contextlib
import math

from keras import ops

from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.layer_paths import set_trainable
from xlnet_tf.weights.lora.layers import Adaptable


def adaptable_layers(model):
    """dict of path to `Adaptable` layer, with adapters or not."""
    return {
        path: layer
        for path, layer in layers_by_path(model).items()
        if isinstance(layer, Adaptable)
    }


def lora_layers(model):
    """dict of path to `Adaptable` layer with adapters."""
    return {
        path: layer
        for path, layer in adaptable_layers(model).items()
        if layer.lora_enabled
    }


def adapters_of(model):
    """dict of path to (rank, alpha)."""
    return {
        path: (int(layer.lora_rank), float(layer.lora_alpha))
        for path, layer in lora_layers(model).items()
    }


def lora_groups(model):
    """The adapters for files: dicts of `rank`, `alpha`, `layers`."""
    groups = {}
    for path, kind in adapters_of(model).items():
        groups.setdefault(kind, []).append(path)
    return [
        {"rank": rank, "alpha": alpha, "layers": paths}
        for (rank, alpha), paths in groups.items()
    ]


def adapters_in(groups):
    """dict of path to (rank, alpha), from a list of `lora_groups`."""
    return {
        path: (group["rank"], group["alpha"])
        for group in groups
        for path in group["layers"]
    }


def enable_lora(backbone, rank, names, alpha=None):
    """Freeze a backbone and add adapters to some of its layers.

    Args:
        backbone: a backbone.
        rank: int.
        names: list of str, of layers.
        alpha: float, or None (default) for the rank.

    Raises:
        ValueError: if the backbone has adapters, or a name or number is wrong.
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
    """Freeze all and add adapters: dict of path to (rank, alpha or None)."""
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
        # The biases of these layers too, and the backbone's own.
        for weight in backbone.weights:
            weight.trainable = False
        for path, (rank, alpha) in adapters.items():
            layers[path].enable_lora(rank, lora_alpha=alpha)


@contextlib.contextmanager
def merged_when_written(model):
    """Context in which files get the model's merged kernels."""
    layers = lora_layers(model).values()
    for layer in layers:
        layer.writes_merged = True
    try:
        yield
    finally:
        for layer in layers:
            layer.writes_merged = False


def config_without_lora(config):
    """Config of a model with merged adapters and no frozen layers.

    Heads, and models without adapters, are unchanged.

    Args:
        config: dict of `get_config` of a backbone or a task.

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
    """Assign the weights of a model to a copy without adapters.

    Args:
        model: a backbone or a task, with adapters or without.
        copy: the same, with a config from `config_without_lora`. Missing layers
            are skipped.
    """
    twins = {"": copy, **layers_by_path(copy)}
    with merged_when_written(model):
        for path, layer in {"": model, **layers_by_path(model)}.items():
            if path in twins:
                twins[path].load_own_variables(own_values(layer))


def own_values(layer):
    """dict of str to array, a layer's own weights for files."""
    values = {}
    layer.save_own_variables(values)
    return {k: ops.convert_to_numpy(value) for k, value in values.items()}


def kinds_of(adapters):
    """str, the layers with adapters, from a dict of `adapters_of`."""
    kinds = sorted({f"rank {r}, alpha {a:g}" for r, a in adapters.values()})
    return f"{len(adapters)} layers of {' and '.join(kinds)}"


def num_trained(model):
    """int, number of trained parameters."""
    return sum(math.prod(v.shape) for v in model.trainable_variables)


def describe_lora(model):
    """list with a line about a model's adapters; empty without any."""
    adapters = adapters_of(model)
    if not adapters:
        return []
    return [
        f"lora      {kinds_of(adapters)}: {num_trained(model):,} parameters "
        "are trained"
    ]
