"""Model directories, in all formats that `from_preset` reads."""

import os
import re
from typing import TYPE_CHECKING
from typing import Any

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_model_of_hub
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import read_json
from data_pipeline.base.files import written_whole
from data_pipeline.base.models import as_model_path
from data_pipeline.base.models import near_shipped
from xlnet_tf.config import CONFIGS
from xlnet_tf.config.bert import is_bert
from xlnet_tf.config.xlnet import is_of_hugging_face
from xlnet_tf.weights import own
from xlnet_tf.weights.own import VOCABULARY_FILE  # noqa: F401
from xlnet_tf.weights.source import RELEASED_CONFIG_FILE
from xlnet_tf.weights.tensor_files import open_archive
from xlnet_tf.weights.tensor_files import save_weights

# Model Garden's trainer writes this file next to its checkpoints.
PARAMETERS_FILE = "params.yaml"

# The base of the mixin `Preset`. For type checkers, the base is a Keras model.
if TYPE_CHECKING:
    from keras import Model as _Model
else:
    _Model = object


class Preset(_Model):
    """Mixin with `from_preset` and `save_to_preset`, for backbones and tasks.

    Subclasses define `for_source`.
    """

    @classmethod
    def from_preset(
        cls,
        path: str | os.PathLike,
        load_weights: bool = True,
        dtype: Any = None,
        head: str | None = None,
        strict: bool = True,
        verify: bool = True,
        **overrides,
    ):
        """Make a model from a directory.

        The format of the directory is detected. The formats are:

        - the files of `save_to_preset`
        - the released `xlnet_config.json` with a TensorFlow 1 checkpoint
        - `xlnet_config.json` or `params.yaml` with Model Garden's checkpoint
        - Hugging Face's `config.json` with `model.safetensors`, its shards, or
          `pytorch_model.bin`

        The config field `gelu` is set to the form of GELU that the format's own
        code computes: "tanh" for the release, "erf" for Hugging Face's "gelu".

        A task loads its head from the directory if the directory has a head of
        the task's kind that fits the arguments. Otherwise the head is new.

        Layers that were frozen or quantized at `save_to_preset` are frozen or
        quantized again. To train all layers, set `model.trainable` to False and
        then to True. On TensorFlow, Keras ignores True if `model.trainable` is
        already True. `save_to_preset` merges LoRA adapters into the weights. If
        the saved model had adapters, the loaded model has none, and no layer of
        its backbone is frozen.

        Args:
            path: str or path of a model directory, of a training run, or of a
                TensorFlow checkpoint's prefix. The checkpoint's config must be
                in the same directory. `path` may also be hf://OWNER/NAME, or
                "xlnet_tiny_en", the model in the package.
            load_weights: bool, whether to load the weights. If False, the model
                keeps its initial weights. Default True.
            dtype: str or dtype policy, such as "mixed_bfloat16".
            head: str, name of the head if several heads in the directory fit,
                such as "mnli" for the released `classification_mnli`.
            strict: bool. If False, weights that fit are loaded, and a warning
                lists all other weights. Default True.
            verify: bool, whether to compare the files with the directory's
                `SHA256SUMS`, if this file exists. Default True.
            **overrides: config fields to replace, and arguments of the class.
                As in the released code, `dropout` also sets the head's dropout
                rate.

        Returns:
            A model of this class.

        Raises:
            FileNotFoundError: if the directory or a file in it is missing.
            ValueError: if the directory has no model of a known format, the
                model does not fit the arguments, or a file was changed.
        """
        source = open_source(path)
        with source.checked(load_weights, verify):
            return cls.from_source(
                source,
                load_weights=load_weights,
                dtype=dtype,
                head=head,
                strict=strict,
                **overrides,
            )

    @classmethod
    def from_source(
        cls,
        source,
        load_weights=True,
        dtype=None,
        head=None,
        strict=True,
        **overrides,
    ):
        """Make a model from a source.

        Args:
            source: WeightSource.
            load_weights, dtype, head, strict, overrides: see `from_preset`.

        Returns:
            A model of this class.
        """
        model, found = cls.for_source(source, head, dtype=dtype, **overrides)
        if load_weights:
            source.fill(model, found, strict=strict)
        return model

    @classmethod
    def for_source(cls, source, head, **overrides):
        """Make a model for the weights of a source, without loading them.

        Args:
            source: WeightSource.
            head: str, name that selects one of several heads, or None.
            **overrides: see `from_preset`; may include `dtype`.

        Returns:
            (model of this class, Head to load). The Head is None if no head in
            the source fits and the model has a new head.
        """
        raise NotImplementedError

    def save_to_preset(
        self,
        path: str | os.PathLike,
        tokenizer: Any = None,
        dtype: str = "float32",
    ) -> None:
        """Write the model to a directory for `from_preset`.

        An earlier model in the directory is replaced completely; other files
        stay. `SHA256SUMS` lists the digests of the written files.

        Adapters (LoRA) are merged into the weights, and also written to
        `adapters.lora.h5`. `load_lora_weights` loads this file into the base
        model that the adapters were trained with.

        Args:
            path: str or path of a directory, which is made if missing; or
                `hf://OWNER/NAME`, to which huggingface_hub uploads the files.
            tokenizer: object with `model_proto` (bytes) and `lowercase`
                (bool). Default None: the tokenizer of the task's preprocessor.
                If there is no preprocessor, an earlier tokenizer stays.
            dtype: str, "float32", or "float16" for files of half the size.
                float16 weights are read back as float32, rounded to 11 bits.

        Raises:
            ValueError: if a weight is outside the range of `dtype`.
            OSError: if a file cannot be written or uploaded.
        """
        if is_model_of_hub(path):
            with written_whole(path) as local:
                own.save_preset(self, local, tokenizer, dtype)
        else:
            own.save_preset(self, path, tokenizer, dtype)

    def save(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs,
    ) -> None:
        """Write the model to a `.keras` file, in Keras' format.

        On a local disk, a failed write leaves the earlier file unchanged.

        Args:
            filepath, overwrite, zipped: see `keras.Model.save`.

        Raises:
            OSError: if the file cannot be written.
        """
        path = _replaced_whole(filepath, ".keras", overwrite)
        if path is None or zipped is False:
            super().save(filepath, overwrite, zipped, **kwargs)
            return
        with written_whole(path) as file, open_archive(file) as archive:
            super().save(archive, **kwargs)

    def save_weights(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        max_shard_size: float | None = None,
    ) -> None:
        """Write the weights to a `.weights.h5` file, in Keras' format.

        On a local disk, a failed write leaves the earlier file unchanged,
        because the new file is first made in memory. This does not hold with
        `max_shard_size`.

        Args:
            filepath, overwrite, max_shard_size: see
                `keras.Model.save_weights`.

        Raises:
            OSError: if the file cannot be written.
        """
        path = _replaced_whole(filepath, ".weights.h5", overwrite)
        if path is None or max_shard_size is not None:
            super().save_weights(filepath, overwrite, max_shard_size)
            return
        with written_whole(path) as file:
            save_weights(super(), file)


