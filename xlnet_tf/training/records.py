"""Records of a run, their readers, and the model config that fits them."""

import dataclasses
import math
import os

from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json
from data_pipeline.base.limits import parse_yaml
from data_pipeline.base.models import as_model_path
from data_pipeline.base.suggestions import did_you_mean
from data_pipeline.objectives import make_reader
from data_pipeline.objectives.masked import MaskedReader
from data_pipeline.objectives.permutation import PermutationReader
from data_pipeline.objectives.pseudo_masked import PseudoMaskedReader
from xlnet_tf.config import BertConfig
from xlnet_tf.config import XLNetConfig
from xlnet_tf.config import config_from_json
from xlnet_tf.preprocessing.preprocessor import check_vocabulary
from xlnet_tf.weights.preset import detect
from xlnet_tf.weights.preset import read_config


def model_config(settings, manifest, values):
    """Make the model config of a run, to fit the records and the objective.

    Args:
        settings: PretrainingSettings.
        manifest: Manifest of the records.
        values: dict of config fields that the objective needs.

    Raises:
        ValueError: if settings, records and objective contradict each other.
    """
    num_pieces = manifest.tokenizer["vocabulary_size"]
    where = ", ".join(map(str, record_sets(settings.records)[0]))
    config = _given_config(settings, manifest, values)
    advice = f"Build the records in {where} with the model's tokenizer"
    check_vocabulary(num_pieces, config.vocabulary_size, advice)
    if isinstance(config, BertConfig):
        _check_absolute_positions(config, settings, manifest)
        return config
    if config.reverse_half_batch and not manifest.both_directions:
        raise ValueError(
            "`reverse_half_batch` reads half of each batch backwards, and the "
            f"records in {where} are all forward. Build them with "
            "--both-directions, or leave it out: the records say which rows "
            "are reversed."
        )
    # The reuse_length of a preset describes the preset's own training, and may
    # differ from the records'.
    is_given = config.reuse_length and not settings.preset
    if is_given and config.reuse_length != manifest.reuse_length:
        raise ValueError(
            f"`reuse_length` is {config.reuse_length} in the config and "
            f"{manifest.reuse_length} in the records of {where}; "
            "they must be equal, because the reused part enters the memory."
        )
    memory_length = settings.memory_length
    if memory_length is None:
        memory_length = config.memory_length
        if not memory_length and not _gives_memory_length(settings):
            memory_length = 3 * manifest.sequence_length // 4
    return config.replace(
        **values,
        memory_length=memory_length,
        reuse_length=manifest.reuse_length,
        # Every batch has the feature `is_reversed` instead.
        reverse_half_batch=False,
    )


def record_sets(records):
    """Split the values of `--records` into directories and weights.

    Args:
        records: sequence of str or path, the directories, each with or without
            `=WEIGHT`.

    Returns:
        (directories, weights), a list of paths and a list of floats. `weights`
        is None if no directory has a weight.

    Raises:
        ValueError: if only some directories have a weight, if a weight is not
            positive, or if a directory is given twice.
    """
    if len(records) == 1:
        return list(records), None
    directories, weights = [], []
    for text in map(str, records):
        directory, equals, weight = text.rpartition("=")
        if not equals or as_path(text).is_dir():
            directory, weight = text, None
        directories.append(directory)
        weights.append(weight)
    if len({os.path.normpath(x) for x in directories}) < len(directories):
        raise ValueError(
            "`--records` names a set twice. Received: --records "
            f"{' '.join(directories)}."
        )
    if not any(weight is not None for weight in weights):
        return directories, None
    try:
        numbers = [float(weight or "") for weight in weights]
    except ValueError:
        numbers = [0]
    if not all(0 < x < math.inf for x in numbers):
        raise ValueError(
            "`--records` takes several sets as DIR=WEIGHT, each with a "
            "positive number, or as DIR, all without. Received: --records "
            f"{' '.join(map(str, records))}."
        )
    return directories, numbers


