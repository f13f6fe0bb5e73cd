"""Loading of saved models of any format.

Other modules find models by `open_model`. The argument of `open_model` is the
path of a run's output, of a model's directory in any format, or of a `.keras`
file. The result is a StoredModel, which loads the model, the tokenizer and the
results of the model's run.
"""

import os

import keras

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json
from data_pipeline.base.models import RESULTS_FILE
from data_pipeline.base.models import RUN_FILE
from data_pipeline.base.models import TRAINING_FILE
from data_pipeline.base.models import as_model_path
from data_pipeline.base.models import read_results
from xlnet_tf.keras_file import load_keras_file
from xlnet_tf.model.backbones import BACKBONES
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.preprocessing.preprocessor import check_vocabulary
from xlnet_tf.tasks.choices import XLNetMultipleChoice
from xlnet_tf.tasks.choices import XLNetRanker
from xlnet_tf.tasks.multi_label_classifier import XLNetMultiLabelClassifier
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.question_answering import XLNetSpanClassifier
from xlnet_tf.tasks.seq2seq import XLNetSeq2Seq
from xlnet_tf.tasks.text_classifier import XLNetTextClassifier
from xlnet_tf.tasks.text_regressor import XLNetTextRegressor
from xlnet_tf.tasks.token_classifier import XLNetTokenClassifier
from xlnet_tf.weights.own import CONFIG_FILE
from xlnet_tf.weights.own import TASK_FILE
from xlnet_tf.weights.preset import open_source

_KERAS_FILE = "model.keras"  # in the output of a run

