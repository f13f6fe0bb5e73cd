"""Specifications of topic and review tasks, and reader of IMDB's folders."""

import posixpath
import re

from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.examples import TextExample

_DIGITS = re.compile(r"(\d+)")


def read_examples(split):
    """Read the reviews of a split, ordered by label, then by file name.

    Numbers in file names are ordered by value. A file is skipped if it is not a
    .txt file, or if the name of its folder is not a label. A warning counts the
    skipped files. Files directly in the folder of the split, and files in
    IMDB's folder "unsup", are skipped without a warning.

    Args:
        split: reading.Split of a task whose labels are the names of folders.

    Returns:
        list of TextExample. The id is "LABEL/FILE" without ".txt".

    Raises:
        ValueError: a label has no reviews, or a file is not UTF-8.
    """
    task, tree = split.task, split.tree
    labels = {}
    names = tree.names_under(split.path)
    for label in task.labels:
        folder = f"{split.path}/{label}/"
        files = [
            path
            for path in names
            if path.startswith(folder) and path.endswith(".txt")
        ]
        if not files:
            raise ValueError(
                f"{split.place}: no .txt file in the folder {label}."
            )
        labels.update(dict.fromkeys(sorted(files, key=_natural), label))
    for path in names:
        folder = path.removeprefix(f"{split.path}/").rpartition("/")[0]
        # Do not count IMDB's unlabelled folder and the lists beside the
        # folders.
        if path not in labels and folder not in ("", "unsup"):
            split.counted.add(
                "files left out, whose folder is no label or which do not end "
                "in .txt",
                path,
            )
    texts = dict(tree.read_texts(list(labels)))
    examples = []
    for path, label in labels.items():
        text = texts[path].strip()
        for written, meant in task.escapes:
            text = text.replace(written, meant)
        file = posixpath.basename(path)
        examples.append(
            TextExample(
                f"{label}/{file.removesuffix('.txt')}",
                text,
                label=label,
                where=f"{split.name}/{label}/{file}",
            )
        )
    return examples


def _natural(path):
    """Sort key that orders numbers in names by value: 10 after 9."""
    parts = _DIGITS.split(path)
    parts[1::2] = map(int, parts[1::2])
    return parts


# In these files, `\n` stands for a line break and `\"` for some quotes.
_REVIEW_ESCAPES = (("\\n", "\n"), ('\\"', '"'))


def _zhang(name, folder, num_classes, description, titled=True, **changes):
    """Make the TaskSpec of a data set of Zhang et al. (2015).

    The files are quoted .csv files without a header.
    """
    settings = {
        "kind": "classification",
        "reader": "table",
        "files": {"train": ("train.csv",), "test": ("test.csv",)},
        "columns": {"label": (0,), "text": ((1, 2) if titled else 1,)},
        "labels": tuple(str(1 + i) for i in range(num_classes)),
        "metrics": ("accuracy",),
        "sequence_length": 512,
        "table_format": "csv",
        "escapes": _REVIEW_ESCAPES,
    }
    return TaskSpec(
        name=name,
        folder=folder,
        description=description,
        **{**settings, **changes},
    )


TOPIC_AND_REVIEW_TASKS = (
    TaskSpec(
        name="imdb",
        kind="classification",
        reader="review_directory",
        files={"train": ("train",), "test": ("test",)},
        folder="aclImdb",
        labels=("neg", "pos"),
        metrics=("accuracy",),
        sequence_length=512,
        escapes=(("<br />", " "),),
        tfds="imdb_reviews",
        description="sentiment of film reviews",
    ),
    _zhang(
        "yelp-2",
        "yelp_review_polarity_csv",
        2,
        "sentiment of reviews of businesses, 1 negative, 2 positive",
        titled=False,
        tfds="yelp_polarity_reviews",
    ),
    _zhang(
        "yelp-5",
        "yelp_review_full_csv",
        5,
        "stars of reviews of businesses",
        titled=False,
    ),
    _zhang(
        "ag-news",
        "ag_news_csv",
        4,
        "topic of news: 1 world, 2 sports, 3 business, 4 science, technology",
        # In this set a single backslash stands for a line break.
        escapes=(("\\", " "),),
        tfds="ag_news_subset",
    ),
    _zhang(
        "dbpedia",
        "dbpedia_csv",
        14,
        "what a Wikipedia article is about; classes.txt names the 14 classes",
        escapes=(),
    ),
    _zhang(
        "amazon-2",
        "amazon_review_polarity_csv",
        2,
        "sentiment of reviews of products, 1 negative, 2 positive",
    ),
    _zhang(
        "amazon-5", "amazon_review_full_csv", 5, "stars of reviews of products"
    ),
)
