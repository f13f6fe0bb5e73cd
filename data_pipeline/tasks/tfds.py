"""Examples of published tasks, downloaded by TensorFlow Datasets."""

from data_pipeline.base.limits import first_line
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample

_SPLITS = {"dev": "validation", "dev_mismatched": "validation_mismatched"}
_DEV = {"mnli": "validation_matched", "race": "dev", "conll-2003": "dev"}
# Names of a row's text fields, in the order of the tasks.
_TEXTS = (
    *("title", "description", "text", "premise", "hypothesis"),
    *("question", "sentence", "question1", "question2"),
    *("sentence1", "sentence2"),
)
# Classes in the order of TensorFlow Datasets, for tasks with another order.
_LABELS = {"mnli": ("entailment", "neutral", "contradiction")}
# Retries of a download. With the package's default of ten retries and doubled
# waits, minutes pass before it reports that there is no network.
_RETRIES = 4


def check_has(task):
    """Refuse a task that TensorFlow Datasets lacks; read no data.

    Args:
        task: str or TaskSpec.

    Raises:
        ValueError: TensorFlow Datasets lacks the task.
    """
    task = find_task(task)
    if task.tfds is None:
        raise ValueError(
            f"the task {task.name} needs your files: --data PATH. TensorFlow "
            "Datasets, which is read without --data, does not have the task "
            f"{task.name}."
        )


def read_by_name(task, split="train"):
    """Read the examples of a published task; download them on first use.

    The data is stored in the directory of the environment variable
    TFDS_DATA_DIR, by default ~/tensorflow_datasets.

    Args:
        task: str or TaskSpec.
        split: str, name of a split: "train", "dev" or "dev_mismatched".

    Returns:
        list of examples.

    Raises:
        ValueError: TensorFlow Datasets lacks the task.
        RuntimeError: tensorflow-datasets is not installed, or the download
            fails.
    """
    task = find_task(task)
    check_has(task)
    set_split = _SPLITS.get(split, split)
    if split == "dev":
        set_split = _DEV.get(task.name, set_split)
    if task.reader == "race":
        return [
            example
            for group in ("middle", "high")
            for row in _rows(task, f"race/{group}", set_split)
            for example in _choices(row, group)
        ]
    make = {"squad": _question, "conll": _sentence, "emails": _email}
    make_example = make.get(task.reader, _text)
    return [
        make_example(task, row, index, f"{task.tfds} {split}, example {index}")
        for index, row in enumerate(_rows(task, task.tfds, set_split))
    ]


def _rows(task, name, split):
    """Read the rows of a split: a list of dicts of Python values."""
    try:
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download import downloader

        downloader.MAX_RETRIES = min(_RETRIES, downloader.MAX_RETRIES)
        rows = list(tfds.as_numpy(tfds.load(name, split=split)))
    # The package raises errors of many classes: for the network, archives and
    # missing packages.
    except Exception as error:
        raise RuntimeError(
            f"{name} could not be fetched from TensorFlow Datasets "
            f"({type(error).__name__}: {first_line(error)}). It needs the "
            "package tensorflow-datasets and, the first time, the network. Or "
            f"fetch the data of the task {task.name} yourself and give their "
            "path (--data)."
        ) from error
    return [_as_python(row) for row in rows]


def _as_python(value):
    """Convert bytes, arrays and ragged tensors to Python values."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        return {name: _as_python(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_as_python(x) for x in value]
    if hasattr(value, "to_list"):
        return _as_python(value.to_list())
    return _as_python(value.tolist()) if hasattr(value, "tolist") else value


def _text(task, row, index, where):
    texts = [row[name] for name in _TEXTS if name in row]
    if "text_pair" not in task.columns:
        texts = [" ".join(filter(None, texts))]
    for written, meant in task.escapes:
        texts[0] = texts[0].replace(written, meant)
    label = row["label"]
    if task.kind == "classification":
        label = _LABELS.get(task.name, task.labels)[label]
    texts = (*texts, None)[:2]
    return TextExample(str(row.get("idx", index)), *texts, label, where)


def _sentence(task, row, index, where):
    tags = tuple(task.labels[tag] for tag in row["ner"])
    return TokensExample(str(index), tuple(row["tokens"]), tags, where)


def _email(task, row, index, where):
    source, target = row["email_body"], row["subject_line"]
    return PairExample(str(index), source, target, where)


def _question(task, row, index, where):
    answers = row["answers"]
    return QuestionExample(
        row["id"],
        row["context"],
        row["question"],
        tuple(map(Answer, answers["text"], answers["answer_start"])),
        row.get("is_impossible", False),  # missing in SQuAD 1.1
        row["title"],
        f"question {row['id']}",
    )


def _choices(row, group):
    parts = zip(row["questions"], row["options"], row["answers"], strict=True)
    for index, (question, options, answer) in enumerate(parts):
        yield ChoiceExample(
            f"{row['example_id']}/{index}",
            row["article"],
            question,
            tuple(options),
            ord(answer) - ord("A"),
            group,
            f"{row['example_id']}, question {index + 1}",
        )
