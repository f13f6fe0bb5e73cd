"""The examples of a task, from files in their published layout.

A path is a directory, an archive that is read in place, or one file.
"""

import dataclasses
import os
import random

from data_pipeline.tasks import archives
from data_pipeline.tasks import choices as choice_files
from data_pipeline.tasks import columns as table_columns
from data_pipeline.tasks import conll as conll_files
from data_pipeline.tasks import examples as kinds
from data_pipeline.tasks import reviews as review_directory
from data_pipeline.tasks import squad as squad_files
from data_pipeline.tasks import tables as table_files
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.tfds import read_by_name

_READERS = {
    "table": table_files.read_examples,
    "ranking": table_files.read_ranking,
    "conll": conll_files.read_examples,
    "squad": squad_files.read_examples,
    "race": choice_files.read_race,
    "dream": choice_files.read_dream,
    "review_directory": review_directory.read_examples,
}
# Their splits are folders, not files.
_FOLDER_READERS = ("race", "review_directory")
_HELD_OUT = ("dev", "dev_mismatched")


def read_examples(task, path, split="train", columns=None):
    """The examples of a split.

    Args:
        task: str or TaskSpec.
        path: str or path-like: a directory in the published layout (the
            task's own folder or the one around it), such an archive (.zip,
            .tar, .tar.gz, .tar.xz), or one file (perhaps .gz, .bz2 or .xz),
            which is then the split, whatever its name.
        split: "train", "dev" or "test"; of MNLI also "dev_mismatched" and
            "test_mismatched". Only test splits may lack labels.
        columns: which columns to read, "text=review,label=stars" or a dict;
            see `table_columns.parse_columns`. None: the usual names.

    Returns:
        list of examples, see `data_pipeline.tasks.examples`. What was left out
        or looks wrong is told in one `warnings.warn` each.

    Raises:
        FileNotFoundError: there is nothing at `path`, or not this split.
        ValueError: an unknown task, split or column, or something wrong in a
            file; the message names the file and the row.
    """
    task = find_task(task)
    _check_split(split)
    table_columns.parse_columns(task, columns)
    tree = archives.open_tree(path)
    name = tree.file if tree.is_file else _find(task, tree, split)
    if name is None or task.reader in _FOLDER_READERS and tree.is_file:
        raise FileNotFoundError(_not_there(task, path, split))
    return _READERS[task.reader](tree, name, task, split, columns)


def is_file(path):
    """Whether a path is one file, which is then any split.

    Args:
        path: as in `read_examples`.

    Returns:
        bool, False for a directory or an archive of several files.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: an archive is damaged.
    """
    return archives.open_tree(path).is_file


def find_split(task, path, split):
    """Where a split is.

    Args:
        task: str or TaskSpec.
        path: as in `read_examples`. One file is the "train" split alone.
        split: str.

    Returns:
        str, the path of the split's file or folder (in an archive: the
        archive's path and the name inside), or None where it is not.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: an unknown task or split.
    """
    task = find_task(task)
    _check_split(split)
    tree = archives.open_tree(path)
    if tree.is_file:
        return tree.place(tree.file) if split == "train" else None
    name = _find(task, tree, split)
    return None if name is None else tree.place(name)


def hold_out(examples, fraction, seed):
    """Sets a part of the examples aside, the same for the same seed.

    What belongs together stays together: all questions about a text (of
    SQuAD: about an article), all documents of a query.

    Args:
        examples: list of examples, all of one kind.
        fraction: float, how much to hold out, between 0 and 1; at least one
            group is held out and one is left.
        seed: int.

    Returns:
        (train, held out): two lists, each in the order of `examples`.

    Raises:
        ValueError: `fraction` is out of range, or there is only one group.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` must be between 0 and 1. Received: "
            f"fraction={fraction}."
        )
    groups = {}
    for index, example in enumerate(examples):
        groups.setdefault(_group(example, index), []).append(index)
    if len(groups) < 2:
        raise ValueError(
            "nothing can be held out: the examples are of one group (one text, "
            f"article or query). Received: {len(examples)} examples."
        )
    order = list(groups)
    random.Random(seed).shuffle(order)
    wanted, chosen = fraction * len(examples), set()
    for group in order[:-1]:
        if chosen and len(chosen) + len(groups[group]) / 2 > wanted:
            break
        chosen.update(groups[group])
    return (
        [one for index, one in enumerate(examples) if index not in chosen],
        [one for index, one in enumerate(examples) if index in chosen],
    )


def _group(example, index):
    if isinstance(example, kinds.ChoiceExample):
        return example.context
    if isinstance(example, kinds.QuestionExample):
        return example.title or example.context
    if isinstance(example, kinds.RankingExample):
        return example.query_id
    return index


def _find(task, tree, split):
    """The name of the split's file or folder in a tree, or None."""
    has = tree.has
    if task.reader in _FOLDER_READERS:
        has = tree.names_under
    for base in tree.bases(task.folder):
        for candidate in task.files.get(split, ()):
            name = f"{base}/{candidate}" if base else candidate
            if has(name):
                return name
    return None


