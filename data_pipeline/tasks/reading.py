"""Reading of a task's examples from files in their published layout.

A path is a directory, an archive or a single file. Archives are not unpacked.
`read_task` reads the training and evaluation examples of a task.
"""

import dataclasses
import os
import posixpath
import warnings

from data_pipeline.base.files import as_path
from data_pipeline.tasks.archives import Tree
from data_pipeline.tasks.archives import open_tree
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.columns import Columns
from data_pipeline.tasks.columns import guess_columns
from data_pipeline.tasks.columns import has_columns
from data_pipeline.tasks.columns import named_column
from data_pipeline.tasks.columns import parse_columns
from data_pipeline.tasks.counted import Counted
from data_pipeline.tasks.examples import SPLITS
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.labels import check_known
from data_pipeline.tasks.labels import labels_of
from data_pipeline.tasks.labels import look_alikes
from data_pipeline.tasks.readers import choices
from data_pipeline.tasks.readers import conll
from data_pipeline.tasks.readers import pairs
from data_pipeline.tasks.readers import reviews
from data_pipeline.tasks.readers import squad
from data_pipeline.tasks.readers import tables
from data_pipeline.tasks.splitting import hold_out
from data_pipeline.tasks.table import Table
from data_pipeline.tasks.table import find_table
from data_pipeline.tasks.table import is_table
from data_pipeline.tasks.table import open_table
from data_pipeline.tasks.task_data import TaskData
from data_pipeline.tasks.tfds import read_by_name

