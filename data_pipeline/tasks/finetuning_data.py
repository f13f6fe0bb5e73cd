"""The examples of a fine-tuning run: what to learn from, what to hold out."""

import dataclasses

from data_pipeline.tasks import catalog as task_catalog
from data_pipeline.tasks import reading as task_files
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.tfds import read_by_name

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
        evaluation: str, a file to evaluate on, or a directory or archive whose
            dev split is taken, or its test split if it has no other; None:
            the dev split of `path`, or a part of the training examples.
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
    if path is not None:
        train = task_files.read_examples(task, path, "train", columns)
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
        train, held_out = task_files.hold_out(train, hold_out, seed)
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


def _held_out(task, path, columns):
    """dict of split to examples."""
    return {
        split: task_files.read_examples(task, path, split, columns)
        for split in _HELD_OUT
        if split in task.files and task_files.find_split(task, path, split)
    }


def _to_evaluate(task, path, columns):
    """dict of split to examples of what was given to evaluate on."""
    if task_files.is_file(path):  # which stands for any split
        return {"dev": task_files.read_examples(task, path, "train", columns)}
    found = _held_out(task, path, columns)
    if not found and task_files.find_split(task, path, "test"):
        found = {"test": task_files.read_examples(task, path, "test", columns)}
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
    if isinstance(example, QuestionExample):
        return bool(example.answers) or example.is_impossible
    return not any(
        getattr(example, name, "") is None
        for name in ("label", "answer", "tags", "relevance")
    )
