"""Tasks for fine-tuning: their models, heads, losses, answers and metrics."""

import importlib

# From the name of a kind of task to (module of this folder, class of TaskKind).
_KINDS = {
    "classification": ("text_classifier", "TextClassification"),
    "multi_label": ("multi_label_classifier", "MultiLabelClassification"),
    "regression": ("text_regressor", "TextRegression"),
    "multiple_choice": ("choices", "MultipleChoice"),
    "question_answering": ("question_answering", "QuestionAnswering"),
    "token_classification": ("token_classifier", "TokenClassification"),
    "ranking": ("choices", "Ranking"),
    "sequence_to_sequence": ("seq2seq", "SequenceToSequence"),
}


def task_kind(name):
    """Find the subclass of TaskKind that has a given name.

    Args:
        name: str, the field `kind` of a TaskSpec.

    Returns:
        Subclass of TaskKind.

    Raises:
        ValueError: if no kind of task has this name; the message lists the
            valid names.
    """
    if name not in _KINDS:
        raise ValueError(
            f"there is no such kind of task. Expected one of "
            f"{', '.join(_KINDS)}. Received: kind={name!r}"
        )
    module, cls = _KINDS[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)


def kind_of(model):
    """Name of a model's kind of task, or None for a model without a kind.

    Args:
        model: any model.

    Returns:
        str, the `name` of a subclass of TaskKind.
    """
    kinds = {task_kind(name).model_class: name for name in _KINDS}
    return next((kinds[x] for x in type(model).__mro__ if x in kinds), None)
