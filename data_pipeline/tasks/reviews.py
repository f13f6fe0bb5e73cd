"""Reviews in files, in a folder per label: aclImdb/train/pos/0_9.txt."""

import posixpath
import re

from data_pipeline.tasks import archives
from data_pipeline.tasks.examples import TextExample

_DIGITS = re.compile(r"(\d+)")


def read_examples(tree, name, task, split, columns=None):
    """Read the reviews of a split, by label and by the number in their name.

    Folders of other names, such as "unsup", are ignored.

    Args:
        tree: archives.Tree.
        name: str, the split's folder.
        task: TaskSpec whose labels are the names of the folders.
        split: str.
        columns: unused.

    Returns:
        list of TextExample with the id "LABEL/FILE", without ".txt".

    Raises:
        ValueError: a label without a review, or a file that is not UTF-8.
    """
    names, labels = [], {}
    for label in task.labels:
        files = [
            path
            for path in tree.names_under(f"{name}/{label}")
            if path.endswith(".txt")
        ]
        if not files:
            raise ValueError(
                f"{tree.place(name)}: no .txt file in the folder {label}."
            )
        names += sorted(files, key=_natural)
        labels.update(dict.fromkeys(files, label))
    texts = {
        path: archives.decode(data, tree.place(path)).strip()
        for path, data in tree.read_many(names)
    }
    examples = []
    for path in names:
        text, label = texts[path], labels[path]
        for written, meant in task.escapes:
            text = text.replace(written, meant)
        file = posixpath.basename(path)
        examples.append(
            TextExample(
                f"{label}/{file.removesuffix('.txt')}",
                text,
                label=label,
                where=f"{split}/{label}/{file}",
            )
        )
    return examples


def _natural(path):
    """Sort key that puts 10 after 9."""
    parts = _DIGITS.split(path)
    parts[1::2] = map(int, parts[1::2])
    return parts
