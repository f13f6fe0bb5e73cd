"""Tasks: a backbone with a head, its loss, its answers and their metrics."""

import importlib

# kind of a TaskSpec -> module of this folder and class
_CLASSES = {
    "classification": ("text_classifier", "XLNetTextClassifier"),
    "multi_label": ("multi_label_classifier", "XLNetMultiLabelClassifier"),
    "regression": ("text_classifier", "XLNetTextRegressor"),
    "multiple_choice": ("choices", "XLNetMultipleChoice"),
    "question_answering": ("question_answering", "XLNetQuestionAnswering"),
    "token_classification": ("token_classifier", "XLNetTokenClassifier"),
    "ranking": ("choices", "XLNetRanker"),
    "sequence_to_sequence": ("seq2seq", "XLNetSeq2Seq"),
}


def task_class(kind):
    """The class that is fine-tuned for a kind of task.

    Args:
        kind: str, the field `kind` of a TaskSpec.

    Returns:
        Subclass of Task.

    Raises:
        ValueError: if there is no such kind; the message lists all.
    """
    if kind not in _CLASSES:
        raise ValueError(
            f"there is no such kind of task. Expected one of "
            f"{', '.join(_CLASSES)}. Received: kind={kind!r}"
        )
    module, name = _CLASSES[kind]
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
