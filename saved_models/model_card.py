"""Model card and settings file of an export.

`assets.extra/model_card.json` describes the model and the training. For each
signature, the card lists the inputs, the outputs and an example request.
`assets.extra/settings.json` contains only the settings, for the option
`--settings` of another export.
"""

import tensorflow as tf

import xlnet_tf
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import read_json_lines
from data_pipeline.base.files import write_json
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.models import METRICS_FILE
from data_pipeline.base.models import RUN_FILE
from data_pipeline.base.models import read_run
from saved_models import versions
from saved_models import warm_up

SETTINGS_FILE = "settings.json"
# The card shows the shape of an example with more values.
_MOST_VALUES = 1000


def write_card(directory, model, tokenizer, settings, module, traced, source):
    """Write the model card and the settings file of an export.

    Args:
        directory: path of the SavedModel.
        model: the exported model.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
        module: ModelSignatures of the model.
        traced: dict from signature name to (Signature, concrete function).
        source: path of the run that trained the model, or None.
    """
    config = getattr(model, "backbone", model).config
    card = {
        FORMAT_VERSION: versions.EXPORT_VERSION,
        "model": type(model).__name__,
        "config": config.to_dict(),
        "num_parameters": module.num_parameters,
        "vocabulary": {
            "sha256": tokenizer.digest,
            "size": tokenizer.vocabulary_size,
            "lowercase": tokenizer.lowercase,
            "keep_accents": tokenizer.keep_accents,
        },
        "export": {
            **settings.to_dict(),
            "memory_length": settings.memory_of(config),
        },
        "versions": {
            "xlnet_tf": xlnet_tf.__version__,
            "tensorflow": tf.__version__,
        },
        "training": training_facts(source),
        "signatures": {
            name: _described(name, signature, function)
            for name, (signature, function) in traced.items()
        },
    }
    extra = directory / warm_up.DIRECTORY
    extra.mkdir(exist_ok=True)
    write_json(directory / versions.CARD_FILE, card)
    write_json(extra / SETTINGS_FILE, settings.to_dict())


def training_facts(source):
    """Read facts about a run from its files.

    Args:
        source: str or path of a run, or of a file or directory in a run; or
            None.

    Returns:
        dict with `run` (run.json), `last` (the last line about training in
        metrics.jsonl) and `last_evaluation` (the last line about an
        evaluation). `last` or `last_evaluation` is missing if metrics.jsonl has
        no line for this key. The result is None if `source` is not in a run.

    Raises:
        ValueError: if run.json was changed, or is in another version of its
            format.
    """
    from xlnet_tf.loading import open_model

    directory = None if source is None else open_model(source).run
    if directory is None:
        return None
    verify_checksums(directory, [RUN_FILE])
    facts = {"run": read_run(directory)}
    names = {"train": "last", "eval": "last_evaluation"}
    for values in read_json_lines(directory / METRICS_FILE):
        if values.get("kind") in names:
            facts[names[values["kind"]]] = values
    return facts


def _described(name, signature, function):
    outputs = function.structured_outputs
    return {
        "summary": signature.summary,
        "inputs": _tensors(signature.inputs, signature.meaning),
        "outputs": _tensors(outputs, signature.meaning),
        "example_request": {
            "signature_name": name,
            "inputs": {
                key: _example_value(value)
                for key, value in signature.examples[0].items()
            },
        },
    }


def _tensors(specs, meaning):
    return {
        name: {
            "dtype": spec.dtype.name,
            "shape": spec.shape.as_list(),
            "meaning": meaning[name],
        }
        for name, spec in specs.items()
    }


def _example_value(array):
    if array.size > _MOST_VALUES:
        if array.any():
            return f"values of shape {list(array.shape)}"
        return f"zeros of shape {list(array.shape)}"
    if array.dtype.kind in "SO":
        return [text.decode() for text in array.tolist()]
    return array.tolist()
