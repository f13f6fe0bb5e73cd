"""Catalog of all tasks for fine-tuning."""

from data_pipeline.base.suggestions import did_you_mean
from data_pipeline.tasks.examples import NUMBER_METRICS
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.examples import own_splits
from data_pipeline.tasks.examples import splits_named
from data_pipeline.tasks.glue import GLUE_TASKS
from data_pipeline.tasks.readers.pairs import PAIR_TASKS
from data_pipeline.tasks.readers.reviews import TOPIC_AND_REVIEW_TASKS
from data_pipeline.tasks.table import TABLE_ENDINGS

_TEXT = ("text", "sentence", "review", "content")
_FIRST = ("text", "text_a", "sentence1", "premise", "question1", "question")
_SECOND = ("text_pair", "text_b", "sentence2", "hypothesis", "question2")
_LABEL = ("label", "class", "category", "target")
_ID = ("id", "index", "idx")


def _own(name, columns, metrics, description, **changes):
    """Make the TaskSpec of a task with a user's own tables."""
    settings = {
        "kind": "classification",
        "reader": "table",
        "sequence_length": 256,
    }
    return TaskSpec(
        name=name,
        files=own_splits(TABLE_ENDINGS),
        columns=columns,
        metrics=metrics,
        description=description,
        **{**settings, **changes},
    )


_OWN_TABLES = (
    _own(
        "classification",
        {"text": _TEXT, "label": _LABEL, "id": _ID},
        ("accuracy",),
        "your own classes of texts, from TSV, CSV, JSON lines, Parquet or "
        "Arrow",
    ),
    _own(
        "multi-label",
        {
            "text": (*_FIRST, *_TEXT[1:]),
            "text_pair": _SECOND,
            "label": (*_LABEL[:1], "labels", "tags", "classes", "categories"),
            "id": _ID,
        },
        ("micro_f1", "macro_f1", "average_precision"),
        "any number of your own classes for a text",
        kind="multi_label",
        optional=("id", "text_pair"),
    ),
    _own(
        "pair",
        {"text": _FIRST, "text_pair": (*_SECOND, "sentence")}
        | {"label": _LABEL, "id": _ID},
        ("accuracy",),
        "your own classes of pairs of texts",
    ),
    _own(
        "regression",
        {
            "text": (*_FIRST, *_TEXT[1:]),
            "text_pair": _SECOND,
            "label": ("label", "score", "target", "value"),
            "id": _ID,
        },
        NUMBER_METRICS,
        "a number for a text of yours, or for a pair of texts",
        kind="regression",
        optional=("id", "text_pair"),
    ),
    _own(
        "ranking",
        {
            "query": ("query", "question"),
            "document": ("document", "passage", "text"),
            "relevance": ("relevance", "label", "score"),
            "query_id": ("query_id", "qid"),
            "document_id": ("document_id", "doc_id", "docid", "pid"),
        },
        ("ndcg@10", "ndcg@20"),
        "which of your documents answer a query best",
        kind="ranking",
        reader="ranking",
        optional=("query_id", "document_id"),
        sequence_length=512,
    ),
)


def _squad(version):
    return TaskSpec(
        name=f"squad-{version}",
        kind="question_answering",
        reader="squad",
        files={
            "train": (f"train-v{version}.json", "train.json"),
            "dev": (f"dev-v{version}.json", "dev.json"),
            "test": (f"test-v{version}.json", "test.json"),
        },
        folder="squad",
        metrics=("squad_f1", "exact_match"),
        sequence_length=512,
        tfds=f"squad/v{version}",
        description="the words of a paragraph that answer a question"
        + (", or that none do" if version == "2.0" else ""),
    )


def _tags(*types):
    return ("O", *(f"{place}-{kind}" for kind in types for place in "BI"))


_CONLL_FILES = own_splits((".conll", ".txt", ".tsv", ".bio"))
_CHOICES_SPANS_TAGS = (
    TaskSpec(
        name="race",
        kind="multiple_choice",
        reader="race",
        files={split: (split,) for split in ("train", "dev", "test")},
        folder="RACE",
        metrics=("accuracy",),
        sequence_length=512,
        tfds="race",
        description="exam questions about a text, four options each",
    ),
    TaskSpec(
        name="dream",
        kind="multiple_choice",
        reader="dream",
        files=splits_named(".json"),
        folder="data",
        metrics=("accuracy",),
        sequence_length=512,
        description="exam questions about a dialogue, three options each",
    ),
    _squad("1.1"),
    _squad("2.0"),
    TaskSpec(
        name="ner",
        kind="token_classification",
        reader="conll",
        files=_CONLL_FILES,
        columns={"words": (0,), "tags": (-1,)},
        metrics=("entity_f1",),
        description="your own tags of words, in CoNLL format",
    ),
    TaskSpec(
        name="conll-2003",
        kind="token_classification",
        reader="conll",
        files={
            "train": ("eng.train", "train.txt"),
            "dev": ("eng.testa", "valid.txt"),
            "test": ("eng.testb", "test.txt"),
        },
        columns={"words": (0,), "tags": (-1,)},
        folder="conll2003",
        labels=_tags("PER", "ORG", "LOC", "MISC"),
        metrics=("entity_f1",),
        converts_tags=True,
        tfds="conll2003",
        description="persons, organizations, places and others in the news",
    ),
    TaskSpec(
        name="wnut-17",
        kind="token_classification",
        reader="conll",
        files={
            "train": ("wnut17train.conll",),
            "dev": ("emerging.dev.conll",),
            "test": ("emerging.test.annotated", "emerging.test.conll"),
        },
        columns={"words": (0,), "tags": (-1,)},
        folder="wnut17",
        labels=_tags(
            "corporation",
            "creative-work",
            "group",
            "location",
            "person",
            "product",
        ),
        metrics=("entity_f1",),
        description="rare and new names in posts",
    ),
)

TASKS = {
    task.name: task
    for task in (
        GLUE_TASKS
        + TOPIC_AND_REVIEW_TASKS
        + _OWN_TABLES
        + _CHOICES_SPANS_TAGS
        + PAIR_TASKS
    )
}


def find_task(name):
    """Find a fine-tuning task by its name.

    Args:
        name: str, a key of TASKS, or a TaskSpec, which is returned unchanged.

    Returns:
        TaskSpec.

    Raises:
        ValueError: the name is unknown. The message lists all names.
    """
    if isinstance(name, TaskSpec):
        return name
    if name not in TASKS:
        hint = did_you_mean(str(name), TASKS)
        raise ValueError(
            f"there is no task of this name. Received: task={name!r}"
            f"{f'{hint} Known' if hint else '; known'}: {', '.join(TASKS)}."
        )
    return TASKS[name]
