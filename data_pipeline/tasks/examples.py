"""Specifications of fine-tuning tasks, and the classes of their examples.

The field `where` of an example is shown in messages. It is the place of the
example in the data, such as "train.tsv, row 17". Labels are stored as they are
written in the file.
"""

import dataclasses
import hashlib
import json
import typing
import unicodedata

SPLITS = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
KINDS = (
    "classification",
    "multi_label",
    "regression",
    "multiple_choice",
    "question_answering",
    "token_classification",
    "ranking",
    "sequence_to_sequence",
)
# Unicode categories of invisible characters.
_UNSEEN = ("Cc", "Cf", "Me", "Mn", "Zl", "Zp", "Zs")
# The first metric selects the best weights of a run.
NUMBER_METRICS = (
    "pearson",
    "spearman",
    "mean_absolute_error",
    "root_mean_squared_error",
    "r2",
)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """Specification of a fine-tuning task: files, columns, labels, metrics.

    Args:
        name: str.
        kind: str, one of `KINDS`.
        reader: str, layout of the files: "table", "review_directory", "race",
            "dream", "squad", "conll", "ranking", "pairs" or "emails".
        files: dict of split to a tuple of file names, the preferred name first.
            For "race", "review_directory" and "emails" the names are folders.
            For "pairs" a name may also be the common beginning of the names of
            two parallel files, see `readers.pairs`.
        columns: dict of role ("text", "text_pair", "label", "id" and so on) to
            a tuple of candidates, the preferred candidate first. A candidate is
            a name in the header, an index (from 0, for files without a header),
            or a tuple of several columns (whose texts are joined by a space).
        optional: tuple of roles whose columns a file may lack. The label is
            always optional in a test split.
        labels: tuple of str, the classes (as written in the files) in the order
            of the logits, or None to read the classes from the data.
        metrics: tuple of str, the main metric first.
        sequence_length: int, default number of tokens of a sequence.
        folder: str, name of the published folder, or None for tasks with the
            user's own files.
        table_format: "tsv" (not quoted), "csv" (quoted), or None if the file
            name determines the format.
        skips_incomplete: bool, whether to skip rows with too few fields, with a
            warning. Some published files have such rows. If False, such rows
            are refused.
        escapes: tuple of pairs (written, meant). `meant` replaces `written` in
            texts.
        converts_tags: bool, whether IOB1 tags are converted to BIO.
        tfds: str, name of the task in TensorFlow Datasets, or None.
        description: str, one line, for `xlnet finetune --help`.
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
    skips_incomplete: bool = False
    escapes: tuple = ()
    converts_tags: bool = False
    tfds: str | None = None


def splits_named(ending):
    """Make a dict of split to a tuple of one name, such as train.tsv."""
    return {split: (split + ending,) for split in ("train", "dev", "test")}


def own_splits(endings):
    """Make a dict of split to the usual names of a user's own files."""
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
    """Text or text pair. The label is a class, several classes or a number."""

    id: str
    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None
    where: str = ""


class ChoiceExample(typing.NamedTuple):
    """Question about a context, with options and the answer's index."""

    id: str
    context: str
    question: str
    options: tuple[str, ...]
    answer: int | None = None
    group: str = ""  # such as "high" in RACE
    where: str = ""


def has_text(answer):
    """Whether the text of an answer has a visible character, bool.

    Blanks, control characters, format characters, and marks without a letter do
    not count as visible. The tokenizer removes these characters from texts, so
    no predicted answer can consist of them.

    Args:
        answer: str.
    """
    return any(unicodedata.category(x) not in _UNSEEN for x in answer)


class Answer(typing.NamedTuple):
    """Span of a context: the text, and the offset of the first character."""

    text: str
    start: int


class QuestionExample(typing.NamedTuple):
    """Question about a context, with any number of answers."""

    id: str
    context: str
    question: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
    title: str = ""
    where: str = ""

    @property
    def true_answers(self):
        """Tuple of answers with a text; empty if `is_impossible` is True."""
        if self.is_impossible:
            return ()
        return tuple(one for one in self.answers if has_text(one.text))


class TokensExample(typing.NamedTuple):
    """Words of a sentence, with a tag such as "B-person" for each word."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    where: str = ""


class RankingExample(typing.NamedTuple):
    """Relevance of a document for a query, from 0 (irrelevant) upwards."""

    query_id: str
    query: str
    document_id: str
    document: str
    relevance: float | None = None
    where: str = ""


class PairExample(typing.NamedTuple):
    """Source text, and the target text to generate from the source."""

    id: str
    source: str
    target: str | None = None
    where: str = ""


def digest_of_examples(splits):
    """Compute a short digest of the examples of several splits.

    Args:
        splits: dict of split name to a list of examples.

    Returns:
        str, 16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, examples in splits.items():
        digest.update(json.dumps([name, len(examples)]).encode())
        for example in examples:
            content = example._replace(where="")
            digest.update(json.dumps(content).encode() + b"\n")
    return digest.hexdigest()[:16]
