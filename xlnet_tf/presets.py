"""Directories that hold a model: what `from_preset` reads and we write.

Our own layout is KerasHub's: `config.json`, `metadata.json`,
`model.weights.h5`, for a task `task.json` and `task.weights.h5`, and
`assets/tokenizer/vocabulary.spm` with `tokenizer.json`.
"""

import json
import os
import pathlib
import tempfile

import keras

from xlnet_tf.config import XLNetConfig
from xlnet_tf.version import __version__

CONFIG_FILE = "config.json"
METADATA_FILE = "metadata.json"
MODEL_WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "assets/tokenizer/vocabulary.spm"
RELEASED_CONFIG_FILE = "xlnet_config.json"


class Preset:
    """`from_preset` and `save_to_preset`, for the backbone and every task."""

    @classmethod
    def from_preset(cls, path, load_weights=True, dtype=None, **overrides):
        """Makes a model from a directory.

        Args:
            path: str or path of a directory with released files
                (`xlnet_config.json` and `xlnet_model.ckpt.*`), or written by
                `save_to_preset`. Which one it is, is detected.
            load_weights: bool, whether to read the weights or leave the
                initial ones. Default True.
            dtype: str or dtype policy, such as "mixed_bfloat16".
            **overrides: fields of XLNetConfig to replace; other names are
                arguments of the class.

        Returns:
            A model of this class.

        Raises:
            FileNotFoundError: if the directory or a file in it is missing.
            ValueError: if it holds no model that is known, or one that does
                not fit.
        """
        from xlnet_tf.backbone import XLNetBackbone

        path = pathlib.Path(path)
        kind = detect(path)
        config = read_config(path)
        names = set(config.to_dict())
        fields = {k: v for k, v in overrides.items() if k in names}
        arguments = {k: v for k, v in overrides.items() if k not in names}
        saved = config
        config = config.replace(**fields)
        if cls is XLNetBackbone:
            model = cls(config, dtype=dtype, **arguments)
        else:
            model = cls(XLNetBackbone(config, dtype=dtype), **arguments)
        if load_weights:
            if kind == "released":
                from xlnet_tf.checkpoints.tf1 import load_tf1_checkpoint

                load_tf1_checkpoint(model, path)
            else:
                if config.untie_biases != saved.untie_biases:
                    # Keras would fill them with those of the first layer.
                    raise ValueError(
                        f"{path / MODEL_WEIGHTS_FILE} does not fit "
                        f"untie_biases={config.untie_biases}: it was saved "
                        f"with untie_biases={saved.untie_biases}."
                    )
                _load_own(model, path)
        return model

    def save_to_preset(self, path, tokenizer=None):
        """Writes the model to a directory that `from_preset` reads.

        Files are written to temporary names and then renamed.

        Args:
            path: str or path of a directory, made if missing.
            tokenizer: object with `model_proto` (bytes) and `lowercase`
                (bool), or None to leave the tokenizer out.
        """
        path = pathlib.Path(path)
        path.mkdir(parents=True, exist_ok=True)
        backbone = getattr(self, "backbone", self)
        if backbone is not self:
            # Before the backbone: a directory with config.json is complete.
            _write_weights(_HeadOnly(self), path / TASK_WEIGHTS_FILE)
            _write_json(
                keras.saving.serialize_keras_object(self), path / TASK_FILE
            )
        _write_weights(backbone, path / MODEL_WEIGHTS_FILE)
        if tokenizer is not None:
            vocabulary = path / VOCABULARY_FILE
            vocabulary.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(vocabulary, tokenizer.model_proto)
            _write_json(
                {"lowercase": tokenizer.lowercase}, path / TOKENIZER_FILE
            )
        _write_json(
            {
                "keras_version": keras.__version__,
                "xlnet_tf_version": __version__,
                "parameter_count": backbone.count_params(),
            },
            path / METADATA_FILE,
        )
        _write_json(
            keras.saving.serialize_keras_object(backbone), path / CONFIG_FILE
        )


class _HeadOnly(keras.Model):
    """What a task has beyond its backbone, as one model to save and load."""

    def __init__(self, task):
        super().__init__()
        self.head = task.head
        self.built = True


def detect(path):
    """Says what kind of model a directory holds.

    Args:
        path: path of a directory.

    Returns:
        "own" or "released".

    Raises:
        FileNotFoundError: if there is no such directory.
        ValueError: if it holds no model that is known.
    """
    if not path.is_dir():
        raise FileNotFoundError(
            f"there is no directory {path}; give the one that holds "
            f"{RELEASED_CONFIG_FILE} or {CONFIG_FILE}."
        )
    if (path / CONFIG_FILE).is_file():
        values = _read_json(path / CONFIG_FILE)
        if values.get("registered_name") == "xlnet_tf>XLNetBackbone":
            return "own"
    if (path / RELEASED_CONFIG_FILE).is_file():
        return "released"
    raise ValueError(
        f"{path} holds no model that is known: expected "
        f"{RELEASED_CONFIG_FILE} with xlnet_model.ckpt.*, or the files that "
        "`save_to_preset` writes."
    )


def read_config(path):
    """The XLNetConfig of a model directory."""
    path = pathlib.Path(path)
    if detect(path) == "released":
        return XLNetConfig.from_json(path / RELEASED_CONFIG_FILE)
    values = dict(_read_json(path / CONFIG_FILE)["config"])
    for name in ("seed", "name", "trainable", "dtype"):
        values.pop(name, None)
    return XLNetConfig.from_dict(values)


def _load_own(model, path):
    backbone = getattr(model, "backbone", model)
    _load_weights(backbone, path / MODEL_WEIGHTS_FILE)
    if backbone is model or not (path / TASK_FILE).is_file():
        return
    saved = _read_json(path / TASK_FILE)["registered_name"]
    # A fresh head is right where the directory holds another task.
    if saved == keras.saving.get_registered_name(type(model)):
        _load_weights(_HeadOnly(model), path / TASK_WEIGHTS_FILE)


def _load_weights(model, file):
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing: the preset is incomplete.")
    try:
        model.load_weights(file)
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
    # Keras wants the name to end so.
    temporary = file.with_name(f"temporary-{os.getpid()}.weights.h5")
    try:
        model.save_weights(temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _write_json(value, file):
    write_bytes(file, (json.dumps(value, indent=2) + "\n").encode())


def _read_json(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not a JSON file: {error}.") from error


def write_bytes(file, data):
    """Writes a file under a temporary name, then renames it."""
    descriptor, temporary = tempfile.mkstemp(
        dir=file.parent, prefix=f".{file.name}."
    )
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