def _replaced_whole(filepath, ending, overwrite):
    """Find the local file to write atomically; None: let Keras write it."""
    is_path = isinstance(filepath, (str, os.PathLike))
    if not is_path or "://" in os.fspath(filepath):
        return None
    path = as_path(filepath).resolve()  # replace the target of a link
    is_free = overwrite or not path.exists()
    return path if path.name.endswith(ending) and is_free else None


def split_overrides(source, overrides):
    """Separate overrides of config fields from arguments of the class.

    Args:
        source: WeightSource.
        overrides: dict, see `Preset.from_preset`.

    Returns:
        (config of the source with the overrides, dict of arguments).

    Raises:
        ValueError: if a field belongs to the config of another model.
    """
    config = source.config()
    names = config_fields()
    fields = {k: v for k, v in overrides.items() if k in names}
    arguments = {k: v for k, v in overrides.items() if k not in names}
    return config.replace(**fields), arguments


def config_fields():
    """Make the set of the field names of all config classes."""
    return {name for cls in CONFIGS for name in cls.field_names()}


def open_source(path, config_file=None):
    """Open a model directory in any supported format.

    Args:
        path: str or path, see `Preset.from_preset`.
        config_file: str or path of a TensorFlow checkpoint's config. Default:
            `xlnet_config.json` in the checkpoint's directory.

    Returns:
        WeightSource.

    Raises:
        FileNotFoundError: if the directory or its config is missing.
        ValueError: if the directory has no model of a known format.
    """
    path = as_model_path(path)
    _refuse_lost_links(path)
    return FORMATS[detect(path, config_file)](path, config_file)


def _refuse_lost_links(path):
    """Refuse broken links, which would silently count as missing files."""
    if is_remote(path) or not path.is_dir():
        return
    for file in [*path.iterdir(), path / own.VOCABULARY_FILE]:
        is_hidden = file.name.startswith(".")  # such as lock files of editors
        if file.is_symlink() and not file.exists() and not is_hidden:
            raise FileNotFoundError(
                f"{file} is a link that leads to no file. Correct or remove "
                "the link."
            )


