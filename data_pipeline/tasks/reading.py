"""Examples of a task, from files in their published layout.

A path is a directory, an archive, which is read in place, or a single file.
`read_task` reads a task with its splits.
"""

import dataclasses
import os
import warnings

from data_pipeline.tasks.archives import open_tree
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import SPLITS
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.labels import check_known
from data_pipeline.tasks.labels import labels_of
from data_pipeline.tasks.readers import choices
from data_pipeline.tasks.readers import conll
from data_pipeline.tasks.readers import pairs
from data_pipeline.tasks.readers import reviews
from data_pipeline.tasks.readers import squad
from data_pipeline.tasks.readers import tables
from data_pipeline.tasks.readers.columns import parse_columns
from data_pipeline.tasks.readers.formats import find_table
from data_pipeline.tasks.readers.guess import guess_columns
from data_pipeline.tasks.readers.guess import has_columns
from data_pipeline.tasks.readers.guess import named_columns
from data_pipeline.tasks.readers.guess import refuse_pairs
from data_pipeline.tasks.splitting import hold_out
from data_pipeline.tasks.task_data import TaskData
from data_pipeline.tasks.tfds import read_by_name

_READERS = {
    "table": tables.read_examples,
    "ranking": tables.read_ranking,
    "conll": conll.read_examples,
    "squad": squad.read_examples,
    "race": choices.read_race,
    "dream": choices.read_dream,
    "review_directory": reviews.read_examples,
    "pairs": pairs.read_examples,
    "emails": pairs.read_emails,
}
# Their splits are folders, not files.
_FOLDER_READERS = ("race", "review_directory", "emails")
_HELD_OUT = ("dev", "dev_mismatched")


def read_examples(
    task: str | TaskSpec,
    path: str | os.PathLike,
    split: str = "train",
    columns: str | dict | None = None,
) -> list:
    """Read the examples of a split of a task.

    Rows that are left out or look wrong are counted in warnings.

    Args:
        task: str or TaskSpec.
        path: str or path-like: a directory in the published layout (the folder
            of the task or its parent), an archive of it (.zip, .tar, .tar.gz,
            .tar.xz), or a single file (perhaps .gz, .bz2 or .xz), which is
            read as the split whatever its name is; locally or in a bucket.
        split: "train", "dev" or "test"; for MNLI also "dev_mismatched" and
            "test_mismatched". Only test splits may lack labels.
        columns: columns to read, "text=review,label=stars" or a dict, see
            `data_pipeline.tasks.readers.columns.parse_columns`; None: usual
            names.

    Returns:
        list of examples, see `data_pipeline.tasks.examples`.

    Raises:
        FileNotFoundError: `path` does not exist or lacks the split.
        ValueError: the task, split or a column is unknown, or a file is
            wrong; the message names the file and the row.

    Example:

    ```python
    from data_pipeline import read_examples
    with open("a.csv", "w") as file: print("text,label\\nFine.,good", file=file)
    (example,) = read_examples("classification", "a.csv")
    assert (example.text, example.label) == ("Fine.", "good")
    ```
    """
    spec = find_task(task)
    _check_split(split)
    parse_columns(spec, columns)
    tree = open_tree(path)
    name = tree.file if tree.is_file else _find(spec, tree, split, columns)
    if name is None or spec.reader in _FOLDER_READERS and tree.is_file:
        raise FileNotFoundError(_not_there(spec, path, split))
    return _READERS[spec.reader](tree, name, spec, split, columns)


def read_texts(path, columns=None):
    """Read the texts of a table, whatever else is in it.

    Args:
        path: str or path-like, a file as in `read_examples`.
        columns: as in `read_examples`, of the roles "text" and "id"; what is
            not given and has no usual name is guessed.

    Returns:
        (texts, guessed): list of str, and a dict of role to column, str, of
        those that were guessed.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: the file is wrong, its column of texts is unclear, or it
            has pairs of texts, of which `columns` do not choose one.
    """
    task = find_task("classification")
    of_texts = {role: task.columns[role] for role in ("text", "id")}
    task = dataclasses.replace(task, name="texts", columns=of_texts)
    tree = open_tree(path)
    if "text" not in (parse_columns(task, columns) or {}):
        second = find_task("regression").columns["text_pair"]
        refuse_pairs(tree, tree.file, task, second)
    columns, guessed = guess_columns(tree, tree.file, task, columns)
    rows = tables.read_rows(tree, tree.file, task, "test", columns)
    return [values["text"] for _, values in rows], guessed


