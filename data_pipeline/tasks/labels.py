"""Classes of tasks, and of their examples."""

_OF_EXAMPLE = {
    "classification": lambda example: [example.label],
    "multi_label": lambda example: example.label,
    "token_classification": lambda example: example.tags,
}


def labels_of(task, examples):
    """Classes of a task, or of its examples if the task names none.

    Args:
        task: TaskSpec.
        examples: list of training examples.

    Returns:
        tuple of str, or None for a task without classes.
    """
    of_example = _OF_EXAMPLE.get(task.kind)
    if of_example is None or task.labels is not None:
        return task.labels if of_example else None
    labels = {str(label) for x in examples for label in of_example(x)}
    # The tag "O" first; numbers in numerical order.
    return tuple(
        sorted(
            labels,
            key=lambda x: (x != "O", not x.isdigit(), len(x) * x.isdigit(), x),
        )
    )


def check_known(kind, examples, labels):
    """Refuse examples of another class than those of a model.

    Args:
        kind: str, of a TaskSpec.
        examples: list of examples, some perhaps without a label.
        labels: sequence of str.

    Raises:
        ValueError: names the first such example.
    """
    known = set(map(str, labels))
    of_example = _OF_EXAMPLE.get(kind, lambda example: ())
    for example in examples:
        for label in of_example(example) or ():
            if label is not None and str(label) not in known:
                raise ValueError(
                    f"{example.where}: the label {label!r} is none of those "
                    f"known: {', '.join(map(str, labels))}."
                )
