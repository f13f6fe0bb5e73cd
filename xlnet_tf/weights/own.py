"""Presets: this library's own format, with files as in KerasHub's presets.

A preset has the files `config.json`, `metadata.json` and `model.weights.h5`. A
task's preset also has `task.json` and `task.weights.h5`. Optional files are
`preprocessor.json` and the two files of a tokenizer, `tokenizer.json` and
`assets/tokenizer/vocabulary.spm`. `SHA256SUMS` lists the digests of all files.
"""

import re
import warnings

import keras

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.directories import remove_links
from data_pipeline.base.directories import written_directory
from data_pipeline.base.files import as_path
from data_pipeline.base.files import copy_tree
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import read_json
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import size_of
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import write_json
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.formats import check_version
from data_pipeline.base.limits import in_a_line
from xlnet_tf.config import BertConfig
from xlnet_tf.config import XLNetConfig
from xlnet_tf.version import __version__
from xlnet_tf.weights.layer_state import STATE_KEYS
from xlnet_tf.weights.layer_state import restore_layer_state
from xlnet_tf.weights.lora.files import ADAPTERS_FILE
from xlnet_tf.weights.lora.files import save_adapters
from xlnet_tf.weights.lora.model import config_without_lora
from xlnet_tf.weights.lora.model import lora_layers
from xlnet_tf.weights.lora.model import merged_when_written
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import WeightSource
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import check_fields
from xlnet_tf.weights.source import head_arguments
from xlnet_tf.weights.tensor_files import open_arrays
from xlnet_tf.weights.tensor_files import save_weights
from xlnet_tf.weights.tensor_files import store_as_float16

CONFIG_FILE = "config.json"
METADATA_FILE = "metadata.json"
MODEL_WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
PREPROCESSOR_FILE = "preprocessor.json"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "assets/tokenizer/vocabulary.spm"
# Version of the preset format, stored in `config.json` and `preprocessor.json`.
PRESET_VERSION = 1
# From the registered name of a backbone to the class of its config.
CONFIGS = {
    "xlnet_tf>XLNetBackbone": XLNetConfig,
    "xlnet_tf>BertBackbone": BertConfig,
}
# Beginning of the names of a Transformer layer's arrays.
_LAYER = re.compile(r"block_(\d+)/")
# Config fields that determine the shapes of weights.
_SIZES = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "head_dim",
    "intermediate_dim",
    "untie_biases",
    "max_positions",
    "num_segments",
    "relative_position_buckets",
)
# Files to delete if they remain from an earlier model. A tokenizer may remain.
_FILES_OF_A_MODEL = (
    ADAPTERS_FILE,
    CHECKSUMS_FILE,
    CONFIG_FILE,
    METADATA_FILE,
    MODEL_WEIGHTS_FILE,
    PREPROCESSOR_FILE,
    TASK_FILE,
    TASK_WEIGHTS_FILE,
)


def is_preset(path):
    """Whether a directory was written by `save_to_preset`."""
    file = path / CONFIG_FILE
    if not file.is_file():
        return False
    values = read_json(file)
    return isinstance(values, dict) and (
        str(values.get("registered_name")) in CONFIGS
    )