def is_file(path):
    """Whether a path is a single file, not a directory or an archive.

    Args:
        path: as in `read_examples`.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: an archive is damaged.
    """
    return open_tree(path).is_file


def find_split(task, path, split, columns=None):
    """Find the file or folder of a split.

    Args:
        task: str or TaskSpec.
        path: as in `read_examples`. A single file is the "train" split only.
        split: str.
        columns: as in `read_examples`.

    Returns:
        str, the path of the file or folder (in an archive: the path of the
        archive and the name inside), or None without this split.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: the task or split is unknown.
    """
    task = find_task(task)
    _check_split(split)
    tree = open_tree(path)
    if tree.is_file:
        return tree.place(tree.file) if split == "train" else None
    name = _find(task, tree, split, columns)
    return None if name is None else tree.place(name)


def _find(task, tree, split, columns=None):
    """Name of the file or folder of a split in a tree, or None."""

    def found(name, is_compressed):
        if task.reader == "pairs":
            return pairs.find(tree, name, task, columns)
        if task.reader in _FOLDER_READERS:
            return name if tree.names_under(name) else None
        return find_table(tree, name, is_compressed)

    for is_compressed in (False, True):  # plain files before all others
        for base in tree.bases(task.folder):
            for candidate in task.files.get(split, ()):
                name = f"{base}/{candidate}" if base else candidate
                if path := found(name, is_compressed):
                    return path
    return None


def _check_split(split):
    if split not in SPLITS:
        raise ValueError(
            f"`split` must be one of {', '.join(SPLITS)}. Received: "
            f"split={split!r}."
        )


def _not_there(task, path, split):
    files = task.files.get(split)
    if not files:
        return (
            f"the task {task.name} is published without a {split} split; it "
            f"has {', '.join(task.files)}. Received: split={split!r}."
        )
    around = f" (or {task.folder}/ around it)" if task.folder else ""
    return (
        f"{os.fspath(path)}: no {split} split of the task {task.name}. "
        f"Expected a directory or an archive with {' or '.join(files)}{around}."
    )


def read_task(name, path, evaluation=None, columns=None, fraction=0.1, seed=0):
    """Read the training and evaluation examples of a task.

    Args:
        name: str, of the task.
        path: str, of its files; None reads TensorFlow Datasets.
        evaluation: str, a file to evaluate on, or a directory or archive, whose
            dev split is read, or its test split if it has no dev split; None:
            the dev split of `path`, or else held-out training examples.
        columns: str or None, such as "text=review,label=stars". Of tables of
            your own, what is not given and has no usual name is guessed.
        fraction: float, share of training examples to hold out if there is no
            dev split.
        seed: int, of the held-out examples.

    Returns:
        TaskData.

    Raises:
        FileNotFoundError, ValueError, RuntimeError: files are missing or
            wrong, or TensorFlow Datasets cannot provide the task.
    """
    task, guessed = find_task(name), {}
    if path is not None:
        columns, guessed = find_columns(task, path, "train", columns)
        train = read_examples(task, path, "train", columns)
    elif columns and evaluation is None:
        raise ValueError(
            "`--columns` needs files: give them with --data. Received: "
            f"columns={columns} and no data."
        )
    else:
        train = read_by_name(task, "train")
    # Before the split: a class may have a single example.
    labels = labels_of(task, train)
    _warn_of_labels(task, train, labels)
    if task.kind == "multi_label":  # names may hold what separates others
        task = dataclasses.replace(task, labels=labels)
    if evaluation is not None:
        splits = _to_evaluate(task, evaluation, columns)
    elif path is not None:
        splits = _held_out(task, path, columns)
    else:
        splits = {
            split: read_by_name(task, split)
            for split in _HELD_OUT
            if split in task.files
        }
    if not splits:
        train, held_out = hold_out(train, fraction, seed)
        splits = {"held out": held_out}
    return TaskData(task, labels, train, splits, columns, guessed, seed)


