"""Initial weights, head and objective of a pretraining run from a preset."""

from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.layer_paths import layers_by_path
from xlnet_tf.weights.preset import open_source


def head_of_preset(preset):
    """Find the XLNetPretrainer arguments that match a preset's LM head.

    The arguments differ between presets, because the heads of Model Garden and
    of BERT have an additional transform, see `LanguageModelHead`.

    Args:
        preset: str or path, or None.

    Returns:
        dict of arguments, or None without a preset.
    """
    if not preset:
        return None
    return {
        name: head.arguments[name]
        for head in open_source(preset).heads()
        if head.task.split(">")[-1] == "XLNetPretrainer"
        for name in ("has_transform", "transform_gelu")
        if name in head.arguments
    }


def objective_of_preset(preset):
    """Find the name of a preset's training objective, or None.

    Formats of other libraries do not contain the objective. For these formats
    the result is the objective of the published models.
    """
    if not preset:
        return None
    source = open_source(preset)
    of_xlnet = isinstance(source.config(), XLNetConfig)
    published = [{"name": "permutation" if of_xlnet else "masked"}]
    for head in source.heads():
        if head.task.split(">")[-1] == "XLNetPretrainer":
            return (head.arguments.get("objective") or published)[0]["name"]
    return None


def values_of_another(preset):
    """Make the config fields that change a causal model to a bidirectional one.

    Args:
        preset: str or path, or None.

    Returns:
        dict of config fields. It is empty if the preset is not causal.
    """
    if objective_of_preset(preset) != "causal":
        return {}
    return {"attention_type": "bidirectional", "same_length": False}


def start_from(model, preset):
    """Assign the weights of a preset to a model.

    Args:
        model: XLNetPretrainer without frozen weights.
        preset: str or path.

    Raises:
        ValueError: if layers of the preset are frozen or quantized.
    """
    overrides = {}
    if model.backbone.has_query_stream:
        overrides = {
            "attention_type": model.config.attention_type,
            "same_length": model.config.same_length,
        }
    source = type(model).from_preset(
        preset,
        objective=list(model.objectives),
        # The list of objectives has NextSentence if it is trained.
        next_sentence_weight=0.0,
        **overrides,
    )
    for path, layer in layers_by_path(source).items():
        if not layer.trainable or layer.quantization_mode:
            raise ValueError(
                f"pretraining trains all weights, and {preset} was saved with "
                "layers that are frozen or quantized. Save it once more after "
                "`model.trainable = False` and `model.trainable = True`, and "
                f"before `quantize`. Received: the layer {path}."
            )
    # Copy also weights that this objective does not train, such as the mask
    # embedding.
    for variable, value in zip(_weights(model), _weights(source), strict=True):
        variable.assign(value)


def _weights(model):
    """Return a model's weights without the states of its random generators."""
    return [x for x in model.weights if "seed_generator" not in x.path]