def with_fields(config, assignments):
    """Copy a config, and assign the values of `--set` to its fields.

    Args:
        config: XLNetConfig or BertConfig.
        assignments: list of str, NAME=VALUE with values in YAML.

    Raises:
        ValueError, TypeError: if a name is unknown or a value is wrong.
    """
    known = [field.name for field in dataclasses.fields(config)]
    values = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals or name not in known:
            hint = did_you_mean(name, known) if equals else ""
            raise ValueError(
                "--set takes NAME=VALUE of a field of the model's config: "
                f"{', '.join(known)}. Received: --set {text[:80]}{hint or '.'}"
            )
        try:
            values[name] = parse_yaml(value)
        except ValueError as error:
            raise ValueError(f"--set {text[:80]}: {error}.") from None
    if {"hidden_dim", "num_heads"} & set(values):
        # None: the config computes head_dim from the new sizes.
        values.setdefault("head_dim", None)
    return config.replace(**values)


def _check_absolute_positions(config, settings, manifest):
    """Refuse settings that a model with absolute positions cannot use."""
    where = ", ".join(map(str, record_sets(settings.records)[0]))
    if settings.memory_length:
        raise ValueError(
            "a BertBackbone has no memory; leave --memory-length out. "
            f"Received: {settings.memory_length}."
        )
    if config.max_positions < manifest.sequence_length:
        raise ValueError(
            f"the records in {where} have "
            f"{manifest.sequence_length} tokens, and the model has "
            f"{config.max_positions} positions. Build them with a smaller "
            "--sequence-length."
        )


def _check_backbone(settings, config, source):
    """Refuse `--backbone bert` together with an XLNet config."""
    if settings.backbone == "bert" and not isinstance(config, BertConfig):
        raise ValueError(f"{source} is an XLNet: leave --backbone bert out.")


def _given_config(settings, manifest, values):
    """Read the config of --preset or --config; assign the values of --set."""
    vocabulary_size = manifest.tokenizer["vocabulary_size"]
    size = settings.config or "base"
    if settings.preset:
        if settings.set:
            raise ValueError(
                "the config of a model with weights cannot be changed: use "
                "--set with --config, not with --preset."
            )
        config = read_config(settings.preset)
        _check_backbone(settings, config, settings.preset)
    elif as_path(size).suffix == ".json":
        config = config_from_json(size)
        _check_backbone(settings, config, size)
    elif settings.backbone == "bert":
        config = BertConfig.from_size(
            size,
            vocabulary_size=vocabulary_size,
            max_positions=max(512, manifest.sequence_length),
        )
    else:
        config = XLNetConfig.from_size(size, vocabulary_size=vocabulary_size)
    if settings.set:
        if isinstance(config, XLNetConfig):
            # The objective's fields are replaced first, because `same_length`
            # needs a causal model.
            config = config.replace(**values)
        config = with_fields(config, settings.set)
    return config


def _gives_memory_length(settings):
    """Whether --set, the config file or the preset sets memory_length.

    Config files of the released code do not contain this field.
    """
    names = (text.partition("=")[0] for text in settings.set)
    if "memory_length" in (name.replace("-", "_") for name in names):
        return True
    if settings.preset:
        return detect(as_model_path(settings.preset)) != "tensorflow"
    file = as_path(settings.config or "")
    if file.suffix != ".json":
        return False
    values = read_json(file)
    return bool({"memory_length", "mem_len"} & set(values))


def check_same_text(manifest, other, directory):
    """Refuse held-out records that do not fit the training records."""
    if (
        manifest.sequence_length != other.sequence_length
        or manifest.reuse_length != other.reuse_length
        or manifest.tokenizer["sha256"] != other.tokenizer["sha256"]
    ):
        raise ValueError(
            f"the records in {directory} have another length or tokenizer "
            "than the training records, so their loss would mean nothing. "
            "Build them with the same --tokenizer and --sequence-length."
        )
    if manifest.tokenizer["lowercase"] != other.tokenizer["lowercase"]:
        raise ValueError(
            f"either the records in {directory} or the training records are "
            "lower-cased, but not both, so a loss on them would mean nothing. "
            "Build both with --lowercase, or both without."
        )


def objective_reader(config):
    """Make the ObjectiveReader that the settings of a run select."""
    if config.objective == "permutation":
        return PermutationReader(config.order)
    if config.objective == "masked":
        return MaskedReader(config.masked_fraction, config.masked_unit)
    if config.objective == "pseudo_masked":
        return PseudoMaskedReader(config.masked_fraction)
    return make_reader(config.objective)
