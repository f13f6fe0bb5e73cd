"""Writes a SavedModel that takes raw text: `python -m saved_models.export`.

python -m saved_models.export --model runs/demo --output saved_models/demo/1
"""

import argparse
import pathlib
import sys

from data_pipeline import command_line
from saved_models import versions
from saved_models.settings import PRECISIONS
from saved_models.settings import ExportSettings


def export_model(
    model, tokenizer, directory, overwrite=False, source=None, **settings
):
    """Writes a versioned SavedModel.

    It is written under a temporary name beside its place and renamed, so that
    a server that watches the directory never sees half of it. In its
    `assets.extra` lie requests that warm a server up, and `model_card.json`.

    Args:
        model: a model whose class has signatures (`saved_models.signatures`),
            on any strategy; a copy is exported.
        tokenizer: data_pipeline Tokenizer that the model was trained with.
        directory: path that ends in the version, a positive integer.
        overwrite: bool, whether to replace an existing version.
        source: path of the run that trained it, for the model card.
        **settings: see `ExportSettings`.

    Returns:
        path of the SavedModel.

    Raises:
        ValueError: if the version is not a number, the tokenizer is not the
            model's, or a setting is out of range.
        FileExistsError: if the version exists.
    """
    import tensorflow as tf

    from saved_models.model_card import write_card
    from saved_models.signatures import signatures_for
    from saved_models.warm_up import write_requests

    directory = pathlib.Path(directory)
    settings = ExportSettings.for_model(model, **settings)
    _check(model, tokenizer, directory)
    if directory.exists() and not overwrite:
        raise FileExistsError(
            f"{directory} exists. Give the next version, or --overwrite."
        )
    module = signatures_for(model)(model, tokenizer, settings)
    if settings.window_stride and not module.reads_windows:
        raise ValueError(
            "`window_stride` is for classifiers and regressors of texts. "
            f"Received: window_stride={settings.window_stride} for a "
            f"{type(model).__name__}."
        )
    signatures = module.signatures()
    functions = {}
    for signature in signatures.values():
        if id(signature) not in functions:
            functions[id(signature)] = signature.concrete()
    traced = {
        name: (signature, functions[id(signature)])
        for name, signature in signatures.items()
    }
    with versions.written_whole(directory) as temporary:
        tf.saved_model.save(
            module,
            str(temporary),
            {name: function for name, (_, function) in traced.items()},
        )
        write_requests(temporary, directory.parent.name, signatures)
        write_card(
            temporary, model, tokenizer, settings, module, traced, source
        )
    return directory


def _check(model, tokenizer, directory):
    if not versions.is_version(directory):
        raise ValueError(
            "the output must end in a version number, which TensorFlow "
            f"Serving looks for: {directory / '1'}. Received: {directory}."
        )
    vocabulary_size = getattr(model, "backbone", model).config.vocabulary_size
    if tokenizer.vocabulary_size != vocabulary_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocabulary_size} pieces and the "
            f"model {vocabulary_size} tokens. Give the tokenizer that the "
            "model was trained with."
        )


def _preprocess(model, tokenizer, **settings):
    """Gives a task a preprocessor with settings other than it was saved with.

    Raises:
        ValueError: if the task has no such setting.
    """
    settings = {k: v for k, v in settings.items() if v is not None}
    if not set(settings) - {"sequence_length"}:
        return  # `ExportSettings` has that one
    preprocessor = getattr(model, "preprocessor", None)
    cls = getattr(model, "preprocessor_cls", None)
    if preprocessor is None and cls is not None:
        preprocessor = cls(tokenizer)
    if preprocessor is None:
        raise ValueError(
            f"{type(model).__name__} reads no questions: leave --stride and "
            "--max-question-length out."
        )
    model.preprocessor = preprocessor.with_settings(**settings)


def _window_stride(source, model, sequence_length):
    """The stride between windows of the run that a model comes from, or None.

    Where the run averages over the windows of a long text, so does its export.
    Windows that are shorter than the run's stride begin half a window apart.
    """
    from saved_models.model_card import training_facts
    from saved_models.signatures import signatures_for
    from xlnet_tf.training.config import window_stride

    facts = training_facts(source) or {}
    training = (facts.get("run") or {}).get("training") or {}
    if training.get("long_documents") != "windows":
        return None
    if not signatures_for(model).reads_windows:
        return None
    stride = training.get("stride")
    if stride and stride > sequence_length - 2:
        stride = None
    return window_stride(stride, sequence_length)


def _parser():
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
    add(
        "--sequence-length",
        type=int,
        help="tokens of a text at most (default: the largest bucket, else as "
        "it was fine-tuned, else 512)",
    )
    add(
        "--stride",
        type=int,
        help="tokens from one window of a context to the next (default: as "
        "it was fine-tuned)",
    )
    add(
        "--window-stride",
        type=int,
        metavar="TOKENS",
        help="average over windows of a text that is too long for a "
        "classifier or regressor, which begin so many tokens after each other "
        "(default: as it was fine-tuned, else the text loses its end)",
    )
    add(
        "--max-question-length",
        type=int,
        help="tokens of a question at most (default: as it was fine-tuned)",
    )
    add(
        "--num-candidates",
        type=int,
        default=5,
        help="for every blank (default: 5)",
    )
    add(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="float32: as the model is (default); bfloat16: weights and "
        "activations; int8: stored weights",
    )
    add(
        "--seq-length-buckets",
        type=_lengths,
        default=(),
        metavar="64,128,256",
        help="pad texts to these numbers of tokens (default: to the longest)",
    )
    add(
        "--max-batch",
        type=int,
        metavar="ROWS",
        help="compute at most so many texts at once (default: all)",
    )
    add("--jit-compile", action="store_true", help="compile by XLA")
    add(
        "--memory-length",
        type=int,
        metavar="TOKENS",
        help="memory of document_segment; 0 leaves it out (default: the "
        "model's, or --sequence-length)",
    )
    add("--overwrite", action="store_true")
    return parser


def _lengths(text):
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be numbers with commas between them, not {text!r}"
        ) from None


def main(argv=None):
    """Runs the command; see the module's text."""
    arguments = _parser().parse_args(argv)
    from saved_models.loading import load_model
    from saved_models.loading import load_tokenizer

    settings = {
        name: getattr(arguments, name)
        for name in (
            "sequence_length",
            "num_candidates",
            "precision",
            "seq_length_buckets",
            "max_batch",
            "jit_compile",
            "memory_length",
            "window_stride",
        )
    }
    # Before a model is loaded, whose length windows depend on.
    ExportSettings(**{**settings, "window_stride": None})
    model = load_model(arguments.model)
    tokenizer = load_tokenizer(
        arguments.tokenizer or arguments.model, arguments.lowercase or None
    )
    settings["sequence_length"] = ExportSettings.for_model(
        model,
        sequence_length=arguments.sequence_length,
        seq_length_buckets=arguments.seq_length_buckets,
    ).sequence_length
    _preprocess(
        model,
        tokenizer,
        sequence_length=settings["sequence_length"],
        stride=arguments.stride,
        max_question_length=arguments.max_question_length,
    )
    if settings["window_stride"] is None:
        settings["window_stride"] = _window_stride(
            arguments.model, model, settings["sequence_length"]
        )
    directory = export_model(
        model,
        tokenizer,
        versions.next_version(arguments.output),
        overwrite=arguments.overwrite,
        source=arguments.model,
        **settings,
    )
    sys.stdout.write(f"wrote {directory}\n")
    return 0


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
