"""Choice of a checkpoint's head that fits a task and the user's arguments."""

import inspect

import keras

from data_pipeline.base.suggestions import closest

# From argument names of Hugging Face's classes to ours.
_NAMES_OF_OTHERS = {"num_labels": "num_classes"}


def refuse_misspelt(cls, names, further=()):
    """Refuse unknown arguments whose names resemble an argument of a class.

    Other unknown names are not refused, because the class or a base class may
    accept them.

    Args:
        cls: class of a model.
        names: names of the given arguments, str.
        further: valid names besides the constructor's arguments.

    Raises:
        TypeError: for the first misspelt name.
    """
    known = {"name", "trainable", "dtype", *further}
    for base in cls.__mro__:
        if base is keras.Model:
            break
        if "__init__" in vars(base):
            known |= set(inspect.signature(base.__init__).parameters)
    known -= {"self", "args", "kwargs"}
    for name in names:
        if name in known:
            continue
        meant = _NAMES_OF_OTHERS.get(name)
        if meant not in known:
            meant = closest(name, sorted(known), 0.82)
        if meant:
            raise TypeError(
                f"{cls.__name__} has no argument `{name}`; did you mean "
                f"`{meant}`?"
            )


def head_for(cls, source, name=None):
    """Find a source's Head for the class of a task; None if no Head fits.

    Args:
        cls: class of a task.
        source: WeightSource.
        name: str, name that selects one of several fitting heads, or None.

    Raises:
        ValueError: if no head has this name, or several heads fit the class.
    """
    kinds = {base.__name__ for base in cls.__mro__}
    kinds.add(keras.saving.get_registered_name(cls))
    for other in cls.head_sources:
        kinds |= {other, f"xlnet_tf>{other}"}
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


def choose_head(cls, source, name, arguments):
    """Choose the head to load, and complete the task's constructor arguments.

    Args:
        cls: class of a task.
        source: WeightSource.
        name: str, name that selects one of several fitting heads, or None.
        arguments: dict, the user's arguments for the class.

    Returns:
        (Head, dict of arguments). The Head is None if no head in the source
        fits and the task must create a new head.

    Raises:
        ValueError: if the head with the given name does not fit the arguments,
            or arguments for a new head are missing.
    """
    source_head = head_for(cls, source, name)
    if source_head is not None and any(
        key in arguments and arguments[key] != source_head.arguments.get(key)
        for key in cls.new_head_arguments
    ):
        _refuse_another_shape(cls, source, name, source_head, arguments)
        source_head = None
    if source_head is not None:
        _check_labels(source, source_head, arguments)
        arguments = {**cls.arguments_of_head(source_head), **arguments}
    elif "labels" in arguments and "num_classes" in cls.new_head_arguments:
        labels = arguments["labels"]
        classes = 0 if labels is None else len(labels)
        arguments = {"num_classes": classes, **arguments}
    missing = [
        key
        for key, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is parameter.empty
        and key != "backbone"
        and key not in arguments
    ]
    if missing:
        raise ValueError(
            f"{source.path} has no head for {cls.__name__}, so its "
            f"arguments must be given: {', '.join(missing)}. Received: "
            f"{', '.join(arguments) or 'none'}."
        )
    return source_head, arguments


def _refuse_another_shape(cls, source, name, found, arguments):
    """Refuse arguments that do not fit the head that the user named."""
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


def labels_of_head(cls, source):
    """Find the label names stored with the head that a task would load.

    Args:
        cls: class of a task.
        source: WeightSource.

    Returns:
        tuple of str. The tuple is empty if no head or several heads fit the
        task, or if the head's classes have no names.
    """
    try:
        source_head = head_for(cls, source)
    except ValueError:  # several heads: `choose_head` will raise
        return ()
    return (
        tuple(source_head.arguments.get("labels") or ()) if source_head else ()
    )


def _check_labels(source, found, arguments):
    """Refuse labels that differ from the head's labels in number or order."""
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
