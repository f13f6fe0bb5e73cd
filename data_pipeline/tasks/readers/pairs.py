"""Readers of source and target texts: tables, parallel files, AESLC's e-mails.

Two parallel files, such as train.de and train.en, have one text per line. Line
N of the first file is the source of line N of the second file.
"""

import io
import itertools
import os
import posixpath

from data_pipeline.tasks.counted import Counted
from data_pipeline.tasks.counted import without_marks
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.examples import own_splits
from data_pipeline.tasks.table import TABLE_ENDINGS
from data_pipeline.tasks.table import Table
from data_pipeline.tasks.table import find_table
from data_pipeline.text.compression import COMPRESSED
from data_pipeline.text.compression import plain_name

_SUBJECT = "@subject"
_ANNOTATION = "@ann"
_EMPTY = "pairs with an empty source or target left out"


def find(tree, candidate, task, columns, is_compressed):
    """Find the table or the two parallel files of a split.

    Args:
        tree: archives.Tree.
        candidate: str, name of a table, or common beginning of the names of two
            parallel files, such as "train".
        task: TaskSpec.
        columns: dict from `parse_columns`. For parallel files, its values are
            the suffixes of the files, as in {"source": "de", "target": "en"}.
        is_compressed: bool, whether to look for a compressed table. Parallel
            files are found in both cases.

    Returns:
        str, name of the table or of the file with the sources, or None if there
        is no such file.
    """
    if candidate.lower().endswith(TABLE_ENDINGS):
        return find_table(tree, candidate, is_compressed)
    sources, targets = _endings(task, columns)
    # A test split may lack targets.
    is_test = posixpath.basename(candidate).startswith("test")
    if not is_test and not _existing(tree, candidate, targets):
        return None
    return _existing(tree, candidate, sources)


def open_lines(tree, name, task, columns, is_test):
    """Open two parallel files as a table with two columns.

    Args:
        tree: archives.Tree.
        name: str, file with the sources.
        task: TaskSpec.
        columns: dict, see `find`.
        is_test: bool, whether the file with the targets may be missing.

    Returns:
        Table.

    Raises:
        FileNotFoundError: the file with the targets is missing.
        ValueError: the files have different numbers of lines.
    """
    sources, targets = _endings(task, columns)
    stem = os.path.splitext(plain_name(name))[0]
    other = _existing(tree, stem, targets)
    if other is None and not is_test:
        raise FileNotFoundError(
            f"{tree.place(name)}: there is no file of targets beside it. "
            f"Expected {' or '.join(f'{stem}.{x}' for x in targets)}; name the "
            "ending of yours: --columns target=ENDING."
        )
    files = {sources[0]: name}
    if other is not None:
        files[targets[0]] = other
    counted = Counted(tree.place(name))
    rows = _parallel_rows(tree, files, counted)
    return Table(tree.place(name), rows, counted=counted)


def _parallel_rows(tree, files, counted):
    """Yield each line of parallel files: the row number and a dict of texts.

    Args:
        tree: archives.Tree.
        files: dict of column names to file names.
        counted: Counted.
    """
    # Reading lines of two members of a compressed .tar in turn would decompress
    # the archive again and again.
    contents = dict(tree.read_texts([*files.values()]))
    lines = [_lines(contents[name], counted) for name in files.values()]
    for number, texts in enumerate(itertools.zip_longest(*lines), start=1):
        row = dict(zip(files, texts, strict=True))
        if None in texts:
            shorter = next(x for x in files if row[x] is None)
            longer = next(x for x in files if row[x] is not None)
            raise ValueError(
                f"{tree.place(files[longer])}, row {number}: parallel files "
                f"must have equally many lines; {files[shorter]} has "
                f"{number - 1}."
            )
        yield number, row


def _lines(content, counted):
    # Only "\n" ends a line: a text may contain U+2028 and similar characters.
    for line in without_marks(io.StringIO(content, newline="\n"), counted):
        yield line.rstrip("\r\n")


def _endings(task, columns):
    """Return the possible suffixes of the source file and the target file."""
    return tuple(
        (columns[role],) if role in columns else task.columns[role]
        for role in ("source", "target")
    )