def find_columns(task, path, split, columns=None, of_run=None):
    """Find the columns of a split, those too that its names do not tell.

    Args:
        task: str or TaskSpec.
        path: as in `read_examples`. A single file is any split.
        split: str.
        columns: as in `read_examples`; what is given is not guessed.
        of_run: dict of role to column that a run read, or None. Where the
            split has them, those that are not given are taken.

    Returns:
        (columns, guessed): what to read as `columns`, and a dict of role to
        column, str, of those that were guessed.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: `columns` or a file is wrong.
    """
    task = find_task(task)
    tree = open_tree(path)
    if of_run:
        both = {**of_run, **(parse_columns(task, columns) or {})}
        name = tree.file or _find(task, tree, split, both)
        if name and has_columns(tree, name, task, both):
            return both, {}
    name = tree.file or _find(task, tree, split, columns)
    if name is None:
        return columns, {}  # an error of what reads it
    found, guessed = guess_columns(tree, name, task, columns)
    if "text_pair" in (of_run or {}):
        given = parse_columns(task, found) or {}
        if "text_pair" not in {**named_columns(tree, name, task), **given}:
            raise ValueError(
                f"{tree.place(name)}: the run read pairs of texts, and no "
                "column is known to have the second ones. Name it: --columns "
                "text_pair=COLUMN."
            )
    return found, guessed


def _warn_of_labels(task, examples, labels):
    """Warn of labels that are probably not the ones that were meant."""
    if task.kind != "classification" or task.labels is not None:
        return
    if len(labels) == 1:
        warnings.warn(
            f"all {len(examples):,} examples have the label {labels[0]!r}: "
            "there is nothing to tell apart",
            stacklevel=3,
        )
    elif len(labels) > max(3, 0.9 * len(examples)):
        warnings.warn(
            f"there are {len(labels):,} classes of {len(examples):,} examples: "
            "is that column an id? Name the one of the classes, --columns "
            "label=COLUMN",
            stacklevel=3,
        )


def read_unlabelled(task, path, columns=None, labels=None):
    """Read examples to predict, which may lack labels.

    Args:
        task: TaskSpec.
        path: str, a file in the format of the task.
        columns: str or None.
        labels: tuple of str, the classes that are known, or None (default) for
            any.

    Returns:
        list of examples.

    Raises:
        ValueError: an example has a label that is not known; or as
            `read_examples`.
    """
    examples = read_examples(task, path, "test", columns)
    if labels is not None:
        check_known(task.kind, examples, labels)
    return examples


def _held_out(task, path, columns):
    """Examples of the dev splits at a path, dict of split to list."""
    return {
        split: read_examples(task, path, split, columns)
        for split in _HELD_OUT
        if split in task.files and find_split(task, path, split, columns)
    }


def _to_evaluate(task, path, columns):
    """Examples of an evaluation path, dict of split to list."""
    if is_file(path):  # read as any split
        return {"dev": read_examples(task, path, "train", columns)}
    splits = _held_out(task, path, columns)
    if not splits and find_split(task, path, "test", columns):
        splits = {"test": read_examples(task, path, "test", columns)}
        for example in splits["test"]:
            if not is_labelled(example):
                raise ValueError(
                    f"{example.where}: there is no label, so this test split "
                    "cannot be evaluated on. Give --eval-data a file with "
                    "labels."
                )
    if not splits:
        raise FileNotFoundError(
            f"{path}: there is neither a dev nor a test split of the task "
            f"{task.name} to evaluate on. Give --eval-data the file itself."
        )
    return splits


def is_labelled(example):
    """Whether an example has its label, answer, tags, relevance or target."""
    if isinstance(example, QuestionExample):
        return bool(example.answers) or example.is_impossible
    return not any(
        getattr(example, name, "") is None
        for name in ("label", "answer", "tags", "relevance", "target")
    )