def detect(path, config_file=None):
    """Detect the format of a model directory.

    Args:
        path: path of a directory or of a TensorFlow checkpoint's prefix.
        config_file: path of the checkpoint's config, or None.

    Returns:
        str, a key of FORMATS. "tensorflow" means a checkpoint of the released
        code or of Model Garden.

    Raises:
        FileNotFoundError: if the directory does not exist.
        ValueError: if the directory has no model of a known format.
    """
    # The working directory, ".", is a path without a name, and so no prefix.
    index = path.parent / f"{path.name}.index"
    is_prefix = bool(path.name) and index.is_file()
    if not path.is_dir() and not is_prefix:
        advice = near_shipped(path)
        if path.is_file():
            advice = " It is a file; xlnet_tf.load reads .keras files."
            if path.suffix == ".index":
                advice = f" Name the checkpoint: {path.with_suffix('')}."
        name = str(path).lower().replace("_", "-")
        if re.fullmatch("xlnet-(base|large)-cased", name):
            advice = (
                f" Did you mean hf://xlnet/{name}, of the Hugging Face Hub, or "
                "xlnet_tiny_en, which comes with the package?"
            )
        if re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)):
            advice = f" Did you mean hf://{path}, of the Hugging Face Hub?"
        raise FileNotFoundError(
            f"there is no directory {path}; give the one that holds "
            f"{RELEASED_CONFIG_FILE} or {own.CONFIG_FILE}.{advice}"
        )
    if config_file or is_prefix:
        return "tensorflow"
    if own.is_preset(path):
        return "own"
    if (path / RELEASED_CONFIG_FILE).is_file():
        return "tensorflow"
    file = path / own.CONFIG_FILE
    if file.is_file():
        values = read_json(file)
        values = values if isinstance(values, dict) else {}
        model_type = values.get("model_type")
        is_xlnet = model_type in (None, "xlnet") and is_of_hugging_face(values)
        if is_xlnet or is_bert(values):
            return "hugging_face"
        if model_type:
            raise ValueError(
                f"{path} holds a model of the type {str(model_type)[:80]!r}, "
                "not XLNet's or BERT's."
            )
    elif (path / PARAMETERS_FILE).is_file():
        return "tensorflow"
    elif any(f.name.endswith(".index") for f in path.iterdir()):
        return "tensorflow"  # without a config, or of another model
    raise ValueError(
        f"{path} holds no model that is known: expected "
        f"{RELEASED_CONFIG_FILE} with xlnet_model.ckpt.*, Hugging Face's "
        f"{own.CONFIG_FILE} with model.safetensors, or the files that "
        "`save_to_preset` writes."
    )


def read_config(path):
    """Read the config of a model directory, XLNetConfig or BertConfig."""
    return open_source(path).config()


# Each format's module is imported on use, because reading presets needs neither
# TensorFlow nor safetensors.


def _open_preset(path, config_file):
    return own.PresetSource(path)


def _open_hugging_face(path, config_file):
    from xlnet_tf.weights.hugging_face import open_directory

    return open_directory(path)


def _open_tensorflow(path, config_file):
    from xlnet_tf.weights.model_garden import ModelGardenSource
    from xlnet_tf.weights.released import ReleasedSource
    from xlnet_tf.weights.released import check_is_xlnet
    from xlnet_tf.weights.tensorflow import TensorFlowCheckpoint

    directory = path if path.is_dir() else path.parent
    files = [directory / RELEASED_CONFIG_FILE, directory / PARAMETERS_FILE]
    found = [file for file in files if file.is_file()]
    if config_file:
        found = [as_path(config_file)]
    checkpoint = TensorFlowCheckpoint(path)
    if not checkpoint.has_objects:
        check_is_xlnet(checkpoint)
    if not found:
        raise FileNotFoundError(
            f"{path} holds a TensorFlow checkpoint without its "
            f"{RELEASED_CONFIG_FILE} (or {PARAMETERS_FILE}, if it is Model "
            "Garden's); copy the one of the model it was trained from there."
        )
    kind = ModelGardenSource if checkpoint.has_objects else ReleasedSource
    return kind(checkpoint, found[0])


# From the result of `detect` to a function (path, config file) -> WeightSource.
FORMATS = {
    "own": _open_preset,
    "hugging_face": _open_hugging_face,
    "tensorflow": _open_tensorflow,
}
