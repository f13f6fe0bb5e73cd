"""The examples of a fine-tuning run: what to learn from, what to hold out."""

import dataclasses

from data_pipeline import task_catalog
from data_pipeline import task_files
from data_pipeline.named_sets import read_by_name

_HELD_OUT = ("dev", "dev_mismatched")


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

    task: task_catalog.TaskSpec
    labels: tuple | None
    train: list
    evaluation: dict

    def held_out(self):
        """Pairs of a split's name and its examples."""
        return list(self.evaluation.items())


def read(name, path, evaluation=None, columns=None, hold_out=0.1, seed=0):
    """Reads the examples of a task.

    Args:
        name: str, of the task.
        path: str, its files; None: by name through TensorFlow Datasets.
        evaluation: str, a file or directory to evaluate on; None: the dev
            split of `path`, or a part of the training examples.
        columns: str or None, such as "text=review,label=stars".
        hold_out: float, the part that is taken where there is no dev split.
        seed: int, chooses that part.

    Returns:
        TaskData.

    Raises:
        FileNotFoundError, ValueError, RuntimeError: if files are missing or
            wrong, or a set cannot be had by name.
    """
    task = task_catalog.find_task(name)
    if path is None:
        train = read_by_name(task, "train")
        splits = {
            split: read_by_name(task, split)
            for split in _HELD_OUT
            if split in task.files
        }
    else:
        train = task_files.read_examples(task, path, "train", columns)
        splits = _held_out(task, evaluation or path, evaluation, columns)
    if not splits:
        train, held_out = task_files.hold_out(train, hold_out, seed)
        splits = {"held out": held_out}
    return TaskData(task, labels_of(task, train), train, splits)


def read_unlabelled(task, path, columns=None):
    """Examples to predict; labels may be missing.

    Args:
        task: TaskSpec.
        path: str, a file in the task's format.
        columns: str or None.

    Returns:
        list of examples.
    """
    return task_files.read_examples(task, path, "test", columns)


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


def _held_out(task, path, is_given, columns):
    """dict of split to examples."""
    found = [
        split
        for split in _HELD_OUT
        if split in task.files and task_files.find_split(task, path, split)
    ]
    if is_given and not found:
        # One file stands for any split.
        examples = task_files.read_examples(task, path, "train", columns)
        return {"dev": examples}
    return {
        split: task_files.read_examples(task, path, split, columns)
        for split in found
    }
