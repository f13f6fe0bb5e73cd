"""Files of preprocessors in a directory: the tokenizer and the settings."""

import importlib.util
import inspect
import os
import reprlib
from typing import Any

import keras

from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json
from data_pipeline.base.files import write_json
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.formats import check_version
from data_pipeline.base.models import as_model_path
from xlnet_tf.weights import own

_NEEDED = ("tensorflow", "tensorflow_text", "sentencepiece", "data_pipeline")


def can_preprocess():
    """Whether all packages that a preprocessor needs are installed.

    The function does not import the packages.
    """
    try:
        return all(importlib.util.find_spec(name) for name in _NEEDED)
    except ImportError:
        return False


def _check_names(file, cls, settings):
    """Refuse saved settings that a preprocessor class does not have."""
    known = inspect.signature(cls).parameters
    if any(x.kind is x.VAR_KEYWORD for x in known.values()):
        return
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ValueError(
            f"{file} is damaged: {cls.__name__} has no {reprlib.repr(unknown)}."
        )


class PreprocessorPreset:
    """Mixin with methods that read and write the presets of preprocessors.

    A subclass must have the attribute `tokenizer` and the method `settings`.
    """

    tokenizer: Any

    @classmethod
    def from_preset(
        cls, path: str | os.PathLike, verify: bool = True, **settings
    ):
        """Make a preprocessor from the tokenizer of a model directory.

        If the directory has a saved preprocessor of this class, the saved
        settings are used; otherwise the default settings.

        Args:
            path: str or path of a preset, or of a directory with a released
                model or a model of Hugging Face.
            verify: bool, whether to compare the files with the directory's
                `SHA256SUMS`, if this file exists. Default True.
            **settings: constructor arguments that override the saved settings.

        Returns:
            A preprocessor of this class.

        Raises:
            FileNotFoundError: if the directory has no tokenizer.
            ValueError: if a file is damaged.
        """
        from data_pipeline.tokenization.hugging_face import read_tokenizer

        directory = as_model_path(path)
        if verify and (directory / own.PREPROCESSOR_FILE).is_file():
            verify_checksums(directory, [own.PREPROCESSOR_FILE])
        saved_cls, saved = cls._saved(directory)
        if "tokenizer" not in settings:
            settings["tokenizer"] = read_tokenizer(directory, verify=verify)
        try:
            return saved_cls.of_settings({**saved, **settings})
        except TypeError as error:
            if not saved:
                raise
            raise ValueError(
                f"{directory / own.PREPROCESSOR_FILE}, or an argument, does "
                f"not fit {saved_cls.__name__}: {error}."
            ) from error

    @classmethod
    def of_settings(cls, settings, *arguments):
        """Make a preprocessor from settings.

        The constructor of a user's class may lack the argument `layout`.
        Therefore a `layout` with the default value is not passed to the
        constructor.
        """
        if settings.get("layout") == "xlnet":
            settings = {k: v for k, v in settings.items() if k != "layout"}
        return cls(*arguments, **settings)

    @classmethod
    def find(cls, path, verify=True, layout="xlnet"):
        """Find the preprocessor of a model directory.

        Args:
            path: str or path. A model directory, or a checkpoint in the
                directory.
            verify: bool, see `from_preset`.
            layout: str, layout of sequences if the directory has no saved
                preprocessor of this class.

        Returns:
            A preprocessor of this class. None if the directory has no tokenizer
            that we can read, or if a package is missing (see `can_preprocess`).

        Raises:
            ValueError, FileNotFoundError: if a file is damaged or missing.
        """
        if not can_preprocess():
            return None
        from data_pipeline.tokenization.hugging_face import has_tokenizer

        path = as_model_path(path)
        path = path if path.is_dir() else path.parent
        if not has_tokenizer(path):
            return None
        saved = cls._saved(path)[1]
        settings = {} if saved else {"layout": layout}
        return cls.from_preset(path, verify=verify, **settings)

    @classmethod
    def _saved(cls, path):
        """Read the class and the settings of a directory's preprocessor."""
        file = path / own.PREPROCESSOR_FILE
        if not file.is_file():
            return cls, {}
        saved = read_json(file)
        is_whole = isinstance(saved, dict) and (
            isinstance(saved.get("config"), dict)
            and isinstance(saved.get("registered_name"), str | None)
        )
        if not is_whole:
            raise ValueError(
                f"{file} is damaged: it does not hold a preprocessor."
            )
        check_version(file, saved.get(FORMAT_VERSION), own.PRESET_VERSION)
        name = saved.get("registered_name")
        saved_cls = cls
        if name != keras.saving.get_registered_name(cls):
            saved_cls = keras.saving.get_registered_object(name)
        # Accept a user's subclass; ignore a preprocessor of another task.
        if isinstance(saved_cls, type) and issubclass(saved_cls, cls):
            _check_names(file, saved_cls, saved["config"])
            return saved_cls, saved["config"]
        return cls, {}

    def save_to_preset(self, path: str | os.PathLike) -> None:
        """Write the settings and the tokenizer to a directory.

        Args:
            path: str or path of a directory, which is created if missing.
        """
        path = as_path(path)
        own.write_tokenizer(self.tokenizer, path)
        self.save_settings(path)
        written = own.TOKENIZER_FILE, own.VOCABULARY_FILE, own.PREPROCESSOR_FILE
        add_checksums(path, written)

    def save_settings(self, path):
        """Write the settings, without the tokenizer, to `preprocessor.json`."""
        saved = {
            FORMAT_VERSION: own.PRESET_VERSION,
            "module": type(self).__module__,
            "class_name": type(self).__name__,
            "registered_name": keras.saving.get_registered_name(type(self)),
            "config": self.settings(),
        }
        write_json(path / own.PREPROCESSOR_FILE, saved)
