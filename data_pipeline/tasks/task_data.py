"""Container of a task's examples, with notes for the user."""

import collections
import dataclasses

from data_pipeline.base.command_line import print_notes
from data_pipeline.tasks.examples import TaskSpec

_SHOWN_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Training and evaluation examples of a task.

    Attributes:
        task: TaskSpec.
        labels: tuple of str, the classes in the order of the logits, or None.
        train: list of examples.
        evaluation: dict of split names to lists of examples. The metrics on
            the first split select the best checkpoint.
        columns: dict of role (see `TaskSpec`) to column, the given and the
            guessed columns.
        guessed: dict of role to column, only the guessed columns.
        seed: int, seed of the choice of held-out examples.
    """

    task: TaskSpec
    labels: tuple | None
    train: list
    evaluation: dict
    columns: dict = dataclasses.field(default_factory=dict)
    guessed: dict = dataclasses.field(default_factory=dict)
    seed: int = 0

    def held_out(self):
        """List of the evaluation splits, as tuples of name and examples."""
        return list(self.evaluation.items())

    def title(self):
        """Title with the task's name, kind and number of classes, str."""
        name, kind = self.task.name, self.task.kind
        parts = [name]
        if kind != name.replace("-", "_"):  # names of own tasks are kinds
            parts.append(kind)
        if self.labels:
            parts.append(_number(self.labels))
        return ", ".join(parts)

    def notes(self):
        """List of lines for the user: guessed columns, examples per class."""
        lines = []
        if self.guessed:
            classes = None if self.labels is None else _number(self.labels)
            columns = described_guess(self.guessed, classes)
            lines.append(f"columns   {columns}")
        sizes = self._sizes()
        if sizes:
            shown = sizes.most_common()
            if len(shown) > _SHOWN_CLASSES:
                half = _SHOWN_CLASSES // 2
                shown = [*shown[:half], None, *shown[-half:]]
            total = len(self.train)
            parts = [
                f"{x[0]} {x[1]:,} ({x[1] / total:.0%})" if x else "..."
                for x in shown
            ]
            lines.append(f"classes   {', '.join(parts)}")
        return lines

    def _sizes(self):
        """Counter of the training examples per class; empty without classes."""
        sizes = collections.Counter(dict.fromkeys(self.labels or (), 0))
        if self.task.kind == "multi_label":
            sizes.update(name for x in self.train for name in x.label)
        elif self.task.kind == "classification":
            sizes.update(str(x.label) for x in self.train)
        else:
            sizes.clear()
        return sizes


def described_guess(guessed, classes=None):
    """Describe the guessed columns for the user, str.

    Args:
        guessed: dict of role to column.
        classes: str such as "3 classes", to show beside the label column, or
            None.
    """
    columns = [
        f"{role} column: {column}"
        + (f" ({classes})" if classes and role == "label" else "")
        for role, column in guessed.items()
    ]
    return f"{', '.join(columns)}; guessed, see --columns"


def tell_guess(guessed):
    """Print the guessed columns, if any, on standard error.

    Args:
        guessed: dict of role to column.
    """
    if guessed:
        print_notes(described_guess(guessed))


def _number(labels):
    return f"{len(labels)} class{'es' if len(labels) != 1 else ''}"