def _existing(tree, stem, endings):
    """Find the name of the first existing file with one of the suffixes.

    The result is None if there is no such file. The file may be compressed. The
    name then has a further suffix such as .gz.
    """
    for ending, compressed in itertools.product(endings, ("", *COMPRESSED)):
        name = f"{stem}.{ending}{compressed}"
        if tree.has(name):
            return name
    return None


def read_examples(split):
    """Read the source and target texts of a table or of parallel files.

    Test splits keep pairs with an empty text. In the other splits, such pairs
    are skipped with a warning.

    Args:
        split: reading.Split of a task whose reader is "pairs". In a test split,
            targets may be missing.

    Returns:
        list of PairExample.

    Raises:
        ValueError: a row is not valid.
    """
    examples = []
    for index, (number, values) in enumerate(split.rows()):
        source, target = values["source"], values["target"]
        is_whole = source.strip() and (target or "").strip()
        if not is_whole and not split.is_test:
            split.counted.add(_EMPTY, number)
            continue
        example_id = values.get("id") or str(index)
        where = split.where(number)
        examples.append(PairExample(example_id, source, target, where))
    return examples


def read_emails(split):
    """Read AESLC's e-mails, with bodies as sources and subjects as targets.

    The e-mails are sorted by file name. Further subjects of an e-mail, which
    annotators wrote, are skipped.

    Args:
        split: reading.Split. The folder of the split has one .subject file per
            e-mail. In a test split, subjects may be missing.

    Returns:
        list of PairExample. The id is the name of the file.

    Raises:
        ValueError: an e-mail has no subject.
    """
    tree = split.tree
    names = [x for x in tree.names_under(split.path) if x.endswith(".subject")]
    by_name = {}
    for path, text in tree.read_texts(names):
        body, mark, rest = text.partition(_SUBJECT)
        subject = rest.partition(_ANNOTATION)[0].strip()
        if not mark and not split.is_test:
            raise ValueError(
                f"{tree.place(path)}: not AESLC's layout, a body and then the "
                f"line {_SUBJECT}."
            )
        body = body.strip()
        if not split.is_test and not (body and subject):
            split.counted.add(_EMPTY, path)
            continue
        file = posixpath.basename(path)
        by_name[path] = PairExample(
            file.removesuffix(".subject"),
            body,
            subject if mark else None,
            "/".join(path.split("/")[-2:]),
        )
    return [by_name[path] for path in names if path in by_name]


_METRICS = ("bleu", "chrf", "rouge1", "rouge2", "rouge_l")
_KIND = "sequence_to_sequence"


def _multi30k(source, target):
    """Make the TaskSpec of a translation direction (Multi30k, task 1)."""
    names = {"en": "English", "de": "German", "fr": "French"}
    return TaskSpec(
        name=f"multi30k-{source}-{target}",
        kind=_KIND,
        reader="pairs",
        files={
            "train": ("train",),
            "dev": ("val",),
            "test": ("test_2016_flickr", "test"),
        },
        folder="multi30k",
        columns={"source": (source,), "target": (target,)},
        metrics=_METRICS[:2],
        sequence_length=128,
        description=f"captions of pictures, {names[source]} to {names[target]}",
    )


PAIR_TASKS = (
    TaskSpec(
        name="seq2seq",
        kind=_KIND,
        reader="pairs",
        files=own_splits((*TABLE_ENDINGS, "")),
        columns={
            "source": ("source", "src", "text", "input", "document"),
            "target": ("target", "tgt", "summary", "output"),
            "id": ("id", "index", "idx"),
        },
        metrics=_METRICS,
        sequence_length=256,
        description="your own texts to texts: tables or two parallel files",
    ),
    TaskSpec(
        name="aeslc",
        kind=_KIND,
        reader="emails",
        files={split: (split,) for split in ("train", "dev", "test")},
        folder="enron_subject_line",
        metrics=("rouge_l", "rouge1", "rouge2"),
        sequence_length=256,
        tfds="aeslc",
        description="subject lines of e-mails",
    ),
    *(
        _multi30k(*pair)
        for pair in (("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"))
    ),
)
