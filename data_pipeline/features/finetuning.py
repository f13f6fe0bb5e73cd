"""Examples of a task -> rows ready to be batched.

Layouts as released (`data_pipeline.features.layout`). Texts, pairs, options,
documents are padded on the left, so that the class token stands last; words of
sentences and contexts of a question are padded on the right.

Shapes: R rows, O options or documents, T tokens.
"""

import concurrent.futures
import os

import numpy as np
import tqdm

from data_pipeline.features.layout import LEFT_FILLERS
from data_pipeline.features.layout import RIGHT_FILLERS
from data_pipeline.features.layout import pack
from data_pipeline.features.rows import Ragged
from data_pipeline.features.rows import Rows
from data_pipeline.features.rows import join

MAX_OPTION_LENGTH = 128  # of a question with an option, as released for RACE

_CHUNK = 2000  # texts tokenized at a time


def encode_texts(
    examples,
    tokenizer,
    sequence_length,
    labels=None,
    stride=None,
    progress=False,
):
    """Rows of texts or pairs of texts.

    Args:
        examples: list of TextExample.
        tokenizer: Tokenizer.
        sequence_length: int, T at most.
        labels: sequence of str, the classes, or None for numbers.
        stride: int or None (default). If given, a text that is too long
            becomes several rows, windows that begin `stride` tokens after each
            other; else it loses its end.
        progress: bool, whether to draw a bar.

    Returns:
        Rows with `label` int32 or float32 [R] (-1 or nan where an example has
        none), `example` int32 [R], the example a row belongs to, and
        `row_weight` float32 [R], one over the windows of its example.

    Raises:
        ValueError: a label is none of `labels`, or is no number, or a pair is
            to be cut into windows.
    """
    check_sequence_length(sequence_length, 5)
    first = tokenize([x.text for x in examples], tokenizer, progress)
    pairs = [x.text_pair for x in examples]
    has_pair = np.array([pair is not None for pair in pairs], bool)
    second = None
    if has_pair.any():
        second = tokenize([pair or "" for pair in pairs], tokenizer, progress)
    example = np.arange(len(examples))
    if stride is not None:
        if second is not None:
            raise ValueError(
                "windows are for single texts, and the examples are pairs. "
                "Leave the windows out."
            )
        first, example = _windows(first, sequence_length - 2, stride)
    windows = np.bincount(example, minlength=len(examples))
    return Rows(
        pack(first, second, sequence_length, has_pair),
        {
            "label": _labels(examples, labels)[example],
            "example": example.astype(np.int32),
            "row_weight": (1 / windows[example]).astype(np.float32),
        },
        LEFT_FILLERS,
        "left",
    )


def encode_choices(
    examples,
    tokenizer,
    sequence_length,
    max_option_length=MAX_OPTION_LENGTH,
    progress=False,
):
    """Rows of questions with options: O sequences `context, question option`.

    A question with its option keeps its last `max_option_length` tokens, the
    context its first ones, as released.

    Args:
        examples: list of ChoiceExample with equally many options.
        tokenizer: Tokenizer.
        sequence_length: int, T at most.
        max_option_length: int, default 128.
        progress: bool, whether to draw a bar.

    Returns:
        Rows with `label` int32 [R], the option that is right, -1 if unknown.

    Raises:
        ValueError: an example has another number of options than the first.
    """
    check_sequence_length(sequence_length, 8)
    options = len(examples[0].options)
    for example in examples:
        if len(example.options) != options:
            raise ValueError(
                f"{example.where}: {len(example.options)} options, where the "
                f"first example has {options}; all must have equally many."
            )
    contexts = tokenize([x.context for x in examples], tokenizer, progress)
    asked = [f"{x.question} {o}" for x in examples for o in x.options]
    second = tokenize(asked, tokenizer, progress)
    second = second.tail(min(max_option_length, sequence_length - 4))
    first = contexts.gather(np.repeat(np.arange(len(examples)), options))
    first = first.head(sequence_length - 3 - second.lengths)
    return Rows(
        pack(first, second, sequence_length),
        {
            "label": np.array(
                [-1 if x.answer is None else x.answer for x in examples],
                np.int32,
            ),
            "row_weight": np.ones(len(examples), np.float32),
        },
        LEFT_FILLERS,
        "left",
        options=options,
    )


