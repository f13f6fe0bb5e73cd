"""Command that exports a model for raw text: `python -m saved_models.export`.

python -m saved_models.export --model runs/demo --output saved_models/demo/1

Every field of `ExportSettings` is an option, and also a key in a settings file
in JSON or YAML:

python -m saved_models.export --settings settings.yaml --model ... --output ...

`--check FILE` runs the export and the model on the texts or examples in a file,
and compares the outputs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import typing

from data_pipeline.base import command_line
from data_pipeline.base.checksums import write_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import written_whole
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import read_file
from data_pipeline.base.settings import refuse_unknown
from saved_models import versions
from saved_models.batching import write_batching
from saved_models.check import check
from saved_models.check import read_file as read_check
from saved_models.loading import load
from saved_models.settings import ExportSettings
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.training.startup import check_backend

if typing.TYPE_CHECKING:
    import keras

    from data_pipeline.tokenization.tokenizer import Tokenizer

# Program for a process of the TensorFlow backend, which exports a model that a
# process of another backend wrote.
# The argument is a pipe that closes if the parent ends: a killed run must not
# leave a process that writes.
_PROGRAM = """
import json, os, sys, threading

def end_with_parent():
    os.read(int(sys.argv[1]), 1)
    os._exit(1)

threading.Thread(target=end_with_parent, daemon=True).start()
request = json.load(sys.stdin)
from data_pipeline.base import command_line
from saved_models import export
sys.exit(command_line.run(export.export_preset, request))
"""


def export_model(
    model: "keras.Model",
    tokenizer: "Tokenizer",
    directory: str | os.PathLike,
    overwrite: bool = False,
    source: str | os.PathLike | None = None,
    **settings: typing.Any,
) -> os.PathLike:
    """Write a model as a versioned SavedModel, or as a network for OpenVINO.

    The files are written to a temporary directory, which is renamed when it is
    complete. In a bucket (gs://), the files appear one after the other. The
    folder `assets.extra` contains the settings, `model_card.json` and, for a
    SavedModel, warm-up requests. `SHA256SUMS` lists the digests of all files.
    With Keras' JAX backend, a second process with the TensorFlow backend writes
    the export.

    Args:
        model: a model whose class has signatures (see
            `saved_models.signatures`), made in any distribution strategy. A
            copy of the model is exported.
        tokenizer: data_pipeline Tokenizer that the model was trained with.
        directory: path that ends in the version, a positive integer. The path
            is local or gs://.
        overwrite: bool, whether to replace an existing version.
        source: path of the run that trained the model, for the model card; or
            None.
        **settings: fields of `ExportSettings`.

    Returns:
        path of the export.

    Raises:
        ValueError: if the version is not a number, the tokenizer does not fit
            the model, a setting is out of range, or a class of the model is not
            in this package (on the JAX backend).
        FileExistsError: if the version exists and `overwrite` is False.
        RuntimeError: if the second process, which runs TensorFlow, fails.

    Example:

    ```python
    import saved_models
    import xlnet_tf
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 26)
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig(26, 1, 2, 8, 8))
    saved_models.export_model(backbone, tokenizer, "tiny/1", memory_length=0)
    ```
    """
    import keras

    if settings.get("runtime") == "openvino":
        model = _without_objective(model)
    place = as_path(directory)
    checked = ExportSettings(**settings).for_model(model)
    versions.check(place, overwrite)
    _check(model, tokenizer, checked)
    if keras.backend.backend() == "tensorflow":
        _write(model, tokenizer, place, overwrite, source, checked)
    else:
        _export_elsewhere(model, tokenizer, place, overwrite, source, checked)
    return place


def _write(model, tokenizer, place, overwrite, source, settings):
    """Write the files of an export; see `export_model`."""
    from saved_models import openvino
    from saved_models.model_card import write_card
    from saved_models.signatures import signatures_for

    module = signatures_for(model)(model, tokenizer, settings)
    traced = module.traced()
    try:
        with written_whole(place, replace_directory=overwrite) as temporary:
            if settings.runtime == "openvino":
                openvino.write(module, model, tokenizer, temporary)
            else:
                _save(module, traced, temporary, place.parent.name)
                if module.joins_requests:
                    write_batching(temporary, settings.max_batch)
            write_card(
                temporary, model, tokenizer, settings, module, traced, source
            )
            write_checksums(temporary)
    except FileExistsError as error:
        raise versions.taken(place) from error  # made by another process


def _without_objective(model):
    """Return a pretrained model's backbone; return other models unchanged."""
    from xlnet_tf.objectives.pretrainer import XLNetPretrainer

    return model.backbone if isinstance(model, XLNetPretrainer) else model


def _export_elsewhere(model, tokenizer, place, overwrite, source, settings):
    """Write an export in a new process with TensorFlow; see `export_model`."""
    _refuse_own_classes(model)
    with tempfile.TemporaryDirectory() as preset:
        model.save_to_preset(preset, tokenizer=tokenizer)
        request = {
            "model": type(model).__name__,
            "preset": preset,
            "dtype": getattr(model, "backbone", model).dtype_policy.name,
            "directory": str(place),
            "overwrite": overwrite,
            "source": source and str(source),
            "settings": settings.to_dict(),
        }
        pipe, end = os.pipe()
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROGRAM, str(pipe)],
                env=_on_tensorflow(),
                input=json.dumps(request),
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[pipe],
                start_new_session=True,  # Ctrl-C reaches only the parent
            )
        finally:
            os.close(pipe)
            os.close(end)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(
            f"the process of KERAS_BACKEND=tensorflow that writes {place} "
            f"ended with status {done.returncode}: "
            f"{reason.removeprefix('error: ')}"
        )


