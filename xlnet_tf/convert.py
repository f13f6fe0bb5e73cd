"""Convert weights from one format to another: `python -m xlnet_tf.convert`.

    python -m xlnet_tf.convert --from xlnet_cased_L-12_H-768_A-12 --to DIR

The command reads every format that `from_preset` reads. It writes a preset
(`keras`), Hugging Face's format (`hf`) or the format of the released code
(`tf1`), together with the tokenizer.
"""

import sys
import warnings

from data_pipeline.base import command_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_model_of_hub
from data_pipeline.base.files import names_below
from data_pipeline.base.files import size_of
from data_pipeline.base.files import written_whole
from data_pipeline.base.models import as_model_path
from data_pipeline.base.outputs import check_directory
from xlnet_tf.training.startup import check_backend

FORMATS = {
    "keras": "preset",
    "hf": "Hugging Face directory",
    "tf1": "released TensorFlow 1 directory",
}


def parse_arguments(argv=None):
    """Parse the options of the command."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.convert",
        description="Convert the weights of an XLNet or BERT between formats.",
    )
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        required=True,
        metavar="DIR",
        help="directory of a model, or the prefix of a TensorFlow checkpoint",
    )
    add(
        "--to",
        required=True,
        metavar="DIR",
        help="new or empty directory, or hf://OWNER/NAME to upload",
    )
    add(
        "--format",
        choices=FORMATS,
        default="keras",
        help="keras: a preset; hf: Hugging Face's format; tf1: the released "
        "TensorFlow 1 format (default keras)",
    )
    add(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="type of the weights in a preset; float16 needs half the space "
        "of float32 (default float32)",
    )
    add("--config", help="xlnet_config.json, if not beside the weights")
    add("--tokenizer", help="spiece.model, if not beside the weights")
    add(
        "--lowercase",
        action="store_true",
        help="lower-case text, for an uncased vocabulary; needed only if no "
        "file beside the weights sets it",
    )
    add("--task", help="class of the model, such as XLNetTextClassifier")
    add("--head", help='head to convert, if there are several: "mnli"')
    add(
        "--gelu",
        choices=("tanh", "erf"),
        help="form of GELU that the model was trained with (default: the form "
        "found in the files)",
    )
    add(
        "--partial",
        action="store_true",
        help="read the weights that fit, and list all other weights",
    )
    return command_line.parse(parser, argv)


def main(argv=None):
    """Run the command; see the module's docstring."""
    arguments = parse_arguments(argv)
    target = arguments.to
    if not is_model_of_hub(target):
        check_empty(target)
    if arguments.dtype != "float32" and arguments.format != "keras":
        raise ValueError(
            f"--dtype {arguments.dtype} is for presets, not for "
            f"--format {arguments.format}."
        )
    check_backend("conversion", ())
    from xlnet_tf.preprocessing.preprocessor import check_vocabulary

    with command_line.warnings_in_a_line():
        model, source, head = read(arguments)
        tokenizer = read_its_tokenizer(arguments)
        if tokenizer is not None:
            check_vocabulary(
                tokenizer.vocabulary_size,
                model.config.vocabulary_size,
                "Give the model's with --tokenizer",
            )
    command_line.print_lines(*description(model, source, head, arguments.gelu))
    with command_line.warnings_in_a_line():
        write(model, target, arguments.format, tokenizer, head, arguments.dtype)
        _warn_of_differences(model, arguments.format)
    command_line.print_lines(f"wrote {FORMATS[arguments.format]} {target}")
    if not is_model_of_hub(target):
        for name in names_below(as_path(target)):
            size = size_of(as_path(target) / name)
            command_line.print_lines(f"  {name}  {size:,} bytes")
    if tokenizer is None:
        command_line.print_lines(
            "no tokenizer was found beside the weights: give --tokenizer to "
            "write a tokenizer beside the new weights"
        )
    elif arguments.format == "tf1":
        if tokenizer.lowercase:
            command_line.print_lines(
                "the released code needs --uncased for this model"
            )
        if tokenizer.keep_accents:
            command_line.print_lines(
                "the released code must call preprocess_text with "
                "keep_accents=True for this model"
            )
    return 0


def check_empty(target):
    """Refuse a target path at which a file or a non-empty directory exists."""
    path = as_path(target)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(
            f"{target} is not empty; choose another directory with --to, or "
            "remove it first."
        )
    check_directory(path)


