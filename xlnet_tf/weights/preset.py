"""Directories that hold a model: what `from_preset` reads and we write."""

import pathlib

import keras

from xlnet_tf.files import read_json
from xlnet_tf.weights import own

RELEASED_CONFIG_FILE = "xlnet_config.json"
# Written by Model Garden's trainer beside its checkpoints.
PARAMETERS_FILE = "params.yaml"
VOCABULARY_FILE = own.VOCABULARY_FILE


class Preset:
    """`from_preset` and `save_to_preset`, for the backbone and every task."""

    @classmethod
    def from_preset(
        cls,
        path,
        load_weights=True,
        dtype=None,
        head=None,
        strict=True,
        **overrides,
    ):
        """Makes a model from a directory.

        Which format it has is detected: the released files
        (`xlnet_config.json` and a TensorFlow 1 checkpoint), a checkpoint of
        Model Garden beside such a config or its `params.yaml`, Hugging Face's
        (`config.json` with `model.safetensors`, its shards, or
        `pytorch_model.bin`), or what `save_to_preset` wrote. `gelu` becomes
        what the source computed: "tanh" for the release, "erf" for Hugging
        Face's "gelu".

        A task takes its head from the directory if there is one of its kind
        there that the arguments fit; else the head starts anew.

        Args:
            path: str or path of a directory, or of a TensorFlow checkpoint's
                prefix with `xlnet_config.json` beside it.
            load_weights: bool, whether to read the weights or leave the
                initial ones. Default True.
            dtype: str or dtype policy, such as "mixed_bfloat16".
            head: str, which of several heads of the kind to take, such as
                "mnli" for the released `classification_mnli`.
            strict: bool. If False, weights that fit are loaded and a warning
                lists the rest. Default True.
            **overrides: fields of XLNetConfig to replace; other names are
                arguments of the class. `dropout` is the head's too, as
                released.

        Returns:
            A model of this class.

        Raises:
            FileNotFoundError: if the directory or a file in it is missing.
            ValueError: if it holds no model that is known, or one that does
                not fit.
        """
        return make(
            cls,
            open_source(path),
            load_weights=load_weights,
            dtype=dtype,
            head=head,
            strict=strict,
            **overrides,
        )

    def save_to_preset(self, path, tokenizer=None):
        """Writes the model to a directory that `from_preset` reads.

        Files are written to temporary names and then renamed.

        Args:
            path: str or path of a directory, made if missing.
            tokenizer: object with `model_proto` (bytes) and `lowercase`
                (bool), or None to leave the tokenizer out.
        """
        own.save_own(self, pathlib.Path(path), tokenizer)


def make(
    cls,
    source,
    load_weights=True,
    dtype=None,
    head=None,
    strict=True,
    **overrides,
):
    """Makes a model of a class from a source; see `Preset.from_preset`.

    Args:
        cls: XLNetBackbone or a task.
        source: Source.

    Returns:
        A model of this class.
    """
    from xlnet_tf.model.backbone import XLNetBackbone

    config = source.config()
    names = set(config.to_dict())
    fields = {k: v for k, v in overrides.items() if k in names}
    arguments = {k: v for k, v in overrides.items() if k not in names}
    config = config.replace(**fields)
    if getattr(cls, "head_has_dropout", False) and "dropout" in fields:
        arguments["dropout"] = fields["dropout"]
    found = None
    if issubclass(cls, XLNetBackbone):
        model = cls(config, dtype=dtype, **arguments)
    else:
        found = head_for(cls, source, head)
        if found is not None and any(
            name in arguments and arguments[name] != found.arguments.get(name)
            for name in cls.new_head_arguments
        ):
            _refuse_another_shape(cls, source, head, found, arguments)
            found = None
        if found is not None:
            _check_labels(source, found, arguments)
            arguments = {**found.arguments, **arguments}
        elif "labels" in arguments and "num_classes" in cls.new_head_arguments:
            arguments.setdefault("num_classes", len(arguments["labels"] or ()))
        try:
            model = cls(XLNetBackbone(config, dtype=dtype), **arguments)
        except TypeError as error:
            if "required positional argument" not in str(error):
                raise
            raise ValueError(
                f"{source.path} has no head for {cls.__name__}, so its "
                f"arguments must be given: {error}."
            ) from error
    if load_weights:
        source.fill(model, found, strict=strict)
    return model


def _refuse_another_shape(cls, source, name, found, arguments):
    """Refuses to leave out a head that was asked for by its name."""
    if name is None:
        return
    wanted = ", ".join(
        f"{argument}={arguments[argument]!r}, not "
        f"{found.arguments.get(argument)!r}"
        for argument in cls.new_head_arguments
        if argument in arguments
    )
    raise ValueError(
        f"the head {name!r} in {source.path} does not fit the arguments. "
        f"Received: {wanted}. Leave `head` out for a new head."
    )


