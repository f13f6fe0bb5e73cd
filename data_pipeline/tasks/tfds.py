"""Examples of published tasks from TensorFlow Datasets."""

from data_pipeline.base.limits import first_line
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_TASK_SPLITS = {
    "mnli": {
        "train": "train",
        "dev": "validation_matched",
        "dev_mismatched": "validation_mismatched",
        "test": "test_matched",
        "test_mismatched": "test_mismatched",
    },
    "imdb": {"train": "train", "test": "test"},
    "yelp-2": {"train": "train", "test": "test"},
    "ag-news": {"train": "train", "test": "test"},
    "squad-1.1": {"train": "train", "dev": "validation"},
    "squad-2.0": {"train": "train", "dev": "validation"},
    "race": {"train": "train", "dev": "dev", "test": "test"},
    "conll-2003": {"train": "train", "dev": "dev", "test": "test"},
}
# Names of features; those of a tuple are joined by a blank.
_SENTENCES = (("sentence1",), ("sentence2",))
_TEXTS = {
    "sst-2": (("sentence",),),
    "cola": (("sentence",),),
    "mrpc": _SENTENCES,
    "sts-b": _SENTENCES,
    "rte": _SENTENCES,
    "wnli": _SENTENCES,
    "qnli": (("question",), ("sentence",)),
    "qqp": (("question1",), ("question2",)),
    "mnli": (("premise",), ("hypothesis",)),
    "imdb": (("text",),),
    "yelp-2": (("text",),),
    "ag-news": (("title", "description"),),
}
# Classes in the order of TensorFlow Datasets, if it differs from the task's.
_LABELS = {"mnli": ("entailment", "neutral", "contradiction")}
_RACE_GROUPS = ("middle", "high")
# Of a download. The package's ten, whose waits double, take minutes to say that
# there is no network.
_RETRIES = 4


def check_has(task):
    """Refuse a task that TensorFlow Datasets does not have; read nothing.

    Args:
        task: str or TaskSpec.

    Raises:
        ValueError: it lacks the task.
    """
    task = find_task(task)
    if task.tfds is None:
        raise ValueError(
            f"the task {task.name} needs your files: --data PATH. TensorFlow "
            "Datasets, which is read without --data, does not have the task "
            f"{task.name}."
        )


def read_by_name(task, split="train"):
    """Read the examples of a published task, downloaded on first use.

    The data are kept in TFDS_DATA_DIR, by default ~/tensorflow_datasets.

    Args:
        task: str or TaskSpec.
        split: str, as in `data_pipeline.tasks.reading.read_examples`.

    Returns:
        list of examples.

    Raises:
        ValueError: TensorFlow Datasets lacks the task or the split.
        RuntimeError: the package is missing, or the data are not downloaded
            and the network fails.
    """
    task = find_task(task)
    splits = _TASK_SPLITS.get(task.name, _SPLITS)
    check_has(task)
    if split not in splits:
        raise ValueError(
            f"TensorFlow Datasets does not have a {split} split of "
            f"{task.name}. Give the path of the data. Received: "
            f"task={task.name!r}, split={split!r}."
        )
    if task.reader == "race":
        return [
            example
            for group in _RACE_GROUPS
            for row in _rows(task, f"race/{group}", splits[split])
            for example in _choices(row, group)
        ]
    if task.reader == "squad":
        return [_question(r) for r in _rows(task, task.tfds, splits[split])]
    rows = _rows(task, task.tfds, splits[split])
    example_of = _EXAMPLES.get(task.reader, _text_example)
    return [
        example_of(task, row, index, f"{task.tfds} {split}, example {index}")
        for index, row in enumerate(rows)
    ]


def _rows(task, name, split):
    """Rows of a split, a list of dicts of NumPy values."""
    try:
        import tensorflow as tf
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download import download_manager
        from tensorflow_datasets.core.download import downloader
        from tensorflow_datasets.core.download import extractor
        from tensorflow_datasets.core.download import util
    except ImportError as error:
        raise RuntimeError(_cannot(task, name, error)) from None
    failures = (
        ImportError,  # of parts that it imports late
        OSError,  # of the network
        tf.errors.OpError,
        download_manager.NonMatchingChecksumError,
        extractor.ExtractError,
        util.DownloadError,
    )
    downloader.MAX_RETRIES = min(_RETRIES, downloader.MAX_RETRIES)
    try:
        return list(tfds.as_numpy(tfds.load(name, split=split)))
    except failures as error:
        raise RuntimeError(_cannot(task, name, error)) from error


def _cannot(task, name, error):
    return (
        f"{name} could not be fetched from TensorFlow Datasets "
        f"({type(error).__name__}: {first_line(error)}). It needs the package "
        "tensorflow-datasets and, the first time, the network. Or fetch the "
        f"data of the task {task.name} yourself and give their path (--data)."
    )


def _text_example(task, row, index, where):
    texts = [
        " ".join(filter(None, (_str(row[feature]) for feature in features)))
        for features in _TEXTS[task.name]
    ]
    for written, meant in task.escapes:
        texts[0] = texts[0].replace(written, meant)
    label = row["label"].item()
    if task.kind == "classification":
        labels = _LABELS.get(task.name, task.labels)
        label = labels[label] if label >= 0 else None
    elif label < 0:  # hidden
        label = None
    return TextExample(
        str(row.get("idx", index)),
        texts[0],
        texts[1] if len(texts) > 1 else None,
        label,
        where,
    )


def _sentence(task, row, index, where):
    return TokensExample(
        str(index),
        tuple(map(_str, row["tokens"])),
        tuple(task.labels[tag] for tag in row["ner"]),
        where,
    )


def _email(task, row, index, where):
    body, subject = (_str(row[x]) for x in ("email_body", "subject_line"))
    return PairExample(str(index), body, subject, where)


_EXAMPLES = {"conll": _sentence, "emails": _email}


def _question(row):
    answers = row["answers"]
    return QuestionExample(
        _str(row["id"]),
        _str(row["context"]),
        _str(row["question"]),
        tuple(
            Answer(_str(text), int(start))
            for text, start in zip(
                answers["text"], answers["answer_start"], strict=True
            )
        ),
        bool(row.get("is_impossible", False)),  # absent in SQuAD 1.1
        _str(row["title"]),
        f"question {_str(row['id'])}",
    )


def _choices(row, group):
    article = _str(row["article"])
    article_id = _str(row["example_id"])
    # Ragged, as the number of options varies.
    options = row["options"].to_list()
    for index, question in enumerate(row["questions"]):
        yield ChoiceExample(
            f"{article_id}/{index}",
            article,
            _str(question),
            tuple(map(_str, options[index])),
            ord(_str(row["answers"][index])) - ord("A"),
            group,
            f"{article_id}, question {index + 1}",
        )


def _str(value):
    return value.decode("utf-8")