def _refuse_own_classes(model):
    """Refuse classes that another process cannot import."""
    from xlnet_tf.loading import MODELS
    from xlnet_tf.objectives import OBJECTIVES

    known = {*MODELS.values(), *OBJECTIVES.values()}
    for part in (model, *getattr(model, "objectives", ())):
        if type(part) not in known:
            raise ValueError(
                "on Keras' JAX backend, another process writes the export, and "
                f"it does not know the class {type(part).__name__}. Load and "
                "export the model in a process of KERAS_BACKEND=tensorflow "
                "that has this class."
            )


def _on_tensorflow():
    """Make the environment variables of a process with Keras on TensorFlow."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""}  # JAX uses all GPU memory
    return {**os.environ, **hidden, "KERAS_BACKEND": "tensorflow"}


def export_preset(request):
    """Export a preset in the process that `_export_elsewhere` starts.

    Args:
        request: dict of `preset` (the directory of the model), `model` (the
            name of the model's class), `dtype` (the name of its dtype policy),
            and the arguments of `export_model`: `directory`, `overwrite`,
            `source` and `settings` (a dict).
    """
    from xlnet_tf.loading import MODELS
    from xlnet_tf.loading import load_tokenizer

    cls, preset = MODELS[request["model"]], request["preset"]
    export_model(
        cls.from_preset(preset, dtype=request["dtype"]),
        load_tokenizer(preset),
        request["directory"],
        overwrite=request["overwrite"],
        source=request["source"],
        **request["settings"],
    )


def _save(module, traced, directory, name):
    """Write the SavedModel and its warm-up requests."""
    import tensorflow as tf

    from saved_models.warm_up import write_requests

    functions = {key: function for key, (_, function) in traced.items()}
    tf.saved_model.save(module, str(directory), functions)
    signatures = {key: signature for key, (signature, _) in traced.items()}
    write_requests(directory, name, signatures)


def _check(model, tokenizer, settings):
    from saved_models.signatures import signatures_for
    from xlnet_tf.preprocessing.preprocessor import check_positions
    from xlnet_tf.preprocessing.preprocessor import check_vocabulary

    config = getattr(model, "backbone", model).config
    check_vocabulary(tokenizer.vocabulary_size, config.vocabulary_size)
    longest = max(
        settings.sequence_length or 0, *settings.seq_length_buckets, 0
    )
    check_positions(config, longest)
    if settings.generation and not hasattr(model, "generate"):
        raise ValueError(
            "`generation` is for pretrained and sequence-to-sequence models. "
            f"Received: a {type(model).__name__}."
        )
    if settings.window_stride and not signatures_for(model).reads_windows:
        raise ValueError(
            "`window_stride` is for classifiers and regressors of texts. "
            f"Received: window_stride={settings.window_stride} for a "
            f"{type(model).__name__}."
        )


def load_model(path):
    """Load a model that can be exported.

    Args:
        path: str or path of a run, a preset, a released checkpoint or a .keras
            file.

    Returns:
        (model, StoredModel): a model whose class has signatures, and the
        source of the model.

    Raises:
        FileNotFoundError: if the path does not exist.
        ValueError: if the path has no model that can be exported.
    """
    from saved_models.signatures import signatures_for
    from xlnet_tf.loading import open_model

    stored = open_model(path)
    model = stored.load()
    try:
        signatures_for(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return model, stored


def _window_stride(source, model, sequence_length):
    """Find the `window_stride` of the run that trained a model, or None.

    The result is None if `source` is not in a run, the run did not average the
    outputs of a long text's windows, or the model's signatures do not read
    windows. If the run's settings have no `stride`, or a `stride` that is too
    long for `sequence_length`, the result is half of `sequence_length`.
    """
    from saved_models.model_card import training_facts
    from saved_models.signatures import signatures_for

    facts = training_facts(source) or {}
    training = (facts.get("run") or {}).get("training") or {}
    is_windows = training.get("long_documents") == "windows"
    if not (is_windows and signatures_for(model).reads_windows):
        return None
    stride = training.get("stride")
    is_short = stride and stride <= sequence_length - 2
    return stride if is_short else sequence_length // 2  # as in fine-tuning


def _parser():
    parser = command_line.Parser(
        prog="python -m saved_models.export",
        description="Export a model as a SavedModel that takes raw text.",
    )
    add = parser.add_argument
    add("--model", required=True, help="run, preset, release or .keras file")
    add(
        "--output",
        required=True,
        help="NAME/VERSION, or NAME for its next version; local or gs://",
    )
    add("--tokenizer", help="spiece.model (default: the one beside the model)")
    add(
        "--lowercase",
        action="store_true",
        help="lowercase texts, for an uncased tokenizer",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace the version that --output NAME/VERSION names",
    )
    add(
        "--check",
        metavar="FILE",
        help="compare the outputs of the export and the model on this file: "
        "texts, one per line, or a table with a column of texts; for a task, "
        "examples in its format",
    )
    add("--columns", help='columns in the file of --check: "text=review"')
    command_line.add_quiet(parser)
    add(
        "--settings",
        metavar="FILE",
        help="JSON or YAML with any of the settings below, such as the "
        "assets.extra/settings.json of another export; options override it",
    )
    group = parser.add_argument_group("settings")
    by_hand = ("seq_length_buckets", "generation")  # parsed separately
    add_options(group, ExportSettings, skip=by_hand)
    group.add_argument(
        "--seq-length-buckets",
        type=_lengths,
        metavar="64,128,256",
        help=ExportSettings.__dataclass_fields__[by_hand[0]].metadata["help"],
    )
    group.add_argument(
        "--generation",
        metavar="FILE",
        help="JSON or YAML with settings of xlnet_tf.generate, or the JSON "
        "itself: adds the signature `generate`",
    )
    return parser


def _lengths(text):
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be numbers with commas between them, not {text!r}"
        ) from None


def _generation(text):
    """Read generation settings from a file or from JSON text, as a dict."""
    if not text.lstrip().startswith("{"):
        return read_file(GenerationSettings, text)
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--generation is not JSON: {error}.") from error
    refuse_unknown(GenerationSettings, values, "--generation")
    return values


def main(argv=None):
    """Run the command; see the module's docstring.

    With Keras' JAX backend, a new program with the TensorFlow backend replaces
    this process.
    """
    arguments = command_line.parse(_parser(), argv)
    if arguments.generation is not None:
        arguments.generation = _generation(arguments.generation)
    settings = ExportSettings.read(arguments.settings, arguments)
    if arguments.columns and not arguments.check:
        raise ValueError("--columns needs --check, which is not given.")
    check_directory(arguments.output)
    directory = versions.next_version(arguments.output)
    versions.check(directory, arguments.overwrite)
    if check_backend("export") != "tensorflow":
        # This process becomes the other one, so that signals reach it.
        given = sys.argv[1:] if argv is None else argv
        command = [sys.executable, "-m", "saved_models.export", *given]
        sys.stdout.flush()
        os.execve(sys.executable, command, _on_tensorflow())
    model, stored = load_model(arguments.model)
    tokenizer = stored.tokenizer_for(
        model, arguments.tokenizer, arguments.lowercase or None
    )
    settings = settings.for_model(model).to_dict()
    if settings["window_stride"] is None:
        settings["window_stride"] = _window_stride(
            arguments.model, model, settings["sequence_length"]
        )
    examples = None
    if arguments.check:  # before the export, to report mistakes early
        with command_line.warnings_in_a_line():
            examples = read_check(
                model, stored, arguments.check, arguments.columns
            )
    command_line.tell(arguments, "tracing and writing the model")
    export_model(
        model,
        tokenizer,
        directory,
        overwrite=arguments.overwrite,
        source=arguments.model,
        **settings,
    )
    command_line.print_lines(f"wrote {directory}")
    if examples is not None:
        settings = ExportSettings(**settings)
        _check_answers(
            model, tokenizer, settings, directory, examples, arguments
        )
    return 0


def _check_answers(model, tokenizer, settings, directory, examples, arguments):
    """Print the differences between the answers of an export and of its model.

    Raises:
        ValueError: if the differences are too large.
    """
    differences = check(
        model,
        tokenizer,
        settings,
        load(directory),
        *examples,
        progress=not arguments.quiet,
    )
    for name, (difference, _) in differences.items():
        command_line.print_lines(f"{name:18} {difference}")
    wrong = [x for x, (_, is_close) in differences.items() if not is_close]
    if wrong:
        differ = "differs" if len(wrong) == 1 else "differ"
        raise ValueError(
            f"the export {directory} does not answer {arguments.check} as its "
            f"model: {', '.join(wrong)} {differ} by more than the precision "
            f"{settings.precision} explains. Do not serve it; export anew, or "
            "with a wider --precision."
        )


def command():
    """Entry point of the console script."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