def encode_rankings(
    examples, tokenizer, sequence_length, num_documents=8, progress=False
):
    """Rows of a query and documents: O sequences `query, document`.

    Documents of a query that do not fit one row are dealt out to several, so
    that each has relevant ones while there are any. Rows are filled up with
    copies of their first document, whose `document_mask` is 0.

    Args:
        examples: list of RankingExample.
        tokenizer: Tokenizer.
        sequence_length: int, T at most.
        num_documents: int, O. Default 8.
        progress: bool, whether to draw a bar.

    Returns:
        Rows with `label` float32 [R, O], the relevance (0 if unknown),
        `document_mask` int32 [R, O], and `example` int32 [R, O].
    """
    check_sequence_length(sequence_length, 8)
    queries = {}
    for index, example in enumerate(examples):
        queries.setdefault(example.query_id, []).append(index)
    groups = []
    for indices in queries.values():
        rows = -(-len(indices) // num_documents)
        ranked = sorted(indices, key=lambda i: -(examples[i].relevance or 0))
        groups += [ranked[row::rows] for row in range(rows)]
    chosen = np.array(
        [g + [g[0]] * (num_documents - len(g)) for g in groups], np.int32
    )
    mask = np.arange(num_documents) < np.array([[len(g)] for g in groups])
    relevance = np.array([x.relevance or 0 for x in examples], np.float32)
    query = tokenize([x.query for x in examples], tokenizer, progress)
    document = tokenize([x.document for x in examples], tokenizer, progress)
    flat = chosen.reshape(-1)
    return Rows(
        pack(query.gather(flat), document.gather(flat), sequence_length),
        {
            "label": np.where(mask, relevance[chosen], 0).astype(np.float32),
            "document_mask": mask.astype(np.int32),
            "example": chosen,
            "row_weight": np.ones(len(groups), np.float32),
        },
        LEFT_FILLERS,
        "left",
        options=num_documents,
    )


def encode_tokens(examples, tokenizer, sequence_length, labels, progress=False):
    """Rows of words with tags; the tag of a word belongs to its first piece.

    Words are tokenized one by one. What does not fit is cut off, words and
    all; `words` tells how many are left.

    Args:
        examples: list of TokensExample.
        tokenizer: Tokenizer.
        sequence_length: int, T at most.
        labels: sequence of str, all tags.
        progress: bool, whether to draw a bar.

    Returns:
        Rows with the sequence `token_labels` int32, -1 where no tag is asked
        for, `is_first_piece` uint8, and `words` int32 [R].

    Raises:
        ValueError: a tag is none of `labels`.
    """
    check_sequence_length(sequence_length, 3)
    known = {label: index for index, label in enumerate(labels)}
    words = [word for x in examples for word in x.words]
    pieces = tokenize(words, tokenizer, progress)
    # A word that the tokenizer drops, such as a control character, still has
    # its tag.
    empty = Ragged.full(pieces.lengths == 0, 0)
    pieces = join([pieces, empty])
    tags = []
    for example in examples:
        for tag in example.tags or [None] * len(example.words):
            if tag is not None and tag not in known:
                raise ValueError(_unknown_label(example, tag, labels))
            tags.append(known.get(tag, -1))
    is_first = np.zeros(len(pieces.values), np.uint8)
    is_first[pieces.row_splits[:-1]] = 1
    token_labels = np.full(len(pieces.values), -1, np.int32)
    token_labels[pieces.row_splits[:-1]] = tags
    counts = np.array([len(x.words) for x in examples], np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)])
    splits = pieces.row_splits[ends]
    keep = sequence_length - 2
    token_ids = Ragged(pieces.values, splits).head(keep)
    is_first = Ragged(is_first, splits).head(keep)
    two = np.full(len(examples), 2)
    columns = pack(token_ids, None, sequence_length)
    columns["token_labels"] = join(
        [Ragged(token_labels, splits).head(keep), Ragged.full(two, -1)]
    )
    columns["is_first_piece"] = join([is_first, Ragged.full(two, 0, np.uint8)])
    kept = np.add.reduceat(
        np.append(is_first.values, 0).astype(np.int32),
        is_first.row_splits[:-1],
    )
    return Rows(
        columns,
        {
            "words": np.where(is_first.lengths == 0, 0, kept).astype(np.int32),
            "row_weight": np.ones(len(examples), np.float32),
        },
        {**RIGHT_FILLERS, "token_labels": -1, "is_first_piece": 0},
        "right",
    )


