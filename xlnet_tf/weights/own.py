"""Our own directories, in KerasHub's layout.

`config.json`, `metadata.json`, `model.weights.h5`; for a task `task.json` and
`task.weights.h5`; `preprocessor.json`; `tokenizer.json` and
`assets/tokenizer/vocabulary.spm`.
"""

import keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.files import read_json
from xlnet_tf.files import write_bytes
from xlnet_tf.files import write_json
from xlnet_tf.files import written_whole
from xlnet_tf.version import __version__
from xlnet_tf.weights.layer_state import STATE_KEYS
from xlnet_tf.weights.layer_state import restore_layer_state
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import WeightSource
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import head_arguments

CONFIG_FILE = "config.json"
METADATA_FILE = "metadata.json"
MODEL_WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
PREPROCESSOR_FILE = "preprocessor.json"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "assets/tokenizer/vocabulary.spm"


def is_preset(path):
    """Whether a directory was written by `save_to_preset`."""
    file = path / CONFIG_FILE
    if not file.is_file():
        return False
    values = read_json(file)
    return (
        isinstance(values, dict)
        and values.get("registered_name") == "xlnet_tf>XLNetBackbone"
    )


class PresetSource(WeightSource):
    """A directory written by `save_to_preset`.

    Args:
        path: path of the directory.
    """

    kind = "preset"

    def __init__(self, path):
        self.path = path

    def config(self):
        values = dict(read_json(self.path / CONFIG_FILE)["config"])
        for name in ("seed", "name", "trainable", "dtype", *STATE_KEYS):
            values.pop(name, None)
        return XLNetConfig.from_dict(values)

    def heads(self):
        file = self.path / TASK_FILE
        if not file.is_file():
            return []
        saved = read_json(file)
        arguments = head_arguments(saved["config"])
        return [Head(saved["registered_name"], arguments)]

    def fill(self, model, head=None, strict=True):
        backbone = backbone_of(model)
        saved = self.config()
        if backbone.config.untie_biases != saved.untie_biases:
            # Keras would fill them with those of the first layer.
            raise ValueError(
                f"{self.path / MODEL_WEIGHTS_FILE} does not fit "
                f"untie_biases={backbone.config.untie_biases}: it was saved "
                f"with untie_biases={saved.untie_biases}."
            )
        restore_layer_state(
            backbone, read_json(self.path / CONFIG_FILE)["config"]
        )
        if head is not None:
            restore_layer_state(
                model, read_json(self.path / TASK_FILE)["config"]
            )
        _load_weights(backbone, self.path / MODEL_WEIGHTS_FILE, strict)
        if head is not None:
            _load_weights(
                _HeadsOnly(model.heads(head.arguments)),
                self.path / TASK_WEIGHTS_FILE,
                strict,
            )


def save_preset(model, path, tokenizer=None):
    """Writes the files of `Preset.save_to_preset`.

    Args:
        model: XLNetBackbone, or a task around one.
        path: path of a directory, made if missing.
        tokenizer: object with `model_proto` (bytes) and `lowercase` (bool), or
            None for the tokenizer of the task's preprocessor, if it has one.
    """
    path.mkdir(parents=True, exist_ok=True)
    backbone = backbone_of(model)
    preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is not None and tokenizer is None:
        tokenizer = preprocessor.tokenizer
    if backbone is not model:
        # Before the backbone: a directory with config.json is complete.
        heads = _HeadsOnly(model.heads(model.get_config()))
        _write_weights(heads, path / TASK_WEIGHTS_FILE)
        task = keras.saving.serialize_keras_object(model)
        # Written to other files, and the vocabulary is big.
        task["config"]["preprocessor"] = None
        write_json(path / TASK_FILE, task)
    _write_weights(backbone, path / MODEL_WEIGHTS_FILE)
    if tokenizer is not None:
        write_tokenizer(tokenizer, path)
    if preprocessor is not None:
        preprocessor.save_settings(path)
    metadata = {
        "keras_version": keras.__version__,
        "xlnet_tf_version": __version__,
        "parameter_count": backbone.count_params(),
    }
    write_json(path / METADATA_FILE, metadata)
    write_json(
        path / CONFIG_FILE, keras.saving.serialize_keras_object(backbone)
    )
    # Files of an older model; removed last, so that a failure loses nothing.
    if preprocessor is None:
        (path / PREPROCESSOR_FILE).unlink(missing_ok=True)
    if backbone is model:
        (path / TASK_FILE).unlink(missing_ok=True)
        (path / TASK_WEIGHTS_FILE).unlink(missing_ok=True)


def write_tokenizer(tokenizer, path):
    """Writes `tokenizer.json` and `assets/tokenizer/vocabulary.spm`.

    Args:
        tokenizer: object with `model_proto` (bytes) and `lowercase` (bool).
        path: path of a directory.
    """
    vocabulary = path / VOCABULARY_FILE
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(vocabulary, tokenizer.model_proto)
    write_json(path / TOKENIZER_FILE, {"lowercase": tokenizer.lowercase})


class _HeadsOnly(keras.Model):
    """The heads of a task, without its backbone, as one model of Keras."""

    def __init__(self, heads):
        super().__init__()
        for name, head in heads.items():
            setattr(self, name, head)
        self.built = True


def _load_weights(model, file, strict):
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing: the preset is incomplete.")
    try:
        model.load_weights(file, skip_mismatch=not strict)
    except (OSError, KeyError) as error:
        raise ValueError(
            f"{file} is damaged or not a weights file: {error}."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{file} does not fit the model that {CONFIG_FILE} beside it and "
            f"the overrides describe: {error}"
        ) from error


def _write_weights(model, file):
    with written_whole(file) as temporary:
        model.save_weights(temporary)
