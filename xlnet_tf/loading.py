"""Loading a saved model without naming its class."""

import json
import math
import zipfile

import keras

from xlnet_tf.files import as_path
from xlnet_tf.files import local_copy
from xlnet_tf.files import size_of
from xlnet_tf.model.backbones import BACKBONES
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.choices import XLNetMultipleChoice
from xlnet_tf.tasks.choices import XLNetRanker
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.classification import XLNetTokenClassifier
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.question_answering import XLNetSpanClassifier
from xlnet_tf.tasks.seq2seq.task import XLNetSeq2Seq
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.source import check_size
from xlnet_tf.weights.source import head_parameters

# The vocabulary of a preprocessor is in it too, some megabytes.
_MOST_CONFIG_BYTES = 2**28

# Every class of model, by its name.
MODELS = {
    cls.__name__: cls
    for cls in (
        *BACKBONES.values(),
        XLNetMultipleChoice,
        XLNetPretrainer,
        XLNetQuestionAnswering,
        XLNetRanker,
        XLNetSeq2Seq,
        XLNetSpanClassifier,
        XLNetTextClassifier,
        XLNetTextRegressor,
        XLNetTokenClassifier,
    )
}


def load(path, verify=True):
    """Loads the model that was saved at a path, as the class it was saved as.

    Args:
        path: str or path of a `.keras` file, of the output of a run (its
            `model.keras`), or of a directory in any format that `from_preset`
            reads.
        verify: bool, whether to compare the files of a directory with the
            `SHA256SUMS` beside them, if there is one. Default True. A `.keras`
            file has checksums of its own.

    Returns:
        A model; XLNetPretrainer for a directory with a backbone alone.

    Raises:
        FileNotFoundError: if nothing is at the path.
        ValueError: if it holds no known model, or several heads.

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny", vocabulary_size=100)
    backbone = xlnet_tf.XLNetBackbone(config)
    xlnet_tf.XLNetTextRegressor(backbone).save_to_preset("regressor")
    model = xlnet_tf.load("regressor")
    assert isinstance(model, xlnet_tf.XLNetTextRegressor)
    ```
    """
    path = as_path(path)
    if path.is_dir() and (path / "model.keras").is_file():
        model = load_keras_file(path / "model.keras")
        _find_preprocessor(model, path, verify)
        return model
    if path.is_dir():
        return class_of_directory(path).from_preset(path, verify=verify)
    return load_keras_file(path)


def _find_preprocessor(model, run, verify):
    """Gives a model of a run the preprocessor of the run's preset."""
    preset = run / "preset"
    has_none = getattr(model, "preprocessor", True) is None
    if has_none and model.preprocessor_cls is not None and preset.is_dir():
        model.find_preprocessor(preset, verify)


def load_keras_file(path):
    """Loads a `.keras` file.

    Args:
        path: path.

    Returns:
        A model of the class that it was saved as.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged, or its config and weights do not fit.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model at {path}; give the --output of a training "
            "run, a preset directory, or a .keras file."
        )
    with local_copy(path) as local:
        if not zipfile.is_zipfile(local):
            raise ValueError(f"{path} is not a .keras file, or it is cut off.")
        try:
            _check_sizes(local, path)
            return keras.models.load_model(local)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} is not a .keras file, or it is damaged: {error}"
            ) from error
        except MemoryError as error:
            raise ValueError(
                f"{path} needs more memory than there is."
            ) from error


def _check_sizes(local, path):
    """Refuses a file whose config is far larger than a model's or its own."""
    with zipfile.ZipFile(local) as archive:
        size = archive.getinfo("config.json").file_size
        if size > _MOST_CONFIG_BYTES:
            raise ValueError(
                f"{path} is damaged: its config.json says that it has "
                f"{size:,} bytes."
            )
        text = archive.read("config.json")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: its config.json is not JSON: {error}."
        ) from error
    check_size(path, _num_parameters(values), size_of(local))


def _num_parameters(values):
    """About how many weights the models in a config of Keras' have, int."""
    waiting, count, widths = [values], 0, [0]
    backbones = {f"xlnet_tf>{x.__name__}": x for x in BACKBONES.values()}
    tasks = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        if not isinstance(value, dict):
            continue
        waiting += value.values()
        config = value.get("config")
        if not isinstance(config, dict):
            continue
        kind = value.get("registered_name")
        if isinstance(kind, str) and kind in backbones:
            cls = backbones[kind].config_class
            names = cls.field_names()
            backbone = cls.from_dict(
                {k: v for k, v in config.items() if k in names}
            )
            count += backbone.num_parameters()
            widths.append(backbone.hidden_dim)
        elif kind == "xlnet_tf>StatefulMemory":
            sizes = ("batch_size", "memory_length", "hidden_dim", "num_layers")
            count += math.prod(config[name] for name in sizes)
        tasks.append(config)
    return count + sum(head_parameters(task, max(widths)) for task in tasks)


def class_of_directory(path):
    """The class of the model in a directory, by its head.

    Args:
        path: path.

    Returns:
        A class of task; XLNetPretrainer for a backbone alone, of which only
        the bias of its head is missing.

    Raises:
        ValueError: if it holds several heads, or one of an unknown class.
    """
    source = open_source(path)
    heads = source.heads()
    try:
        head = source.main_head()
    except ValueError as error:
        names = ", ".join(dict.fromkeys(head.task for head in heads))
        raise ValueError(
            f"{path} holds several heads, of {names}. Load the one you need "
            "with `from_preset` of its class, or write it alone with python "
            "-m xlnet_tf.convert."
        ) from error
    if head is None:
        return XLNetPretrainer
    cls = class_of_head(head)
    if cls is None:
        raise ValueError(
            f"{path} holds a {head.task}, which Keras does not know. Import "
            "the module that registers the class first."
        )
    return cls


def class_of_head(head):
    """The class of a Head's task, registered with Keras; None if unknown."""
    name = head.task.removeprefix("xlnet_tf>")
    return MODELS.get(name) or keras.saving.get_registered_object(head.task)