# Name of a model class -> class.
MODELS = {
    cls.__name__: cls
    for cls in (
        *BACKBONES.values(),
        XLNetMultiLabelClassifier,
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


def open_model(path: str | os.PathLike) -> "StoredModel":
    """Find the model at a path, without reading it.

    Args:
        path: str or path. It may name a `.keras` file, a run's output, or
            anything else that `from_preset` accepts.

    Returns:
        StoredModel.

    Raises:
        ValueError: if the path is the output of several runs.
    """
    return StoredModel(path)


def load(path: str | os.PathLike, verify: bool = True) -> keras.Model:
    """Load a saved model as an instance of the saved class.

    Args:
        path: str or path, see `open_model`. From a run's output the function
            loads `model.keras`, or the run's preset if this file is missing.
        verify: bool, whether to compare the files of a directory with its
            `SHA256SUMS`, if this file exists. Default True. The checksums in a
            `.keras` file are always verified.

    Returns:
        A model. It is an XLNetPretrainer if the directory has only a backbone.

    Raises:
        FileNotFoundError: if nothing is at the path.
        ValueError: if the path has no model of a known format, or if the model
            has several heads.

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny", vocabulary_size=100)
    backbone = xlnet_tf.XLNetBackbone(config)
    xlnet_tf.XLNetTextRegressor(backbone).save_to_preset("regressor")
    model = xlnet_tf.load("regressor")
    assert isinstance(model, xlnet_tf.XLNetTextRegressor)
    ```
    """
    return open_model(path).load(verify)


class StoredModel:
    """Saved model on a disk or in a bucket, with its tokenizer and results.

    Args:
        path: see `open_model`.

    Attributes:
        path: path of the model's directory or `.keras` file. If the argument is
            the output of a run, the attribute is the path of the run's preset.
        run: path of the model's run, or None for a model that is not in the
            output of a run.
    """

    def __init__(self, path):
        given = as_path(path)
        self.path = place = as_model_path(given)
        file = given / _KERAS_FILE
        self._file = file if file.is_file() else place
        near = given, place, place.parent
        self.run = next((x for x in near if (x / RUN_FILE).is_file()), None)

    def load(self, verify=True):
        """Load the model; see the function `load`."""
        if self._file.is_dir():
            cls = class_of_directory(self.path, verify)
            return cls.from_preset(self.path, verify=verify)
        model = load_keras_file(self._file)
        preset = self._file.parent / "preset"
        has_none = getattr(model, "preprocessor", True) is None
        if has_none and model.preprocessor_cls is not None and preset.is_dir():
            model.find_preprocessor(preset, verify)
        return model

    def source(self, config_file=None):
        """Open the weights of the directory; see `open_source`."""
        return open_source(self.path, config_file)

    def tokenizer(self, lowercase=None):
        """Load the model's tokenizer.

        Args:
            lowercase: bool, whether to lower-case text, or None (default) for
                the value in the tokenizer's files.

        Returns:
            Tokenizer, or None if the model has no tokenizer.

        Raises:
            ValueError: if the tokenizer is damaged.
        """
        from data_pipeline.tokenization.hugging_face import has_tokenizer
        from data_pipeline.tokenization.hugging_face import read_tokenizer

        directory = self.path if self.path.is_dir() else self.path.parent
        # Only a run's preset records whether its text is lower-cased.
        for place in (directory / "preset", directory / "best", directory):
            if place.is_dir() and has_tokenizer(place):
                return read_tokenizer(place, lowercase)
        return None

    def tokenizer_for(self, model, given=None, lowercase=None):
        """Load a given tokenizer or the model's own; check the vocabulary size.

        Args:
            model: the loaded model.
            given: str or path of a tokenizer, or None (default) for the model's
                own tokenizer. A SentencePiece file does not record whether text
                is lower-cased. For such a file the setting of the model's own
                tokenizer is used.
            lowercase: bool, whether to lower-case text, or None (default) for
                the value in the files.

        Returns:
            Tokenizer.

        Raises:
            FileNotFoundError: if there is no tokenizer.
            ValueError: if the tokenizer is damaged, or if its number of pieces
                does not fit the model.
        """
        own = self.tokenizer(lowercase)
        tokenizer = own
        if given is not None:
            if own is not None and lowercase is None:
                lowercase = own.lowercase if as_path(given).is_file() else None
            tokenizer = load_tokenizer(given, lowercase)
        if tokenizer is None:
            raise FileNotFoundError(_no_tokenizer(self.path))
        pieces = tokenizer.vocabulary_size
        if own is not None and pieces != own.vocabulary_size:
            raise ValueError(
                f"the tokenizer of {given} has {pieces:,} pieces, and the "
                f"model's {own.vocabulary_size:,}. Give the tokenizer that "
                "the model was trained with."
            )
        check_vocabulary(pieces, model.config.vocabulary_size)
        return tokenizer

    def results(self):
        """Read `results.json` of the model's run; None without this file."""
        if self.run is None or not (self.run / RESULTS_FILE).is_file():
            return None
        return read_results(self.run)

    def training(self):
        """Read `training.json` of the model's run; {} without this file."""
        if self.run is None or not (self.run / TRAINING_FILE).is_file():
            return {}
        return read_json(self.run / TRAINING_FILE)


def load_tokenizer(path, lowercase=None):
    """Load a tokenizer from a SentencePiece file or a model's files.

    Args:
        path: str or path of a SentencePiece file or of a model.
        lowercase: bool, whether to lower-case text, or None (default) for the
            value in the model's files.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError: if the path has no tokenizer.
        ValueError: if the tokenizer is damaged.
    """
    place = as_model_path(path)
    if place.is_file() and place.suffix != ".keras":
        from data_pipeline.tokenization.tokenizer import Tokenizer

        return Tokenizer(place, lowercase=bool(lowercase))
    tokenizer = open_model(path).tokenizer(lowercase)
    if tokenizer is None:
        raise FileNotFoundError(_no_tokenizer(place))
    return tokenizer


def _no_tokenizer(path):
    from data_pipeline.tokenization.hugging_face import tokenizer_advice

    return (
        f"there is no tokenizer (spiece.model, tokenizer.json) in {path}. "
        f"{tokenizer_advice(path)} If it is elsewhere, give --tokenizer."
    )


def class_of_directory(path, verify=True):
    """Find the class of a directory's model by the heads in the directory.

    Args:
        path: path of the directory.
        verify: bool, whether to compare `config.json` and `task.json` with
            their digests in `SHA256SUMS`. Default True.

    Returns:
        A task class. It is XLNetPretrainer for a backbone without a head,
        because the backbone has all weights of an XLNetPretrainer except the
        bias of the LM head.

    Raises:
        ValueError: if the model has several heads or a head of an unknown
            class, or if a file was changed.
    """
    if verify and path.is_dir():
        verify_checksums(path, [CONFIG_FILE, TASK_FILE])
    source = open_source(path)
    heads = source.heads()
    try:
        head = source.main_head()
    except ValueError as error:
        names = ", ".join(dict.fromkeys(head.task for head in heads))
        raise ValueError(
            f"{path} holds several heads, of {names}. Load a head with "
            "`from_preset` of its class, or write it alone with python -m "
            "xlnet_tf.convert."
        ) from error
    if head is None:
        return XLNetPretrainer
    cls = class_of_head(head)
    if cls is None:
        raise ValueError(
            f"{path} holds a {head.task}, which is not registered with Keras. "
            "First import the module that registers the class."
        )
    return cls


def class_of_head(head):
    """Find the task class that Keras has registered for a Head, or None."""
    name = head.task.removeprefix("xlnet_tf>")
    return MODELS.get(name) or keras.saving.get_registered_object(head.task)
