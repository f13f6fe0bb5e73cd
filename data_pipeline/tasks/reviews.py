"""Reviews as files, a folder a label: aclImdb/train/pos/0_9.txt."""

import posixpath
import re

from data_pipeline.tasks import archives
from data_pipeline.tasks import examples

_DIGITS = re.compile(r"(\d+)")


def read_examples(tree, name, task, split, columns=None):
    """The reviews of a split, by label and then by the number in their name.

    Folders that are no label, such as "unsup", are left alone.

    Args:
        tree: archives.Tree.
        name: str, the split's folder.
        task: TaskSpec whose labels are the folders' names.
        split: str.
        columns: None; there are none to name.

    Returns:
        list of TextExample; the id is "LABEL/FILE" without its ending.

    Raises:
        ValueError: a label without a review, or a file that is not UTF-8.
    """
    names, labels = [], {}
    for label in task.labels:
        there = [
            path
            for path in tree.names_under(f"{name}/{label}")
            if path.endswith(".txt")
        ]
        if not there:
            raise ValueError(
                f"{tree.place(name)}: no .txt file in the folder {label}."
            )
        names += sorted(there, key=_natural)
        labels.update(dict.fromkeys(there, label))
    texts = {
        path: archives.decode(data, tree.place(path)).strip()
        for path, data in tree.read_many(names)
    }
    found = []
    for path in names:
        text, label = texts[path], labels[path]
        for written, meant in task.escapes:
            text = text.replace(written, meant)
        file = posixpath.basename(path)
        found.append(
            examples.TextExample(
                f"{label}/{file.removesuffix('.txt')}",
                text,
                label=label,
                where=f"{split}/{label}/{file}",
            )
        )
    return found


def _natural(path):
    """A key by which 10 comes after 9."""
    parts = _DIGITS.split(path)
    parts[1::2] = map(int, parts[1::2])
    return parts
