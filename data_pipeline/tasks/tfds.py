"""The examples of a task by its name alone, from TensorFlow Datasets."""

from data_pipeline.tasks import catalog as task_catalog
from data_pipeline.tasks import examples

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
# Features there, joined by a blank within a tuple.
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
# Where the classes there are in another order than in the task.
_LABELS = {"mnli": ("entailment", "neutral", "contradiction")}
_RACE_GROUPS = ("middle", "high")


def read_by_name(task, split="train"):
    """The examples of a published task, fetched if need be.

    They are kept where TensorFlow Datasets keeps its data: TFDS_DATA_DIR, or
    else ~/tensorflow_datasets.

    Args:
        task: str or TaskSpec.
        split: str, as in `task_files.read_examples`.

    Returns:
        list of examples.

    Raises:
        ValueError: there is no such task or split there.
        RuntimeError: there is no network or no package, and the data were not
            fetched before.
    """
    task = task_catalog.find_task(task)
    splits = _TASK_SPLITS.get(task.name, _SPLITS)
    if task.tfds is None or split not in splits:
        lack = "the task" if task.tfds is None else f"a {split} split of"
        raise ValueError(
            f"TensorFlow Datasets does not have {lack} {task.name}. Give the "
            f"path of the data. Received: task={task.name!r}, split={split!r}."
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
    example_of = _sentence if task.reader == "conll" else _text_example
    return [
        example_of(task, row, index, f"{task.tfds} {split}, example {index}")
        for index, row in enumerate(rows)
    ]


def _rows(task, name, split):
    """list of dicts of NumPy values."""
    try:
        import tensorflow as tf
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download import download_manager
        from tensorflow_datasets.core.download import extractor
        from tensorflow_datasets.core.download import util
    except ImportError as error:
        raise RuntimeError(_cannot(task, name, error)) from None
    failures = (
        ImportError,  # it imports some of its parts late
        OSError,  # every error of the network is one
        tf.errors.OpError,
        download_manager.NonMatchingChecksumError,
        extractor.ExtractError,
        util.DownloadError,
    )
    try:
        return list(tfds.as_numpy(tfds.load(name, split=split)))
    except failures as error:
        raise RuntimeError(_cannot(task, name, error)) from error


def _cannot(task, name, error):
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"{name} could not be had from TensorFlow Datasets "
        f"({type(error).__name__}: {first_line[:200]}). It needs the package "
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
    return examples.TextExample(
        str(row.get("idx", index)),
        texts[0],
        texts[1] if len(texts) > 1 else None,
        label,
        where,
    )


def _sentence(task, row, index, where):
    return examples.TokensExample(
        str(index),
        tuple(map(_str, row["tokens"])),
        tuple(task.labels[tag] for tag in row["ner"]),
        where,
    )


def _question(row):
    answers = row["answers"]
    return examples.QuestionExample(
        _str(row["id"]),
        _str(row["context"]),
        _str(row["question"]),
        tuple(
            examples.Answer(_str(text), int(start))
            for text, start in zip(
                answers["text"], answers["answer_start"], strict=True
            )
        ),
        bool(row.get("is_impossible", False)),  # SQuAD 1.1 does not say
        _str(row["title"]),
        f"question {_str(row['id'])}",
    )


def _choices(row, group):
    article = _str(row["article"])
    article_id = _str(row["example_id"])
    # Ragged: as many options as a question has.
    options = row["options"].to_list()
    for index, question in enumerate(row["questions"]):
        yield examples.ChoiceExample(
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
