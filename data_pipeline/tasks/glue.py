"""Specifications of GLUE's tasks: files, columns and labels."""

from data_pipeline.tasks.examples import NUMBER_METRICS
from data_pipeline.tasks.examples import TaskSpec
from data_pipeline.tasks.examples import splits_named


def _glue(name, folder, texts, label, description, **changes):
    """Make the TaskSpec of a GLUE task.

    The files are .tsv files with a header and without quoting. Test files have
    no labels.
    """
    roles = ("text", "text_pair")[: len(texts)]
    settings = {
        "kind": "classification",
        "reader": "table",
        "files": splits_named(".tsv"),
        "columns": {
            **{role: (text,) for role, text in zip(roles, texts, strict=True)},
            "label": (label,),
            "id": ("index", "id"),
        },
        "labels": ("0", "1"),
        "metrics": ("accuracy",),
        "table_format": "tsv",
        "tfds": f"glue/{name.replace('-', '')}",
    }
    return TaskSpec(
        name=name,
        folder=folder,
        description=description,
        **{**settings, **changes},
    )


_ENTAILMENT = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")
_STSB_FILES = {
    split: (f"{split}.tsv", f"sts-{split}.csv")
    for split in ("train", "dev", "test")
}
_MNLI_FILES = {
    "train": ("train.tsv",),
    "dev": ("dev_matched.tsv",),
    "dev_mismatched": ("dev_mismatched.tsv",),
    "test": ("test_matched.tsv",),
    "test_mismatched": ("test_mismatched.tsv",),
}
GLUE_TASKS = (
    _glue(
        "sst-2",
        "SST-2",
        ("sentence",),
        "label",
        "sentiment of sentences from film reviews, 0 negative, 1 positive",
    ),
    _glue(
        "cola",
        "CoLA",
        ("sentence",),
        "label",
        "whether a sentence is grammatical (1) or not (0)",
        columns={"text": ("sentence", 3), "label": ("label", 1)}
        | {"id": ("index",)},
        metrics=("matthews", "accuracy"),
    ),
    _glue(
        "mrpc",
        "MRPC",
        ("#1 String", "#2 String"),
        "Quality",
        "whether two sentences from the news mean the same (1)",
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv",),
            "test": ("test.tsv", "msr_paraphrase_test.txt"),
        },
        metrics=("accuracy", "f1"),
    ),
    _glue(
        "sts-b",
        "STS-B",
        _SENTENCES,
        "score",
        "how much alike two sentences are, 0 to 5",
        kind="regression",
        files=_STSB_FILES,
        # GLUE's files have column names; files of the STS benchmark have
        # indices.
        columns={
            "text": ("sentence1", 5),
            "text_pair": ("sentence2", 6),
            "label": ("score", 4),
            "id": ("index",),
        },
        labels=None,
        metrics=NUMBER_METRICS,
    ),
    _glue(
        "rte",
        "RTE",
        _SENTENCES,
        "label",
        "whether the second text follows from the first",
        labels=_ENTAILMENT,
    ),
    _glue(
        "qnli",
        "QNLI",
        ("question", "sentence"),
        "label",
        "whether a sentence holds the answer to a question",
        labels=_ENTAILMENT,
        skips_incomplete=True,
    ),
    _glue(
        "qqp",
        "QQP",
        ("question1", "question2"),
        "is_duplicate",
        "whether two questions ask the same (1)",
        metrics=("accuracy", "f1"),
        skips_incomplete=True,
    ),
    _glue(
        "mnli",
        "MNLI",
        _SENTENCES,
        "gold_label",
        "whether the second text follows from the first, contradicts it or "
        "neither; dev is the matched one",
        files=_MNLI_FILES,
        labels=("contradiction", "entailment", "neutral"),
    ),
    _glue(
        "wnli",
        "WNLI",
        _SENTENCES,
        "label",
        "whether the second text, a pronoun replaced, follows (1)",
    ),
)
