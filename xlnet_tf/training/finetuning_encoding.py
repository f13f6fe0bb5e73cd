"""Examples -> rows of a fine-tuning run, by kind of task."""

import numpy as np

from data_pipeline.features import finetuning as encoding
from xlnet_tf.training.config import window_stride


def encode(spec, config, settings, labels, tokenizer, examples, training):
    """Rows of the examples of a task.

    Args:
        spec: TaskSpec.
        config: FinetuningConfig.
        settings: dict, of `Task.preprocessor_settings`.
        labels: tuple of str or None, the classes.
        tokenizer: Tokenizer.
        examples: list of examples.
        training: bool; if False every example has a prediction.

    Returns:
        Rows, with `notes`, lines that tell what is not read.
    """
    length = settings["sequence_length"]
    arguments = (examples, tokenizer, length)
    if spec.kind == "multiple_choice":
        rows = encoding.encode_choices(*arguments, progress=training)
    elif spec.kind == "ranking":
        rows = encoding.encode_rankings(
            *arguments, num_documents=config.num_documents, progress=training
        )
    elif spec.kind == "token_classification":
        rows = encoding.encode_tokens(*arguments, labels, progress=training)
        rows.notes = _words_cut(rows, examples, length)
    else:
        stride = None
        if config.long_documents == "windows":
            stride = window_stride(config.stride, length)
        rows = encoding.encode_texts(
            *arguments, labels=labels, stride=stride, progress=training
        )
        if stride is None:
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
