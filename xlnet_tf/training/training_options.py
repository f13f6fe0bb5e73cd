"""From the options of a run to its configs, and what does not fit together."""

import json
import pathlib

from data_pipeline.tokenization.tokenizer import Tokenizer
from xlnet_tf.config import XLNetConfig
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.weights.preset import VOCABULARY_FILE
from xlnet_tf.weights.preset import detect
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.preset import read_config

# What decides the order of the data or the meaning of a checkpoint.
_FIXED_ON_RESUME = (
    "batch_size",
    "seed",
    "hide_empty_memory",
    "next_sentence_weight",
)


def training_config(options):
    """TrainingConfig of the command line and of its `--training` file."""
    given = {
        name: getattr(options, name)
        for name in (
            "steps",
            "batch_size",
            "learning_rate",
            "precision",
            "seed",
        )
        if getattr(options, name) is not None
    }
    if options.training:
        return TrainingConfig.from_json(options.training, **given)
    return TrainingConfig(**given)


def model_config(options, manifest):
    """The model's config, made to fit the records or refused."""
    vocabulary_size = manifest.tokenizer["vocabulary_size"]
    if options.preset:
        config = read_config(options.preset)
    elif pathlib.Path(options.config).suffix == ".json":
        config = XLNetConfig.from_json(options.config)
    else:
        config = XLNetConfig.from_size(
            options.config, vocabulary_size=vocabulary_size
        )
    if config.vocabulary_size != vocabulary_size:
        raise ValueError(
            f"the model has {config.vocabulary_size} tokens and the tokenizer "
            f"of the records in {options.records} has {vocabulary_size}. "
            "Build the records with the model's tokenizer."
        )
    if config.reverse_half_batch and not manifest.both_directions:
        raise ValueError(
            "`reverse_half_batch` reads half of each batch backwards, and the "
            f"records in {options.records} are all forward. Build them with "
            "--both-directions, or leave it out: the records say which rows "
            "are reversed."
        )
    # Of weights that there are it says how they were trained so far.
    is_said = config.reuse_length and not options.preset
    if is_said and config.reuse_length != manifest.reuse_length:
        raise ValueError(
            f"`reuse_length` is {config.reuse_length} in the config and "
            f"{manifest.reuse_length} in the records of {options.records}; "
            "they must be equal, for the reused part is what is remembered."
        )
    memory_length = options.memory_length
    if memory_length is None:
        memory_length = config.memory_length
        if not memory_length and not _says_memory(options):
            memory_length = 3 * manifest.sequence_length // 4
    return config.replace(
        memory_length=memory_length,
        reuse_length=manifest.reuse_length,
        # every batch says itself which rows are reversed
        reverse_half_batch=False,
    )


def _says_memory(options):
    """Whether the config says itself that there is no memory.

    The released format has no word for it, so its files leave the default.
    """
    if options.preset:
        return detect(pathlib.Path(options.preset)) != "tensorflow"
    file = pathlib.Path(options.config)
    if file.suffix != ".json":
        return False
    values = json.loads(file.read_text(encoding="utf-8"))
    return bool({"memory_length", "mem_len"} & set(values))


def check_same_run(before, now, output):
    """Refuses to go on with a run of other settings.

    Args:
        before, now: dicts with `model`, `training` and `records`.
        output: path of the run.

    Raises:
        ValueError: lists all that differs.
    """
    differences = [
        f"{name}: {before['model'].get(name)} there, {value} now"
        for name, value in now["model"].items()
        if before["model"].get(name) != value
    ]
    # A run of an earlier version says nothing of a setting that is younger.
    trained = {**TrainingConfig().to_dict(), **before["training"]}
    differences += [
        f"{name}: {trained[name]} there, {now['training'][name]} now"
        for name in _FIXED_ON_RESUME
        if trained[name] != now["training"][name]
    ]
    differences += [
        f"{name} of the data: {before['records'].get(name)} there, {value} now"
        for name, value in now["records"].items()
        if before["records"].get(name) != value
    ]
    # Nor does it say which weights it began with.
    weights = now.get("preset_weights")
    if before.get("preset_weights", weights) != weights:
        differences.append("it began with the weights of another --preset")
    if differences:
        raise ValueError(
            f"{output} holds a run of another configuration, which cannot go "
            f"on with this one ({'; '.join(differences)}). Give the same "
            "options, or another --output."
        )


def check_same_text(manifest, other, directory):
    """Refuses held-out records that do not fit those trained on."""
    if (
        manifest.sequence_length != other.sequence_length
        or manifest.reuse_length != other.reuse_length
        or manifest.tokenizer["sha256"] != other.tokenizer["sha256"]
    ):
        raise ValueError(
            f"the records in {directory} have another length or tokenizer "
            "than those trained on, so a loss on them would mean nothing. "
            "Build them with the same --tokenizer and --sequence-length."
        )


def head_arguments(preset):
    """What makes an LM head one like a preset's: Model Garden's transform.

    Args:
        preset: str or path, or None.

    Returns:
        dict of arguments of XLNetPretrainer.
    """
    if not preset:
        return {}
    return {
        name: head.arguments[name]
        for head in open_source(preset).heads()
        if head.task.split(">")[-1] == "XLNetPretrainer"
        for name in ("has_transform", "transform_gelu")
        if name in head.arguments
    }


def start_from(model, preset, manifest):
    """Fills the model with the weights of a preset."""
    preset = pathlib.Path(preset)
    for name in (VOCABULARY_FILE, "spiece.model"):
        file = preset / name
        if file.is_file():
            lowercase = manifest.tokenizer["lowercase"]
            digest = Tokenizer(file, lowercase=lowercase).digest
            if digest != manifest.tokenizer["sha256"]:
                raise ValueError(
                    f"the records were built with another tokenizer than "
                    f"{file}. Build them again with --tokenizer {file}."
                )
    source = type(model).from_preset(
        preset, next_sentence_weight=model.next_sentence_weight
    )
    for variable, value in zip(
        model.trainable_variables, source.trainable_variables, strict=True
    ):
        variable.assign(value)
