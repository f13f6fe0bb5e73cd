"""Examples -> rows of a fine-tuning run, by kind of task."""

import numpy as np

from data_pipeline.features import finetuning as encoding


def encode(kind, examples, tokenizer, length, labels, training, **arguments):
    """Rows of the examples of a task.

    Args:
        kind: str, of the TaskSpec.
        examples: list of examples.
        tokenizer: Tokenizer.
        length: int, tokens at most.
        labels: tuple of str or None, the classes.
        training: bool; if False every example has a prediction.
        **arguments: of `Task.encoding_arguments`.

    Returns:
        Rows, with `notes`, lines that tell what is not read.
    """
    given = (examples, tokenizer, length)
    arguments["progress"] = training
    if kind == "multiple_choice":
        return encoding.encode_choices(*given, **arguments)
    if kind == "ranking":
        return encoding.encode_rankings(*given, **arguments)
    if kind == "token_classification":
        rows = encoding.encode_tokens(*given, labels, **arguments)
        rows.notes = _words_cut(rows, examples, length)
        return rows
    rows = encoding.encode_texts(*given, labels=labels, **arguments)
    if "stride" not in arguments:
        rows.notes = _texts_cut(rows, examples, length)
    return rows


def _words_cut(rows, examples, length):
    words = np.array([len(x.words) for x in examples])
    lost = words - rows.dense["words"]
    if not lost.any():
        return []
    return [
        f"cut       {lost.sum():,} of {words.sum():,} words, of "
        f"{np.count_nonzero(lost):,} sentences, are beyond "
        f"{length:,} tokens and not read; see "
        "--sequence-length, or divide long sentences"
    ]


def _texts_cut(rows, examples, length):
    full = int(np.sum(rows.sequences["token_ids"].lengths == length))
    if not full:
        return []
    return [
        f"cut       {full:,} of {len(examples):,} texts fill "
        f"{length:,} tokens, and what is beyond is not "
        "read; see --sequence-length and `long_documents`"
    ]
