"""Loading a saved model without naming its class."""

import pathlib
import zipfile

import keras

from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.choices import XLNetMultipleChoice
from xlnet_tf.tasks.choices import XLNetRanker
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.classification import XLNetTokenClassifier
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.question_answering import XLNetSpanClassifier
from xlnet_tf.weights.preset import open_source

# Every class of model, by its name.
MODELS = {
    cls.__name__: cls
    for cls in (
        XLNetBackbone,
        XLNetMultipleChoice,
        XLNetPretrainer,
        XLNetQuestionAnswering,
        XLNetRanker,
        XLNetSpanClassifier,
        XLNetTextClassifier,
        XLNetTextRegressor,
        XLNetTokenClassifier,
    )
}


def load(path):
    """Loads the model that was saved at a path, as the class it was saved as.

    Args:
        path: str or path of a `.keras` file, of the output of a run (its
            `model.keras`), or of a directory in any format that `from_preset`
            reads.

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
    path = pathlib.Path(path)
    if path.is_dir() and (path / "model.keras").is_file():
        path = path / "model.keras"
    if path.is_dir():
        return class_of_directory(path).from_preset(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model at {path}; give the --output of a training "
            "run, a preset directory, or a .keras file."
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .keras file, or it is cut off.")
    try:
        return keras.models.load_model(path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a .keras file, or it is damaged: {error}"
        ) from error


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
