"""Writes a SavedModel that takes raw text: `python -m saved_models.export`.

python -m saved_models.export --model runs/demo --output saved_models/demo/1
"""

import argparse
import pathlib
import shutil
import sys
import zipfile

from data_pipeline import command_line


def export_model(
    model,
    tokenizer,
    directory,
    sequence_length=512,
    num_candidates=5,
    overwrite=False,
):
    """Writes a versioned SavedModel of a pretrainer.

    It is written under a temporary name beside its place and renamed, so that
    a server that watches the directory never sees half of it.

    Args:
        model: XLNetPretrainer, on any strategy; a copy is exported.
        tokenizer: data_pipeline Tokenizer that the model was trained with.
        directory: path that ends in the version, a positive integer.
        sequence_length: int, tokens of a text at most. Default 512.
        num_candidates: int, tokens returned for every blank. Default 5.
        overwrite: bool, whether to replace an existing version.

    Returns:
        path of the SavedModel.

    Raises:
        ValueError: if the version is not a number, the tokenizer is not the
            model's, or a setting is out of range.
        FileExistsError: if the version exists.
    """
    import tensorflow as tf

    from saved_models.signatures import PretrainerSignatures

    directory = pathlib.Path(directory)
    _check_settings(
        model, tokenizer, directory, sequence_length, num_candidates
    )
    if directory.exists() and not overwrite:
        raise FileExistsError(
            f"{directory} exists. Give the next version, or --overwrite."
        )
    served = _copy_for_serving(model)
    module = PretrainerSignatures(
        served, tokenizer, sequence_length, num_candidates
    )
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = directory.parent / f".{directory.name}.temporary"
    replaced = directory.parent / f".{directory.name}.replaced"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        tf.saved_model.save(module, str(temporary), module.signatures())
        if directory.exists():
            # A rename aside, so that no server reads a half-deleted one.
            shutil.rmtree(replaced, ignore_errors=True)
            directory.rename(replaced)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return directory


def _check_settings(
    model, tokenizer, directory, sequence_length, num_candidates
):
    if not _is_version(directory):
        raise ValueError(
            "the output must end in a version number, which TensorFlow "
            f"Serving looks for: {directory / '1'}. Received: {directory}."
        )
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocabulary_size} pieces and the "
            f"model {model.config.vocabulary_size} tokens. Give the tokenizer "
            "that the model was trained with."
        )
    if sequence_length < 3:
        raise ValueError(
            "`sequence_length` must be at least 3: a token, [SEP] and [CLS]. "
            f"Received: sequence_length={sequence_length}."
        )
    if not 0 < num_candidates <= model.config.vocabulary_size:
        raise ValueError(
            "`num_candidates` must be between 1 and the vocabulary's size, "
            f"{model.config.vocabulary_size}. "
            f"Received: num_candidates={num_candidates}."
        )


def _copy_for_serving(model):
    """The same weights outside any strategy, without memory between calls."""
    config = model.get_config()
    config["memory"] = None
    served = type(model).from_config(config)
    # Of its parts, for memory is a weight of the model too; frozen ones also.
    for name in ("backbone", "head"):
        for variable, value in zip(
            getattr(served, name).weights,
            getattr(model, name).weights,
            strict=True,
        ):
            variable.assign(value.numpy())
    return served


def load_model(path):
    """Reads a pretrainer from a run, a preset, a release or a .keras file.

    Args:
        path: str or path.

    Returns:
        XLNetPretrainer.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no pretrainer.
    """
    import keras

    import xlnet_tf

    path = pathlib.Path(path)
    if path.is_dir() and (path / "model.keras").is_file():
        path = path / "model.keras"
    if path.is_dir():
        return xlnet_tf.XLNetPretrainer.from_preset(path)
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
    if not isinstance(model, xlnet_tf.XLNetPretrainer):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, and only an "
            "XLNetPretrainer can be exported."
        )
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
    from data_pipeline.hugging_face_tokenizer import find_tokenizer_file
    from data_pipeline.hugging_face_tokenizer import read_tokenizer
    from data_pipeline.tokenizer import Tokenizer

    path = pathlib.Path(path)
    if path.is_file() and path.suffix != ".keras":
        return Tokenizer(path, lowercase=bool(lowercase))
    directory = path if path.is_dir() else path.parent
    # A run keeps its tokenizer in its preset too, with the case of its text.
    for place in (directory / "preset", directory):
        if place.is_dir() and find_tokenizer_file(place) is not None:
            return read_tokenizer(place, lowercase)
    raise FileNotFoundError(
        f"there is no tokenizer (spiece.model, tokenizer.json) in {directory}; "
        "give the model's with --tokenizer."
    )


def next_version(directory):
    """`directory` itself if it ends in a version, else its next version.

    Args:
        directory: path.

    Returns:
        path that ends in a positive integer.
    """
    directory = pathlib.Path(directory)
    if _is_version(directory):
        return directory
    versions = [0]
    if directory.is_dir():
        versions += [int(p.name) for p in directory.iterdir() if _is_version(p)]
    return directory / str(max(versions) + 1)


def _is_version(path):
    return path.name.isascii() and path.name.isdigit()


def main(argv=None):
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m saved_models.export",
        description="Export a model as a SavedModel that takes raw text.",
    )
    add = parser.add_argument
    add("--model", required=True, help="run, preset, release or .keras file")
    add(
        "--output",
        required=True,
        help="NAME/VERSION, or NAME for its next version",
    )
    add("--tokenizer", help="default: the one beside the model")
    add("--lowercase", action="store_true", help="for an uncased tokenizer")
    add("--sequence-length", type=int, default=512)
    add("--num-candidates", type=int, default=5, help="for every blank")
    add("--overwrite", action="store_true")
    arguments = parser.parse_args(argv)

    model = load_model(arguments.model)
    tokenizer = load_tokenizer(
        arguments.tokenizer or arguments.model, arguments.lowercase or None
    )
    directory = export_model(
        model,
        tokenizer,
        next_version(arguments.output),
        arguments.sequence_length,
        arguments.num_candidates,
        arguments.overwrite,
    )
    sys.stdout.write(f"wrote {directory}\n")
    return 0


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
