"""Reads what is to be exported: a model, and the tokenizer it was made for."""

import pathlib
import zipfile

from xlnet_tf.files import read_json


def load_model(path):
    """Reads a model from a run, a preset, a release or a .keras file.

    Args:
        path: str or path.

    Returns:
        A model whose class has signatures; XLNetPretrainer for a directory
        that does not say of which task its head is. A model for questions
        that was fine-tuned has `max_answer_length`, and where some have no
        answer `null_threshold`, the best one of the run.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no model that can be exported.
    """
    import keras

    from saved_models.signatures import signatures_for

    path = pathlib.Path(path)
    if path.is_dir() and (path / "model.keras").is_file():
        path = path / "model.keras"
    if path.is_dir():
        model = _class_of(path).from_preset(path)
        return _as_the_run_answers(model, path.parent)  # as of RUN/best
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model at {path}; give the --output of a training "
            "run, a preset directory, or a .keras file."
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .keras file, or it is cut off.")
    try:
        model = keras.models.load_model(path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a .keras file, or it is damaged: {error}"
        ) from error
    try:
        signatures_for(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _as_the_run_answers(model, path.parent)


def _class_of(path):
    """The class of the model in a directory, by the head it was saved with."""
    import xlnet_tf
    from saved_models.signatures import SIGNATURES
    from xlnet_tf.weights.preset import open_source

    source = open_source(path)
    try:
        head = source.main_head()
    except ValueError as error:
        raise ValueError(
            f"{path} holds several heads. Take the one to export with python "
            "-m xlnet_tf.convert, which says what there is, and export that."
        ) from error
    if head is None:
        return xlnet_tf.XLNetPretrainer  # its bias is all that is missing
    name = head.task.split(">")[-1]  # as registered with Keras, or as it is
    kinds = {kind.__name__: kind for kind in SIGNATURES}
    if name not in kinds:
        raise ValueError(
            f"{path} holds a {name}, which cannot be exported; these can: "
            f"{', '.join(kinds)}."
        )
    return kinds[name]


def _as_the_run_answers(model, run):
    """Gives a model for questions what its run found and was told."""
    import xlnet_tf

    file = run / "results.json"
    if isinstance(model, xlnet_tf.XLNetQuestionAnswering) and file.is_file():
        details = read_json(file).get("details") or {}
        if "threshold" in details:
            model.null_threshold = details["threshold"]
        if details.get("max_answer_length"):
            model.max_answer_length = details["max_answer_length"]
    return model


def load_tokenizer(path, lowercase=None):
    """The tokenizer beside a model, or of a file of its own.

    Args:
        path: str or path of a model or of a SentencePiece model.
        lowercase: bool, or None for what the files beside the model say.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged.
    """
    from data_pipeline.tokenization.hugging_face import find_tokenizer_file
    from data_pipeline.tokenization.hugging_face import read_tokenizer
    from data_pipeline.tokenization.tokenizer import Tokenizer

    path = pathlib.Path(path)
    if path.is_file() and path.suffix != ".keras":
        return Tokenizer(path, lowercase=bool(lowercase))
    directory = path if path.is_dir() else path.parent
    # A run keeps its tokenizer in its preset too, with the case of its text.
    for place in (directory / "preset", directory / "best", directory):
        if place.is_dir() and find_tokenizer_file(place) is not None:
            return read_tokenizer(place, lowercase)
    raise FileNotFoundError(
        f"there is no tokenizer (spiece.model, tokenizer.json) in {directory}; "
        "give the model's with --tokenizer."
    )