def _check_split(split):
    if split not in kinds.SPLITS:
        raise ValueError(
            f"`split` must be one of {', '.join(kinds.SPLITS)}. Received: "
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


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task with its examples.

    Attributes:
        task: TaskSpec.
        labels: tuple of str or None, the classes in the order of the logits.
        train: list of examples.
        evaluation: dict of str to a list of examples, the split that counts
            first.
    """

    task: kinds.TaskSpec
    labels: tuple | None
    train: list
    evaluation: dict

    def held_out(self):
        """Pairs of a split's name and its examples."""
        return list(self.evaluation.items())


def read_task(name, path, evaluation=None, columns=None, fraction=0.1, seed=0):
    """Reads the examples of a task.

    Args:
        name: str, of the task.
        path: str, its files; None: by name through TensorFlow Datasets.
        evaluation: str, a file to evaluate on, or a directory or archive whose
            dev split is taken, or its test split if it has no other; None:
            the dev split of `path`, or a part of the training examples.
        columns: str or None, such as "text=review,label=stars".
        fraction: float, the part that is held out where there is no dev split.
        seed: int, chooses that part.

    Returns:
        TaskData.

    Raises:
        FileNotFoundError, ValueError, RuntimeError: if files are missing or
            wrong, or a set cannot be had by name.
    """
    task = find_task(name)
    if path is not None:
        train = read_examples(task, path, "train", columns)
    elif columns and evaluation is None:
        raise ValueError(
            "`--columns` is of files; give them with --data. Received: "
            f"columns={columns} and no data."
        )
    else:
        train = read_by_name(task, "train")
    # Before any are held out: a class may have one example.
    labels = labels_of(task, train)
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
    return TaskData(task, labels, train, splits)


def read_unlabelled(task, path, columns=None):
    """Examples to predict; labels may be missing.

    Args:
        task: TaskSpec.
        path: str, a file in the task's format.
        columns: str or None.

    Returns:
        list of examples.
    """
    return read_examples(task, path, "test", columns)


def labels_of(task, examples):
    """The classes of a task: its own, or those of its examples in order.

    Args:
        task: TaskSpec.
        examples: list of training examples.

    Returns:
        tuple of str, or None where the task has no classes.
    """
    if task.kind not in ("classification", "token_classification"):
        return None
    if task.labels is not None:
        return task.labels
    if task.kind == "classification":
        found = {str(x.label) for x in examples}
    else:
        found = {tag for x in examples for tag in x.tags}
    # The tag of words outside of any entity comes first; numbers as numbers.
    return tuple(
        sorted(
            found,
            key=lambda x: (x != "O", not x.isdigit(), len(x) * x.isdigit(), x),
        )
    )


def _held_out(task, path, columns):
    """dict of split to examples."""
    return {
        split: read_examples(task, path, split, columns)
        for split in _HELD_OUT
        if split in task.files and find_split(task, path, split)
    }


def _to_evaluate(task, path, columns):
    """dict of split to examples of what was given to evaluate on."""
    if is_file(path):  # which stands for any split
        return {"dev": read_examples(task, path, "train", columns)}
    found = _held_out(task, path, columns)
    if not found and find_split(task, path, "test"):
        found = {"test": read_examples(task, path, "test", columns)}
        for example in found["test"]:
            if not _is_labelled(example):
                raise ValueError(
                    f"{example.where}: there is no label, so this test split "
                    "cannot be evaluated on. Give --eval-data a file with "
                    "labels."
                )
    if not found:
        raise FileNotFoundError(
            f"{path}: there is neither a dev nor a test split of the task "
            f"{task.name} to evaluate on. Give --eval-data the file itself."
        )
    return found


def _is_labelled(example):
    """Whether what a model is to say of an example is known."""
    if isinstance(example, kinds.QuestionExample):
        return bool(example.answers) or example.is_impossible
    return not any(
        getattr(example, name, "") is None
        for name in ("label", "answer", "tags", "relevance")
    )