def _warn_of_differences(model, form):
    if form != "keras" and getattr(model, "next_sentence_head", None):
        warnings.warn(
            "this format has no place for the head of next-sentence "
            "prediction, which was left out.",
            stacklevel=2,
        )
    config = model.config
    if form == "tf1" and config.activation == "gelu" and config.gelu == "erf":
        warnings.warn(
            "the released code computes the tanh form of GELU for every "
            "config; these weights were trained with erf, so its outputs will "
            "differ a little.",
            stacklevel=2,
        )


def read(arguments):
    """Read the model that the arguments name.

    Returns:
        (model, WeightSource, Head). The model is a backbone or a task model.
        For a backbone the Head is None.

    Raises:
        ValueError, FileNotFoundError: see `from_preset`.
    """
    from xlnet_tf import loading
    from xlnet_tf.weights.heads import head_for

    source = loading.open_model(arguments.source).source(arguments.config)
    head, backbone = None, loading.BACKBONES[type(source.config())]
    cls = backbone
    if arguments.task:
        if arguments.task not in loading.MODELS:
            raise ValueError(
                f"--task must be one of {', '.join(loading.MODELS)}. "
                f"Received: {arguments.task}."
            )
        cls = loading.MODELS[arguments.task]
        if cls not in loading.BACKBONES.values():
            head = head_for(cls, source, arguments.head)
            if head is None:
                raise ValueError(
                    f"{source.path} has no head for {cls.__name__}; "
                    f"--task {backbone.__name__} leaves the heads out."
                )
    elif head := source.main_head(arguments.head):
        cls = loading.class_of_head(head)
        if cls is None:
            raise ValueError(
                f"{source.path} holds a {head.task}, which is no class of this "
                f"library; --task {backbone.__name__} leaves its head out."
            )
    overrides = {"gelu": arguments.gelu} if arguments.gelu else {}
    with source.checked():
        model = cls.from_source(
            source,
            head=head.name if head else None,
            strict=not arguments.partial,
            **overrides,
        )
    return model, source, head


def description(model, source, head, gelu=None):
    """Describe the model in a list of lines."""
    config = model.config
    kind = type(model).__name__
    if head is not None and head.name:
        kind = f"{kind} {head.name!r}"
    lines = [
        f"read {source.kind} {source.path}",
        f"  {kind}, {config.num_layers} layers, "
        f"{model.count_params() / 1e6:.1f} million parameters",
    ]
    if config.activation == "gelu":
        reason = "as asked for with --gelu" if gelu else source.gelu
        lines.append(
            f"  gelu: {config.gelu}" + (f" ({reason})" if reason else "")
        )
    return lines


def read_its_tokenizer(arguments):
    """Load the tokenizer of `--tokenizer`, by default the model's tokenizer.

    Returns:
        Tokenizer. None if `--tokenizer` is missing and the model has no
        tokenizer.
    """
    from xlnet_tf.loading import load_tokenizer
    from xlnet_tf.loading import open_model

    lowercase = arguments.lowercase or None
    own = open_model(arguments.source).tokenizer(lowercase)
    if not arguments.tokenizer:
        return own
    # A SentencePiece file does not record whether text is lower-cased.
    if own is not None and as_model_path(arguments.tokenizer).is_file():
        lowercase = own.lowercase
    return load_tokenizer(arguments.tokenizer, lowercase)


def write(model, target, form, tokenizer=None, head=None, dtype="float32"):
    """Write a model into a new directory, atomically.

    Args:
        model: backbone or task.
        target: path of the directory.
        form: str, the format, a key of FORMATS.
        tokenizer: Tokenizer, or None (default).
        head: Head, or None (default). In the format "tf1" the names of the
            head's tensors contain the head's `name`.
        dtype: str, dtype of the weights in a preset. Default "float32".
    """
    from data_pipeline.base.directories import written_directory
    from data_pipeline.tokenization.hugging_face import write_tokenizer

    if is_model_of_hub(target):
        whole = written_whole(target)
    else:
        whole = written_directory(as_path(target), lambda name: False)
    with whole as temporary:
        if form == "keras":
            model.save_to_preset(temporary, tokenizer, dtype)
        elif form == "hf":
            from xlnet_tf.weights.hugging_face.writer import save_hugging_face

            save_hugging_face(model, temporary)
            if tokenizer is not None:
                write_tokenizer(tokenizer, temporary)
        else:
            from xlnet_tf.weights.released import save_tf1

            name = head.name if head is not None and head.name else "task"
            save_tf1(model, temporary, tokenizer=tokenizer, name=name)


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