def _check_labels(source, found, arguments):
    """Refuses labels that would name other classes than the head's."""
    labels = arguments.get("labels")
    if labels is None:
        return
    count = found.arguments.get("num_classes")
    labels = [str(label) for label in labels]
    if count is not None and len(labels) != count:
        raise ValueError(
            f"`labels` must name all {count} classes of the head in "
            f"{source.path}. Received: {len(labels)} labels, "
            f"{', '.join(labels)}. For a new head give "
            f"`num_classes={len(labels)}` too."
        )
    saved = found.arguments.get("labels")
    if saved and labels != saved and set(labels) == set(saved):
        raise ValueError(
            f"`labels` must be in the order of the head in {source.path}: "
            f"{', '.join(saved)}. Received: {', '.join(labels)}."
        )


def head_for(cls, source, name):
    """The Head of a source that a class of task can take, or None.

    Args:
        cls: class of a task.
        source: Source.
        name: str, which of several heads of the kind, or None.

    Raises:
        ValueError: if there is none of that name, or several.
    """
    kinds = {base.__name__ for base in cls.__mro__}
    kinds.add(keras.saving.get_registered_name(cls))
    heads = [h for h in source.heads() if h.task in kinds]
    if name is not None:
        known = ", ".join(repr(h.name) for h in heads) or "none"
        heads = [h for h in heads if h.name == name]
        if not heads:
            raise ValueError(
                f"{source.path} has no head {name!r} for {cls.__name__}. "
                f"Its heads of this kind: {known}."
            )
    if len(heads) > 1:
        names = ", ".join(repr(h.name) for h in heads)
        raise ValueError(
            f"{source.path} has several heads for {cls.__name__}: {names}. "
            "Choose one with `head=`."
        )
    return heads[0] if heads else None


def open_source(path, config_file=None):
    """Finds out what a directory holds.

    Args:
        path: str or path of a directory or of a checkpoint's prefix.
        config_file: str or path of the config of a TensorFlow checkpoint, if
            it does not lie beside it as `xlnet_config.json`.

    Returns:
        Source.

    Raises:
        FileNotFoundError: if there is no such directory, or no config.
        ValueError: if it holds no model that is known.
    """
    path = pathlib.Path(path)
    kind = detect(path, config_file)
    if kind == "own":
        return own.OwnSource(path)
    if kind == "hugging_face":
        from xlnet_tf.weights.hugging_face import HuggingFaceSource

        return HuggingFaceSource(path)
    from xlnet_tf.weights.tensorflow import open_tensorflow

    directory = path if path.is_dir() else path.parent
    files = [directory / RELEASED_CONFIG_FILE, directory / PARAMETERS_FILE]
    found = [file for file in files if file.is_file()]
    return open_tensorflow(
        path, pathlib.Path(config_file or (found or files)[0])
    )


def detect(path, config_file=None):
    """Says what kind of model a directory holds.

    Args:
        path: path of a directory or of a TensorFlow checkpoint's prefix.
        config_file: path of the checkpoint's config, or None.

    Returns:
        "own", "hugging_face", or "tensorflow": a released checkpoint or one
        of Model Garden's.

    Raises:
        FileNotFoundError: if there is no such directory.
        ValueError: if it holds no model that is known.
    """
    is_prefix = path.with_name(path.name + ".index").is_file()
    if not path.is_dir() and not is_prefix:
        raise FileNotFoundError(
            f"there is no directory {path}; give the one that holds "
            f"{RELEASED_CONFIG_FILE} or {own.CONFIG_FILE}."
        )
    if config_file or is_prefix:
        return "tensorflow"
    if own.is_own(path):
        return "own"
    if (path / RELEASED_CONFIG_FILE).is_file():
        return "tensorflow"
    file = path / own.CONFIG_FILE
    if file.is_file():
        values = read_json(file)
        model_type = isinstance(values, dict) and values.get("model_type")
        # The first of them, of 2019, do not name their type.
        is_early = not model_type and {"d_model", "layer_norm_eps"} <= set(
            values
        )
        if model_type == "xlnet" or is_early:
            return "hugging_face"
        if model_type:
            raise ValueError(
                f"{path} holds a model of the type {model_type!r}, not XLNet's."
            )
    elif (path / PARAMETERS_FILE).is_file():
        return "tensorflow"
    elif any(path.glob("*.index")):
        raise FileNotFoundError(
            f"{path} holds a TensorFlow checkpoint without its "
            f"{RELEASED_CONFIG_FILE} (or {PARAMETERS_FILE}, if it is Model "
            "Garden's); copy the one of the model it was trained from there."
        )
    raise ValueError(
        f"{path} holds no model that is known: expected "
        f"{RELEASED_CONFIG_FILE} with xlnet_model.ckpt.*, Hugging Face's "
        f"{own.CONFIG_FILE} with model.safetensors, or the files that "
        "`save_to_preset` writes."
    )


def read_config(path):
    """The XLNetConfig of a model directory."""
    return open_source(path).config()
