"""What a task file says, one example at a time, before any tokenizer.

Every example knows where it stands, "train.tsv, row 17", so that what is wrong
with it can be found. Labels are kept as the file has them.
"""

import typing


class TextExample(typing.NamedTuple):
    """A text, or a pair of texts, with a class or a number."""

    id: str
    text: str
    text_pair: str | None = None
    label: str | float | None = None
    where: str = ""


class ChoiceExample(typing.NamedTuple):
    """A question about a context, its options, and which is right."""

    id: str
    context: str
    question: str
    options: tuple[str, ...]
    answer: int | None = None
    group: str = ""  # such as RACE's "middle" and "high"
    where: str = ""


class Answer(typing.NamedTuple):
    """A span of a context: the text from the character `start` on."""

    text: str
    start: int


class QuestionExample(typing.NamedTuple):
    """A question about a context; without answers it may have none."""

    id: str
    context: str
    question: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
    title: str = ""
    where: str = ""


class TokensExample(typing.NamedTuple):
    """The words of a sentence and a tag, such as "B-person", for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    where: str = ""


class RankingExample(typing.NamedTuple):
    """How well a document answers a query, from 0 (not at all) up."""

    query_id: str
    query: str
    document_id: str
    document: str
    relevance: float | None = None
    where: str = ""