def tokenize(texts, tokenizer, progress=False):
    """Ids of texts, equal ones tokenized once, on all cores.

    Args:
        texts: list of str.
        tokenizer: Tokenizer.
        progress: bool, whether to draw a bar.

    Returns:
        Ragged int32.
    """
    places = {}
    index = np.array([places.setdefault(x, len(places)) for x in texts], int)
    distinct = list(places)
    chunks = [distinct[i : i + _CHUNK] for i in range(0, len(distinct), _CHUNK)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        encoded = list(
            tqdm.tqdm(
                pool.map(tokenizer.encode_flat, chunks),
                total=len(chunks),
                desc="tokenizing",
                leave=False,
                disable=not progress or len(chunks) < 10,
            )
        )
    ids = [np.zeros(0, np.int32), *(ids for ids, _ in encoded)]
    lengths = [np.zeros(0, np.int64), *(lengths for _, lengths in encoded)]
    found = Ragged.from_lengths(np.concatenate(ids), np.concatenate(lengths))
    return found.gather(index)


def check_sequence_length(sequence_length, smallest):
    """Refuses a length that leaves no room for any text."""
    if sequence_length < smallest:
        raise ValueError(
            f"`sequence_length` must be at least {smallest}. Received: "
            f"sequence_length={sequence_length}."
        )


def _windows(texts, length, stride):
    """Windows over the texts, and the text of each."""
    if not 0 < stride <= length:
        raise ValueError(
            f"`stride` must lie between 1 and {length}, the tokens of a "
            f"window. Received: stride={stride}."
        )
    over = np.maximum(texts.lengths - length, 0)
    counts = 1 + -(-over // stride)
    example = np.repeat(np.arange(len(texts)), counts)
    place = np.arange(len(example)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    starts = texts.row_splits[example] + place * stride
    lengths = np.minimum(length, texts.row_splits[example + 1] - starts)
    windows = Ragged.from_lengths(
        np.concatenate(
            [
                texts.values[:0],
                *(
                    texts.values[a : a + n]
                    for a, n in zip(starts, lengths, strict=True)
                ),
            ]
        ),
        lengths,
    )
    return windows, example


def _labels(examples, labels):
    """int32 [R] of classes, or float32 [R] of numbers."""
    if labels is None:
        return np.array(
            [np.nan if x.label is None else float(x.label) for x in examples],
            np.float32,
        )
    known = {label: index for index, label in enumerate(labels)}
    for example in examples:
        if example.label is not None and str(example.label) not in known:
            raise ValueError(_unknown_label(example, example.label, labels))
    return np.array(
        [-1 if x.label is None else known[str(x.label)] for x in examples],
        np.int32,
    )


def _unknown_label(example, label, labels):
    return (
        f"{example.where}: the label {label!r} is none of those known: "
        f"{', '.join(map(str, labels))}."
    )