READERS = {
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
# Readers of tasks whose splits are folders instead of files.
_FOLDER_READERS = ("race", "review_directory", "emails")
_HELD_OUT = ("dev", "dev_mismatched")


@dataclasses.dataclass
class Split:
    """Split of a task, with an open table that can be read once.

    Attributes:
        task: TaskSpec.
        name: str, such as "train", "dev" or "test".
        tree: Tree with the files of the split.
        path: str, the split's file or folder in the tree.
        columns: dict of role to str, the columns to read, see `parse_columns`.
        guessed: dict, the guessed entries of `columns`.
        table: Table, or None for a layout without a table.
        known: tuple of str, classes of the training examples, or None if
            unknown.
        counted: Counted, counts of the skipped or changed values.
    """

    task: TaskSpec
    name: str
    tree: Tree
    path: str
    columns: dict
    guessed: dict = dataclasses.field(default_factory=dict)
    table: Table | None = None
    known: tuple | None = None

    def __post_init__(self):
        self.counted = Counted(self.place)
        if self.table is not None:
            self.counted = self.table.counted
        if self.known is None:
            self.known = self.task.labels

    @property
    def place(self):
        """Full path of the file or folder, for messages, str."""
        return self.tree.place(self.path)

    @property
    def file(self):
        """Name of the file, str."""
        return posixpath.basename(self.path)

    @property
    def is_test(self):
        """Whether the split may lack labels, bool."""
        return self.name.startswith("test")

    def where(self, row):
        """Describe the place of an example for messages, str."""
        return f"{self.file}, row {row}"

    def rows(self):
        """Yield the rows of the table, see `Columns.rows`."""
        columns = Columns(self.table, self.task, self.columns, self.is_test)
        return columns.rows()

    def examples(self):
        """Read the examples of the split, see `read_examples`."""
        examples = READERS[self.task.reader](self)
        if not examples:
            why = "".join(f" {line}." for line in self.counted.lines())
            raise ValueError(f"{self.place}: the file holds no examples.{why}")
        self.counted.tell()
        return examples


def read_examples(
    task: str | TaskSpec,
    path: str | os.PathLike,
    split: str = "train",
    columns: str | dict | None = None,
) -> list:
    """Read the examples of a split of a task.

    Warnings count the rows that are skipped or look wrong.

    Args:
        task: str or TaskSpec.
        path: str or path-like, local or in a bucket. The path is a directory in
            the published layout (the folder of the task or the folder above),
            an archive of such a directory (.zip, .tar, .tar.gz, .tar.xz), or a
            single file. A single file may be compressed (.gz, .bz2, .xz). A
            single file is read as the split `split`, whatever its name is.
        split: "train", "dev" or "test". For MNLI also "dev_mismatched" or
            "test_mismatched". Only test splits may lack labels.
        columns: the columns to read, as a str such as "text=review,label=stars"
            or a dict, see `data_pipeline.tasks.columns.parse_columns`. Default
            None: columns with usual names.

    Returns:
        list of examples, see `data_pipeline.tasks.examples`.

    Raises:
        FileNotFoundError: `path` does not exist or lacks the split.
        ValueError: the task, the split or a column is unknown, or a file is not
            valid. The message names the file and the row.

    Example:

    ```python
    from data_pipeline import read_examples
    with open("a.csv", "w") as file: print("text,label\\nFine.,good", file=file)
    (example,) = read_examples("classification", "a.csv")
    assert (example.text, example.label) == ("Fine.", "good")
    ```
    """
    spec = find_task(task)
    return _read(spec, path, split, parse_columns(spec, columns))


def _read(task, path, split, columns, labels=None):
    """Read the examples of a split. `labels` are the known classes or None."""
    return _open(task, path, split, columns, labels).examples()


def read_texts(path, columns=None):
    """Read the texts of a table and ignore all other columns.

    Args:
        path: str or path-like, a file, an archive with one table, or the
            directory of a saved data set, see `archives.open_tree`.
        columns: columns of the roles "text" and "id", see `read_examples`. If
            the column with the texts is not given, a column with a usual name
            is used. If there is no such column, a column is guessed.

    Returns:
        tuple of the texts (list of str) and the guessed columns (dict of role
        to column name).

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: `path` is another kind of directory, an archive does not
            have exactly one table, the file is not valid, the column with the
            texts is unclear, or the file has pairs of texts and `columns` does
            not choose a column.
    """
    task = find_task("classification")
    roles = {role: task.columns[role] for role in ("text", "id")}
    task = dataclasses.replace(task, name="texts", columns=roles)
    given = parse_columns(task, columns)
    tree = open_tree(path)
    table = open_table(tree, _only_table(tree), task)
    second = find_task("regression").columns["text_pair"]
    pair = named_column(table, second)
    if pair is not None and "text" not in given:
        raise ValueError(
            f"{table.place} has pairs of texts, the second ones in the column "
            f"{pair!r}. `saved_models.predict` answers pairs in JSON lines: "
            "--inputs FILE --signature pairs. To read one text of each, name "
            "it: --columns text=COLUMN."
        )
    guessed = guess_columns(table, task, given)
    rows = Columns(table, task, {**given, **guessed}, is_test=True).rows()
    texts = [values["text"] for _, values in rows]
    table.counted.tell()
    return texts, guessed


def _only_table(tree):
    """Find the name of a tree's single file, or of an archive's only table."""
    if tree.is_file:
        return tree.file
    if as_path(tree.path).is_dir():
        raise ValueError(
            f"{tree.path}: texts are read from a file or an archive, and this "
            "is a directory. Give the file in it."
        )
    tables = list(filter(is_table, tree.names_under("")))
    if len(tables) != 1:
        raise ValueError(
            f"{tree.path}: texts are read from an archive that holds one "
            f"table, and this one holds {len(tables)}"
            f"{': ' if tables else ''}{', '.join(tables[:5])}. Unpack it and "
            "give the file."
        )
    return tables[0]


def is_file(path):
    """Whether a path is a single file instead of a directory or archive.

    Args:
        path: see `read_examples`.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: an archive is damaged.
    """
    return open_tree(path).is_file


def find_split(task, path, split, columns=None):
    """Find the file or folder of a split.

    Args:
        task: str or TaskSpec.
        path: see `read_examples`. A single file has only the split "train".
        split: str.
        columns: see `read_examples`.

    Returns:
        str, path of the file or folder, or None if the split is missing. In an
        archive, the path starts with the archive's path.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: the task or split is unknown.
    """
    task = find_task(task)
    _check_split(split)
    tree = open_tree(path)
    if tree.is_file and split != "train":
        return None
    name = _find(task, tree, split, parse_columns(task, columns))
    return None if name is None else tree.place(name)


def find_columns(
    task, path, split, columns=None, run_columns=None, labels=None
):
    """Open a split and find its columns.

    Args:
        task: str or TaskSpec.
        path: see `read_examples`. A single file is read as `split`.
        split: str.
        columns: see `read_examples`. For a role that is not given, the column
            with a usual name of the role is used. If there is no such column, a
            column is guessed.
        run_columns: dict of role to column name, the columns of an earlier run,
            or None. If the split has these columns, they are used for roles
            that `columns` does not give.
        labels: sequence of str, the classes of the model, or None.

    Returns:
        Split with its columns. Its method `examples` reads the examples.

    Raises:
        FileNotFoundError: `path` does not exist or lacks the split.
        ValueError: `columns` or a file is not valid.
    """
    task = find_task(task)
    given = parse_columns(task, columns)
    opened, known = None, tuple(labels or ()) or None
    if run_columns:
        both = parse_columns(task, {**run_columns, **given})
        opened = _opened(task, open_tree(path), split, both, known)
        if opened is not None and (
            opened.table is None
            or has_columns(opened.table, task, opened.columns)
        ):
            return opened
    opened = opened or _open(task, path, split, given, known)
    if opened.table is not None:
        opened.guessed = guess_columns(opened.table, task, given)
    opened.columns = {**given, **opened.guessed}
    second = "text_pair"
    if second in (run_columns or {}) and second not in opened.columns:
        if named_column(opened.table, task.columns[second]) is None:
            raise ValueError(
                f"{opened.place}: the run read pairs of texts, and no column "
                "is known to have the second ones. Name it: --columns "
                "text_pair=COLUMN."
            )
    return opened


def _open(task, path, split, columns, labels=None):
    """Open a split; raise FileNotFoundError if it is missing."""
    opened = _opened(task, open_tree(path), split, columns, labels)
    if opened is None:
        raise FileNotFoundError(_not_there(task, path, split))
    return opened


def _opened(task, tree, split, columns, labels):
    """Open a split of a directory, an archive or a single file.

    A single file is taken as the requested split. If the task's splits are
    folders, a single file has no split, and the result is None.

    Args:
        task: TaskSpec.
        tree: Tree.
        split: str.
        columns: dict from `parse_columns`.
        labels: tuple of str, the known classes, or None for any class.

    Returns:
        Split, or None if the split is missing.
    """
    _check_split(split)
    path = _find(task, tree, split, columns)
    if path is None:
        return None
    table, is_pairs = None, task.reader == "pairs"
    if task.reader in ("table", "ranking") or (is_pairs and is_table(path)):
        table = open_table(tree, path, task)
    elif is_pairs:
        is_test = split.startswith("test")
        table = pairs.open_lines(tree, path, task, columns, is_test)
    return Split(task, split, tree, path, columns, {}, table, labels)


def _find(task, tree, split, columns):
    """Find the file or folder of a split in a tree, str or None."""
    if tree.is_file:
        return None if task.reader in _FOLDER_READERS else tree.file

    def existing(name, is_compressed):
        if task.reader == "pairs":
            return pairs.find(tree, name, task, columns, is_compressed)
        if task.reader in _FOLDER_READERS:
            return name if tree.names_under(name) else None
        return find_table(tree, name, is_compressed)

    for is_compressed in (False, True):  # plain files first
        for base in tree.bases(task.folder):
            for candidate in task.files.get(split, ()):
                name = f"{base}/{candidate}" if base else candidate
                if path := existing(name, is_compressed):
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
        name: str, name of the task.
        path: str, path of the files, or None to read the task from TensorFlow
            Datasets.
        evaluation: str, a file to evaluate on, or a directory or archive with a
            dev or test split (the dev split has precedence). Default None: the
            dev split of `path`, or else held-out training examples.
        columns: str such as "text=review,label=stars", the column of each field
            of an example, or None. A field that is not given is read from the
            column with one of its usual names, such as "sentence" for "text".
            If a user's own table has no such column, a column is guessed.
        fraction: float, share of the training examples to hold out if there is
            no dev split.
        seed: int, seed of the choice of held-out examples.

    Returns:
        TaskData.

    Raises:
        FileNotFoundError, ValueError, RuntimeError: files are missing or not
            valid, or TensorFlow Datasets cannot provide the task.
    """
    task, guessed = find_task(name), {}
    if path is not None:
        opened = find_columns(task, path, "train", columns)
        columns, guessed = opened.columns, opened.guessed
        train = opened.examples()
    elif columns and evaluation is None:
        raise ValueError(
            "`--columns` needs files: give them with --data. Received: "
            f"columns={columns} and no data."
        )
    else:
        columns = parse_columns(task, columns)
        train = read_by_name(task, "train")
    # Find the classes before holding out examples: a class may have only one
    # example.
    labels = labels_of(task, train)
    _warn_of_labels(task, train, labels)
    if task.kind == "multi_label":  # do not split known names
        task = dataclasses.replace(task, labels=labels)
    if evaluation is not None:
        splits = _to_evaluate(task, evaluation, columns, labels)
    elif path is not None:
        splits = _held_out(task, path, columns, labels)
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


def _warn_of_labels(task, examples, labels):
    """Warn if labels are probably wrong."""
    if not labels or task.labels is not None:
        return
    for message in look_alikes(task.kind, examples):
        warnings.warn(message, stacklevel=3)
    if labels == ("O",) and task.kind == "token_classification":
        warnings.warn(
            "no word has another tag than O: there is nothing to find. Name "
            "the column of the tags: --columns tags=NUMBER",
            stacklevel=3,
        )
    if task.kind != "classification":
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
    """Read examples for prediction, which may lack labels.

    Args:
        task: TaskSpec.
        path: str, the task's data, see `read_examples`. A directory or an
            archive must have a test split.
        columns: str or None, see `read_examples`.
        labels: tuple of str, the known classes. None (default) allows any
            label.

    Returns:
        list of examples.

    Raises:
        ValueError: an example has an unknown label, or a file is not valid.
    """
    given = parse_columns(task, columns)
    examples = _read(task, path, "test", given, labels)
    if labels is not None:
        check_known(task.kind, examples, labels)
    return examples


def _held_out(task, path, columns, labels):
    """Read the dev splits into a dict of split to a list of examples."""
    given = parse_columns(task, columns)
    return {
        split: _read(task, path, split, given, labels)
        for split in _HELD_OUT
        if split in task.files and find_split(task, path, split, columns)
    }


def _to_evaluate(task, path, columns, labels):
    """Read an evaluation path into a dict of split to a list of examples."""
    given = parse_columns(task, columns)
    if is_file(path):  # a file counts as a dev split
        return {"dev": _read(task, path, "dev", given, labels)}
    splits = _held_out(task, path, columns, labels)
    if not splits and find_split(task, path, "test", columns):
        splits = {"test": _read(task, path, "test", given, labels)}
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
    """Whether an example has a label, answer, tags, relevance or target."""
    if isinstance(example, QuestionExample):
        return bool(example.answers) or example.is_impossible
    return not any(
        getattr(example, name, "") is None
        for name in ("label", "answer", "tags", "relevance", "target")
    )
