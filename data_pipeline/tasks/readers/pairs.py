"""Sources and their targets: tables, two parallel files, and AESLC's e-mails.

Parallel files have a text a line, such as train.de and train.en: line N of the
one is the target of line N of the other.
"""

import itertools
import os
import posixpath
import warnings

from data_pipeline.tasks import archives
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.examples import own_splits
from data_pipeline.tasks.readers import tables
from data_pipeline.tasks.readers.columns import parse_columns
from data_pipeline.tasks.readers.formats import TABLE_ENDINGS
from data_pipeline.tasks.readers.formats import find_table
from data_pipeline.tasks.readers.formats import is_table
from data_pipeline.text.files import COMPRESSED

_COMPRESSED = ("", *COMPRESSED)
_SUBJECT = "@subject"
_ANNOTATION = "@ann"


def find(tree, candidate, task, columns=None):
    """Find a table, or two parallel files.

    Args:
        tree: archives.Tree.
        candidate: str, the name of a table, or the beginning of the names of
            two parallel files, such as "train".
        task: TaskSpec.
        columns: as in `read_examples`.

    Returns:
        str, the name of the table or of the sources, or None.
    """
    if candidate.lower().endswith(TABLE_ENDINGS):
        return find_table(tree, candidate)
    sources, targets = _endings(task, columns)
    # A test split may have no targets.
    needs = not posixpath.basename(candidate).startswith("test")
    for ending in sources:
        name = _existing(tree, f"{candidate}.{ending}")
        if name and (_target_of(tree, candidate, targets) or not needs):
            return name
    return None


def read_examples(tree, name, task, split, columns=None):
    """Read the pairs of a table or of two parallel files.

    Pairs of which one side is empty are left out with a warning, but for test
    splits.

    Args:
        tree: archives.Tree.
        name: str, the table, or the file of the sources.
        task: TaskSpec whose reader is "pairs".
        split: str; in a test split targets may be missing.
        columns: as in `data_pipeline.tasks.readers.columns.parse_columns`; of
            parallel files the endings of their names, "source=de,target=en".

    Returns:
        list of PairExample.

    Raises:
        FileNotFoundError: there is no file of targets.
        ValueError: a row is wrong, parallel files differ in length, or there
            are no examples.
    """
    place, file = tree.place(name), posixpath.basename(name)
    is_test = split.startswith("test")
    if is_table(name):
        rows = _of_table(tree, name, task, split, columns)
    else:
        rows = _of_lines(tree, name, task, is_test, columns)
    examples, left_out = [], 0
    for index, (number, example_id, source, target) in enumerate(rows):
        if not is_test and not (source.strip() and (target or "").strip()):
            left_out += 1
            continue
        where = f"{file}, row {number}"
        examples.append(
            PairExample(example_id or str(index), source, target, where)
        )
    return _checked(examples, left_out, place)


def read_emails(tree, name, task, split, columns=None):
    """Read AESLC's e-mails below a folder, sorted by file: body to subject.

    The subjects that annotators wrote are left out.

    Args:
        tree: archives.Tree.
        name: str, the folder of the split, with a .subject file an e-mail.
        task: TaskSpec.
        split: str; in a test split subjects may be missing.
        columns: unused.

    Returns:
        list of PairExample with the name of the file as id.

    Raises:
        ValueError: an e-mail has no subject, or there is none.
    """
    place = tree.place(name)
    is_test = split.startswith("test")
    names = [x for x in tree.names_under(name) if x.endswith(".subject")]
    found, left_out = {}, 0
    for path, data in tree.read_many(names):
        text = archives.decode(data, tree.place(path))
        body, mark, rest = text.partition(_SUBJECT)
        subject = rest.partition(_ANNOTATION)[0].strip()
        if not mark and not is_test:
            raise ValueError(
                f"{tree.place(path)}: not AESLC's layout, a body and then the "
                f"line {_SUBJECT}."
            )
        body = body.strip()
        if not is_test and not (body and subject):
            left_out += 1
            continue
        file = posixpath.basename(path)
        found[path] = PairExample(
            file.removesuffix(".subject"),
            body,
            subject if mark else None,
            "/".join(path.split("/")[-2:]),
        )
    examples = [found[path] for path in names if path in found]
    return _checked(examples, left_out, place)


def _checked(examples, left_out, place):
    if left_out:
        warnings.warn(
            f"{place}: {left_out} pairs with an empty source or target left "
            "out",
            stacklevel=3,
        )
    if not examples:
        raise ValueError(f"{place}: the file holds no examples.")
    return examples


def _of_table(tree, name, task, split, columns):
    """Yield (row, id, source, target) of a table."""
    rows = tables.read_rows(tree, name, task, split, columns)
    for number, values in rows:
        yield number, values.get("id"), values["source"], values["target"]


def _of_lines(tree, name, task, is_test, columns):
    """Yield (row, None, source, target) of parallel files."""
    _, targets = _endings(task, columns)
    stem = os.path.splitext(_plain(name))[0]
    other = _target_of(tree, stem, targets)
    if other is None and not is_test:
        raise FileNotFoundError(
            f"{tree.place(name)}: there is no file of targets beside it. "
            f"Expected {' or '.join(f'{stem}.{x}' for x in targets)}; name the "
            "ending of yours: --columns target=ENDING."
        )
    lines = [_lines(tree, name)]
    if other is not None:
        lines.append(_lines(tree, other))
    number = 0
    for number, row in enumerate(itertools.zip_longest(*lines), start=1):
        if None in row:
            longer = other if row[0] is None else name
            raise ValueError(
                f"{tree.place(longer)}, row {number}: parallel files must have "
                f"equally many lines; {name if longer == other else other} has "
                f"{number - 1}."
            )
        yield number, None, row[0], row[1] if other is not None else None


def _lines(tree, name):
    # A text may hold U+2028 and the like, which end no line.
    with archives.open_text(tree, name, newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n")


def _endings(task, columns):
    """Endings of the names of parallel files: of sources, and of targets."""
    given = parse_columns(task, columns)
    return tuple(
        (given[role],) if role in given else task.columns[role]
        for role in ("source", "target")
    )


def _target_of(tree, stem, endings):
    for ending in endings:
        name = _existing(tree, f"{stem}.{ending}")
        if name:
            return name
    return None


def _existing(tree, name):
    """The name with the ending of a compressed file, if it has one, or None."""
    for compressed in _COMPRESSED:
        if tree.has(name + compressed):
            return name + compressed
    return None


def _plain(name):
    """A name without the ending of a compressed file."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in _COMPRESSED[1:] else name


_METRICS = ("bleu", "chrf", "rouge1", "rouge2", "rouge_l")
_KIND = "sequence_to_sequence"


def _multi30k(source, target):
    """TaskSpec of a direction of Multi30k, task 1."""
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
