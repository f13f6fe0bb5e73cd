"""Which pieces of a context are the answer to a question.

Shapes: X examples, C distinct contexts, P pieces of all contexts, A answers.
"""

import typing

import numpy as np


class Contexts(typing.NamedTuple):
    """Distinct contexts in pieces.

    `token_ids`, `begins` and `ends` are int32 [P], the last two in characters
    of the context; `splits` is int64 [C + 1]; `of_example` int64 [X].
    """

    token_ids: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    splits: np.ndarray
    of_example: np.ndarray

    @property
    def lengths(self):
        """int64 [X], pieces of the context of each example."""
        return np.diff(self.splits)[self.of_example]


class Answers(typing.NamedTuple):
    """Answers that have pieces, in the order of the examples.

    `example`, `first` and `last` are int64 [A], the pieces counted in the
    context, the last one inclusive. `num_exact` is how many begin and end where
    their pieces do; `num_given` int64 [X] how many each example has, with those
    that are not at their place in the context or have no piece.
    """

    example: np.ndarray
    first: np.ndarray
    last: np.ndarray
    num_exact: int
    num_given: np.ndarray


def encode_contexts(examples, tokenizer):
    """Cuts each distinct context into pieces, once.

    Args:
        examples: list of QuestionExample.
        tokenizer: Tokenizer.

    Returns:
        Contexts.
    """
    numbers = {}
    of_example = [
        numbers.setdefault(one.context, len(numbers)) for one in examples
    ]
    token_ids = [np.zeros(0, np.int32)]
    offsets = [np.zeros((0, 2), np.int32)]
    for context in numbers:
        ids, spans = tokenizer.encode_with_offsets(context)
        token_ids.append(np.array(ids, np.int32))
        offsets.append(np.array(spans, np.int32).reshape(-1, 2))
    splits = np.cumsum([len(ids) for ids in token_ids], dtype=np.int64)
    begins, ends = np.concatenate(offsets).T.copy()
    return Contexts(
        np.concatenate(token_ids),
        begins,
        ends,
        splits,
        np.array(of_example, np.int64),
    )


def find_answers(examples, contexts):
    """Finds the pieces that hold each answer.

    Args:
        examples: list of QuestionExample.
        contexts: Contexts of these.

    Returns:
        Answers.
    """
    numbers, begins, texts = [], [], []
    for number, one in enumerate(examples):
        if one.is_impossible:
            continue
        for answer in one.answers:
            text = answer.text.lstrip()
            numbers.append(number)
            begins.append(answer.start + len(answer.text) - len(text))
            texts.append(text.rstrip())
    is_there = [
        bool(text)
        and begin >= 0
        and examples[number].context.startswith(text, begin)
        for number, begin, text in zip(numbers, begins, texts, strict=True)
    ]
    example = np.array(numbers, np.int64)[is_there]
    begin = np.array(begins, np.int64)[is_there]
    end = begin + np.array(list(map(len, texts)), np.int64)[is_there]
    first, last, found = _pieces(
        contexts, contexts.of_example[example], begin, end
    )
    example, begin, end = example[found], begin[found], end[found]
    is_exact = (contexts.begins[first] == begin) & (contexts.ends[last] == end)
    start = contexts.splits[contexts.of_example[example]]
    return Answers(
        example,
        first - start,
        last - start,
        num_exact=int(is_exact.sum()),
        num_given=np.bincount(
            np.array(numbers, np.int64), minlength=len(examples)
        ),
    )


def _pieces(contexts, context, begin, end):
    """First and last pieces, among those of all contexts, of spans [A].

    Returns the pieces of spans that have some, and bool [A], which have.
    """
    # One ascending axis for the characters of all contexts.
    width = 2 + int(max(contexts.ends.max(initial=0), end.max(initial=0)))
    lengths = np.diff(contexts.splits)
    of_piece = np.repeat(np.arange(len(lengths)) * width, lengths)
    # A piece that is only the blank before a word is part of no answer.
    places = np.flatnonzero(contexts.begins < contexts.ends)
    begins = (of_piece + contexts.begins)[places]
    ends = (of_piece + contexts.ends)[places]
    first = np.searchsorted(ends, context * width + begin, side="right")
    last = np.searchsorted(begins, context * width + end, side="left") - 1
    # Characters that the tokenizer drops have no piece.
    found = first <= last
    return places[first[found]], places[last[found]], found