class PresetSource(WeightSource):
    """Source for a directory written by `save_to_preset`.

    Args:
        path: path of the directory.

    Raises:
        ValueError: if the directory has another version of the format.
    """

    kind = "preset"

    def __init__(self, path):
        self.path = path
        file = path / CONFIG_FILE
        saved = read_json_object(file)
        check_version(file, saved.get(FORMAT_VERSION), PRESET_VERSION)

    def config(self):
        file = self.path / CONFIG_FILE
        saved = _saved(file)
        values = saved["config"]
        for name in ("seed", "name", "trainable", "dtype", *STATE_KEYS):
            values.pop(name, None)
        try:
            return CONFIGS[saved["registered_name"]].from_dict(values)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{file}: {error}") from error

    def heads(self):
        file = self.path / TASK_FILE
        if not file.is_file():
            return []
        saved = _saved(file)
        arguments = head_arguments(saved["config"])
        return [Head(saved["registered_name"], arguments)]

    def stored_bytes(self):
        return size_of(self._existing(MODEL_WEIGHTS_FILE))

    def verify(self):
        if (self.path / CHECKSUMS_FILE).is_file():
            self._existing(MODEL_WEIGHTS_FILE)
            if self.heads():
                self._existing(TASK_WEIGHTS_FILE)
        super().verify()

    def _existing(self, name):
        file = self.path / name
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is missing: the preset is incomplete."
            )
        return file

    def fill(self, model, head=None, strict=True):
        backbone = backbone_of(model)
        saved = self.config()
        file = self._existing(MODEL_WEIGHTS_FILE)
        # Always check `untie_biases`, because Keras would fill tied biases with
        # the first layer's biases.
        names = _SIZES if strict else ("untie_biases",)
        check_fields(file, saved.to_dict(), backbone.config.to_dict(), names)
        _restore_layer_state(backbone, self.path / CONFIG_FILE)
        if head is not None:
            _restore_layer_state(model, self.path / TASK_FILE)
        _load_weights(backbone, file, strict)
        if head is not None:
            _load_weights(
                _HeadsOnly(model.heads(head.arguments)),
                self._existing(TASK_WEIGHTS_FILE),
                strict,
            )


def _restore_layer_state(model, file):
    config = _saved(file)["config"]
    try:
        restore_layer_state(model, config)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file} is damaged, or does not fit the model: {in_a_line(error)}."
        ) from error


def _saved(file):
    """Read a JSON file that contains an object serialized by Keras."""
    values = read_json_object(file)
    is_whole = isinstance(values.get("config"), dict) and isinstance(
        values.get("registered_name"), str
    )
    if not is_whole:
        raise ValueError(
            f"{file} is damaged: it lacks `config` or `registered_name`."
        )
    return values


def save_preset(model, path, tokenizer=None, dtype="float32"):
    """Write the files of a preset; see `Preset.save_to_preset`.

    Args:
        model: a backbone, or a task.
        path: str or path of a directory, which is made if missing.
        tokenizer: object with `model_proto` (bytes) and `lowercase` (bool).
            None: the tokenizer of the task's preprocessor. If there is no
            preprocessor, the tokenizer that is already in the directory stays.
        dtype: str, "float32" or "float16".

    Raises:
        ValueError: if the model has weights that a preset cannot contain.
    """
    if dtype not in ("float32", "float16"):
        raise ValueError(f"`dtype` must be float32 or float16, not {dtype!r}.")
    _refuse_other_weights(model)
    path = as_path(path)
    backbone = backbone_of(model)
    preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is not None and tokenizer is None:
        tokenizer = preprocessor.tokenizer
    with written_directory(path, _FILES_OF_A_MODEL.__contains__) as new:
        if backbone is not model:
            heads = _HeadsOnly(model.heads(model.get_config()))
            save_weights(heads, new / TASK_WEIGHTS_FILE)
        with merged_when_written(backbone):
            save_weights(backbone, new / MODEL_WEIGHTS_FILE)
        if lora_layers(backbone):
            save_adapters(model, new / ADAPTERS_FILE)
        if dtype == "float16":
            for name in (MODEL_WEIGHTS_FILE, TASK_WEIGHTS_FILE):
                if (new / name).is_file():
                    store_as_float16(new / name)
        if tokenizer is None:
            _keep_tokenizer(path, new)
        describe(model, new, tokenizer)


