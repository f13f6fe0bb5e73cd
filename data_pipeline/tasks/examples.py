"""Tasks and their examples, before any tokenizer.

Every example knows where it stands, "train.tsv, row 17", so that what is wrong
with it can be found. Labels are kept as the file has them.
"""

import dataclasses
import typing

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
KINDS = (
    "classification",
    "regression",
    "multiple_choice",
    "question_answering",
    "token_classification",
    "ranking",
)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A task as data.

    Args:
        name: str.
        kind: str, one of KINDS.
        reader: str, the layout of its files: "table", "review_directory",
            "race", "dream", "squad", "conll" or "ranking".
        files: dict of split to a tuple of file names, first choice first. Of
            "race" and "review_directory": names of folders.
        columns: dict of role ("text", "text_pair", "label", "id" and so on) to
            a tuple of candidates, first choice first: a name in the header, an
            int (from 0, used where the file has no header), or a tuple of
            these whose texts are joined by a blank.
        optional: tuple of the roles that a file may lack. The label is
            always optional in a test split.
        labels: tuple of str as they stand in the files, in the order of the
            classes, or None: taken from the data.
        metrics: tuple of str, the main one first.
        sequence_length: int, tokens; a default.
        folder: str, the folder's name as published, or None for tasks that
            read your own files.
        table_format: "tsv" (not quoted) or "csv" (quoted), or None: told by
            the file's ending.
        unlabelled: tuple of labels that mean "no label"; such rows are left
            out and counted.
        skips_incomplete: bool, whether rows with too few fields are left out
            and counted, because the published files have some, or refused.
        escapes: tuple of (written, meant) to replace in texts.
        converts_tags: bool, whether IOB1 tags are turned into BIO.
        tfds: str, the name in TensorFlow Datasets, or None.
        description: str, one line.
    """

    name: str
    kind: str
    reader: str
    files: dict
    metrics: tuple
    description: str
    columns: dict = dataclasses.field(default_factory=dict)
    optional: tuple = ("id",)
    labels: tuple | None = None
    sequence_length: int = 128
    folder: str | None = None
    table_format: str | None = None
    unlabelled: tuple = ()
    skips_incomplete: bool = False
    escapes: tuple = ()
    converts_tags: bool = False
    tfds: str | None = None


def splits_named(ending):
    """dict of split to the file of its name, such as train.tsv."""
    return {split: (split + ending,) for split in ("train", "dev", "test")}


def own_splits(endings):
    """dict of split to the names that people give to their own files."""
    names = {
        "train": ("train",),
        "dev": ("dev", "valid", "validation", "val"),
        "test": ("test",),
    }
    return {
        split: tuple(stem + ending for stem in stems for ending in endings)
        for split, stems in names.items()
    }


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
