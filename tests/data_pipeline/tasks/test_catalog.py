"""The catalog: every task is complete and agrees with its publication."""

import pytest

from data_pipeline.tasks import examples
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.catalog import find_task

NAMES = (
    "sst-2 cola mrpc sts-b rte qnli qqp mnli wnli imdb yelp-2 yelp-5 ag-news "
    "dbpedia amazon-2 amazon-5 classification pair regression race dream "
    "multi-label squad-1.1 squad-2.0 ner conll-2003 wnut-17 ranking "
    "seq2seq aeslc multi30k-en-de multi30k-de-en multi30k-en-fr multi30k-fr-en"
)
METRICS = (
    "accuracy f1 matthews pearson spearman exact_match squad_f1 entity_f1 "
    "ndcg@10 ndcg@20 bleu chrf rouge1 rouge2 rouge_l "
    "micro_f1 macro_f1 average_precision mean_absolute_error "
    "root_mean_squared_error r2"
)


def test_all_tasks_are_complete():
    assert sorted(TASKS) == sorted(NAMES.split())
    for name, task in TASKS.items():
        assert find_task(name) is task and task.name == name
        assert find_task(task) is task
        assert task.kind in examples.KINDS
        assert task.reader in reading.READERS
        assert set(task.metrics) <= set(METRICS.split()) and task.metrics
        assert "train" in task.files and "test" in task.files or "squad" in name
        assert set(task.files) <= set(examples.SPLITS)
        assert all(isinstance(names, tuple) for names in task.files.values())
        assert all(isinstance(c, tuple) for c in task.columns.values())
        assert task.description
        assert task.sequence_length in (128, 256, 512)
        assert task.labels is None or task.kind != "regression"
    with pytest.raises(ValueError, match="'sst2'; did you mean sst-2. Known"):
        find_task("sst2")


def test_the_order_of_labels_is_the_reference_implementations():
    from official.nlp.data import classifier_data_lib as reference

    processors = {
        "cola": reference.ColaProcessor,
        "imdb": reference.ImdbProcessor,
        "mnli": reference.MnliProcessor,
        "mrpc": reference.MrpcProcessor,
        "qnli": reference.QnliProcessor,
        "qqp": reference.QqpProcessor,
        "rte": reference.RteProcessor,
        "sst-2": reference.SstProcessor,
        "wnli": reference.WnliProcessor,
    }
    for name, processor in processors.items():
        assert list(TASKS[name].labels) == processor.get_labels(None)


def test_numbers_of_classes():
    counts = {"yelp-5": 5, "yelp-2": 2, "ag-news": 4, "dbpedia": 14}
    counts |= {"amazon-2": 2, "amazon-5": 5, "conll-2003": 9, "wnut-17": 13}
    for name, count in counts.items():
        assert len(set(TASKS[name].labels)) == count
    assert TASKS["wnut-17"].labels[:3] == (
        "O",
        "B-corporation",
        "I-corporation",
    )


def test_main_metrics():
    mains = {name: task.metrics[0] for name, task in TASKS.items()}
    assert mains["cola"] == "matthews"
    assert mains["sts-b"] == mains["regression"] == "pearson"
    assert TASKS["mrpc"].metrics == TASKS["qqp"].metrics == ("accuracy", "f1")
    assert mains["squad-1.1"] == mains["squad-2.0"] == "squad_f1"
    assert mains["ner"] == "entity_f1"
    assert mains["ranking"] == "ndcg@10"
    assert mains["seq2seq"] == mains["multi30k-en-de"] == "bleu"
    assert mains["aeslc"] == "rouge_l"
