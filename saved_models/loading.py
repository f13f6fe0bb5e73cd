"""Loading of what an export is made from: a model and its tokenizer."""

import contextlib
import tempfile

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import copy_tree
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import local_copy
from data_pipeline.base.models import RESULTS_FILE
from data_pipeline.base.models import as_model_path


def load_model(path):
    """Load a model from a run, a preset, a release or a .keras file.

    Args:
        path: str or path.

    Returns:
        A model whose class has signatures; XLNetPretrainer for a directory
        whose files name no head. An XLNetQuestionAnswering of a fine-tuning
        run has the run's `max_answer_length` and, where some questions have no
        answer, its best `null_threshold`.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no model that can be exported.
    """
    from saved_models.signatures import signatures_for
    from xlnet_tf.loading import load

    path = as_path(path)
    model = load(path)
    try:
        signatures_for(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    is_run = path.is_dir() and (path / "model.keras").is_file()
    # What is not a run itself may be its best/ or its model.keras.
    _read_results(model, path if is_run else as_model_path(path).parent)
    return model


def _read_results(model, run):
    """Gives a model for questions the values that its run found best."""
    import xlnet_tf
    from data_pipeline.base.files import read_json

    file = run / RESULTS_FILE
    if isinstance(model, xlnet_tf.XLNetQuestionAnswering) and file.is_file():
        verify_checksums(run, [file.name])
        details = read_json(file).get("details") or {}
        if "threshold" in details:
            model.null_threshold = details["threshold"]
        if details.get("max_answer_length"):
            model.max_answer_length = details["max_answer_length"]


def load_tokenizer(path, lowercase=None):
    """Load the tokenizer beside a model, or of a file of its own.

    Args:
        path: str or path of a model or of a SentencePiece model.
        lowercase: bool, or None for the value in the files beside the model.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged.
    """
    from data_pipeline.tokenization.hugging_face import find_tokenizer_file
    from data_pipeline.tokenization.hugging_face import read_tokenizer
    from data_pipeline.tokenization.tokenizer import Tokenizer

    path = as_model_path(path)
    if path.is_file() and path.suffix != ".keras":
        with local_copy(path) as local:
            return Tokenizer(local, lowercase=bool(lowercase))
    directory = path if path.is_dir() else path.parent
    # A run's preset knows the case of its text, the run itself does not.
    for place in (directory / "preset", directory / "best", directory):
        with _local_tokenizer(place) as local:
            if local.is_dir() and find_tokenizer_file(local) is not None:
                return read_tokenizer(local, lowercase)
    raise FileNotFoundError(
        f"there is no tokenizer (spiece.model, tokenizer.json) in {directory}; "
        "give the model's with --tokenizer."
    )


def tokenizer_for(model, path, given=None, lowercase=None):
    """Load the tokenizer of a model, or the one that is given in its place.

    Args:
        model: a backbone or a task.
        path: str or path that it was loaded from.
        given: str or path of a tokenizer, or None (default). A SentencePiece
            file, which does not say so, lower-cases text if the model's does.
        lowercase: bool, or None (default) as the files or the model have it.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged, or has other pieces than the model.
    """
    try:
        own = load_tokenizer(path, lowercase)
    except FileNotFoundError:
        if given is None:
            raise
        own = None
    found, size = own, model.config.vocabulary_size
    if given is not None:
        is_file = as_model_path(given).is_file()
        if lowercase is None and is_file and own is not None:
            lowercase = own.lowercase
        found = load_tokenizer(given, lowercase)
    pieces = found.vocabulary_size
    if pieces > size or (own is not None and pieces != own.vocabulary_size):
        raise ValueError(
            f"the tokenizer of {given or path} has {pieces:,} pieces, and the "
            f"model {size if own is None else own.vocabulary_size:,}. Give the "
            "tokenizer that the model was trained with."
        )
    return found


@contextlib.contextmanager
def _local_tokenizer(directory):
    """A local directory with the files of the tokenizer of a model."""
    from data_pipeline.tokenization import hugging_face

    if not is_remote(directory):
        yield directory
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in (
            hugging_face.PRESET_FILE,
            hugging_face.MODEL_FILE,
            hugging_face.TOKENIZER_FILE,
            hugging_face.CONFIG_FILE,
            CHECKSUMS_FILE,
        ):
            if (directory / name).is_file():
                target = as_path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_tree(directory / name, target)
        yield as_path(folder)
