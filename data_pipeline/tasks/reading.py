"""The examples of a task, from files in their published layout.

A path is a directory, an archive that is read in place, or one file.
"""

import os
import random

from data_pipeline.tasks import catalog as task_catalog
from data_pipeline.tasks import choices as choice_files
from data_pipeline.tasks import conll as conll_files
from data_pipeline.tasks import examples as kinds
from data_pipeline.tasks import file_trees
from data_pipeline.tasks import ranking_files
from data_pipeline.tasks import reviews as review_directory
from data_pipeline.tasks import squad as squad_files
from data_pipeline.tasks import table_columns
from data_pipeline.tasks import tables as table_files
from data_pipeline.tasks import task_spec

_READERS = {
    "table": table_files.read_examples,
    "ranking": ranking_files.read_examples,
    "conll": conll_files.read_examples,
    "squad": squad_files.read_examples,
    "race": choice_files.read_race,
    "dream": choice_files.read_dream,
    "review_directory": review_directory.read_examples,
}
# Their splits are folders, not files.
_FOLDER_READERS = ("race", "review_directory")


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
    task = task_catalog.find_task(task)
    _check_split(split)
    table_columns.parse_columns(task, columns)
    tree = file_trees.open_tree(path)
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
    return file_trees.open_tree(path).is_file


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
    task = task_catalog.find_task(task)
    _check_split(split)
    tree = file_trees.open_tree(path)
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
    if split not in task_spec.SPLITS:
        raise ValueError(
            f"`split` must be one of {', '.join(task_spec.SPLITS)}. Received: "
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