def describe(model, directory, tokenizer=None):
    """Write all files of a preset except the weight files.

    Args:
        model: a backbone, or a task.
        directory: path.
        tokenizer: see `save_preset`. None: no tokenizer is written.
    """
    backbone = backbone_of(model)
    if backbone is not model:
        task = _serialized(model)
        # The preprocessor has its own files, and its vocabulary is large.
        task["config"]["preprocessor"] = None
        write_json(directory / TASK_FILE, task)
    if tokenizer is not None:
        write_tokenizer(tokenizer, directory)
    preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is not None:
        preprocessor.save_settings(directory)
    metadata = {
        "keras_version": keras.__version__,
        "xlnet_tf_version": __version__,
        "parameter_count": backbone.config.num_parameters(),
    }
    write_json(directory / METADATA_FILE, metadata)
    config = {FORMAT_VERSION: PRESET_VERSION, **_serialized(backbone)}
    write_json(directory / CONFIG_FILE, config)


def _refuse_other_weights(model):
    """Refuse a task with weights outside its backbone, heads and memory."""
    backbone = backbone_of(model)
    if backbone is model:
        return
    parts = [backbone, *model.heads(model.get_config()).values()]
    memory = getattr(model, "memory", None)
    parts += [memory] if memory is not None else []
    known = {id(weight) for part in parts for weight in part.weights}
    lost = [x.path for x in model.weights if id(x) not in known]
    if lost:
        raise ValueError(
            f"{type(model).__name__} has weights besides its backbone and its "
            f"head, for which a preset has no place: {', '.join(lost[:5])}. "
            "Save it by `model.save(...keras)`, or let its `heads` return "
            "their layers too."
        )


def _serialized(model):
    """Serialize a model to a dict, as if its adapters were merged."""
    values = keras.saving.serialize_keras_object(model)
    return {**values, "config": config_without_lora(values["config"])}


def _keep_tokenizer(old, new):
    """Copy the earlier model's tokenizer files, if any, to a new directory."""
    for name in (TOKENIZER_FILE, VOCABULARY_FILE):
        if (old / name).is_file():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            copy_tree(old / name, new / name)


def write_tokenizer(tokenizer, path):
    """Write `tokenizer.json` and `assets/tokenizer/vocabulary.spm`.

    Symbolic links on the path of the vocabulary are removed first. The target
    of such a link may belong to another model.

    Args:
        tokenizer: object with `model_proto` (bytes) and `lowercase` (bool).
        path: path of a directory.
    """
    remove_links(path, [VOCABULARY_FILE])
    write_bytes(path / VOCABULARY_FILE, tokenizer.model_proto)
    write_json(path / TOKENIZER_FILE, {"lowercase": tokenizer.lowercase})


class _HeadsOnly(keras.Model):
    """Model with only the heads of a task, to write and read their weights."""

    def __init__(self, heads):
        super().__init__()
        for name, head in heads.items():
            setattr(self, name, head)
        self.built = True


def _load_weights(model, file, strict):
    try:
        with local_copy(file) as local:
            _check_layers(model, local, file, strict)
            model.load_weights(local, skip_mismatch=not strict)
    # h5py raises TypeError for array names that are not text.
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is damaged or not a weights file: {in_a_line(error)}."
        ) from error
    except MemoryError as error:
        raise ValueError(
            f"{file} needs more memory than there is: its arrays have "
            f"{size_of(file):,} bytes."
        ) from error
    except ValueError as error:
        if str(error).startswith(f"{file} "):
            raise
        raise ValueError(
            f"{file} does not fit the model that {CONFIG_FILE} beside it and "
            f"the overrides describe: {in_a_line(error)}."
        ) from error


def _check_layers(model, local, file, strict):
    """Refuse a file with more layers than the model; Keras would skip some."""
    with open_arrays(local) as arrays:
        layers = {match[1] for match in map(_LAYER.match, arrays) if match}
    num_layers = len(getattr(model, "blocks", layers))
    if len(layers) > num_layers:
        problem = f"it holds {len(layers)} layers and the model has"
        if strict:
            raise ValueError(f"{problem} {num_layers}")
        warnings.warn(
            f"{file} was read in part: {problem} {num_layers}.", stacklevel=6
        )
