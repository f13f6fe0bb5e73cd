"""The first lines of a run: how long it takes, before the first step."""

import types

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.objectives import Masked
from xlnet_tf.objectives import Permutation
from xlnet_tf.objectives import PseudoMasked
from xlnet_tf.training import arithmetic
from xlnet_tf.training.runs.progress import beginning

MODEL = XLNetConfig(
    vocabulary_size=97,
    num_layers=3,
    num_heads=5,
    hidden_dim=14,
    head_dim=2,
    intermediate_dim=23,
    memory_length=7,
)
ONE_CPU = tf.distribute.OneDeviceStrategy("CPU:0")
WORK = arithmetic.Work(9e9, 1e6)


def a_run(steps=1000, done=0, precision="float32", strategy=ONE_CPU, work=WORK):
    return types.SimpleNamespace(
        config=types.SimpleNamespace(steps=steps, precision=precision),
        global_step=tf.constant(done),
        strategy=strategy,
        model=types.SimpleNamespace(count_params=lambda: 10**6),
        checkpoints=types.SimpleNamespace(skipped=["ckpt-3"]),
        restored="ckpt-2",
        describe=lambda: ["model     small"],
        step_work=lambda: work,
    )


def test_what_is_said_of_the_time(monkeypatch):
    monkeypatch.setattr(beginning, "products_per_second", lambda: 1e10)
    seconds = beginning.expected_seconds(WORK, 1e10)
    assert 1 < seconds < 1.2
    model, time, *others = beginning.beginning(a_run()).splitlines()
    assert model == "model     small"
    said = "time      about 12 to 25 min for 1,000 training steps, by the size"
    assert time.startswith(said)
    assert others == [
        "skipped   damaged checkpoint ckpt-3",
        "resume    from ckpt-2",
    ]
    assert " for 400 training steps" in beginning.beginning(a_run(done=600))


def test_nothing_is_said_of_what_is_not_known(monkeypatch):
    """Nothing is measured then."""
    monkeypatch.setattr(beginning, "products_per_second", pytest.fail)
    for case in (
        {"done": 1000},
        {"precision": "bfloat16"},
        {"strategy": tf.distribute.OneDeviceStrategy("GPU:0")},
        {"strategy": tf.distribute.MirroredStrategy(["CPU:0"])},
        {"work": None},
    ):
        assert "time" not in beginning.beginning(a_run(**case)), case


def test_a_rate_is_measured():
    assert 1e8 < beginning.products_per_second() < 1e14


def test_ranges_of_time():
    for least, most, text in (
        (180, 360, "3 to 6 min"),
        (50, 200, "50 s to 3 min"),
        (0.1, 0.2, "0 s"),
        (5300, 7200, "88 min to 2.0 h"),
    ):
        assert beginning.time_range(least, most) == text


def a_model(**attributes):
    attributes = {"reads_query": False, "segment_length": None} | attributes
    return types.SimpleNamespace(
        config=MODEL, count_params=lambda: 100, **attributes
    )


def flops_of(*arguments):
    return arithmetic.training_step_flops(MODEL.to_dict(), *arguments)


def elements_of(rows, tokens, keys, targets=0, query_rows=0):
    of_row = 12 * 14 + 3 * 23 + 5 * keys
    layers = 3 * (tokens + query_rows) * of_row
    return rows * (layers + targets * 97) + 100


def test_work_by_objective():
    """Without a query stream the targets have no rows; [P] are appended."""

    def work(**attributes):
        model = a_model(**attributes)
        return arithmetic.pretraining_work(model, 2, 11, 3)

    expected = flops_of(2, 11, 7, 3), elements_of(2, 11, 18, 3, 3)
    assert work(reads_query=True, objectives=[Permutation()]) == expected
    softmax = 3 * 2 * 2 * 3 * 14 * 97
    expected = flops_of(2, 11, 7) + softmax, elements_of(2, 11, 18, 3)
    assert work(objectives=[Masked()]) == expected
    expected = flops_of(2, 17, 7) + softmax, elements_of(2, 17, 24, 3)
    assert work(objectives=[PseudoMasked()]) == expected


def test_work_of_fine_tuning():
    def work(trained=100, options=None, targets=None, **attributes):
        dense = {} if targets is None else {"target_positions": targets}
        batches = types.SimpleNamespace(
            batch_size=2,
            mean_length=lambda: 22.0,
            encoded=types.SimpleNamespace(options=options, dense=dense),
        )
        model = a_model(**attributes)
        return arithmetic.finetuning_work(model, batches, trained)

    assert work() == (flops_of(2, 22), elements_of(2, 22, 22))
    assert work(options=4) == (flops_of(8, 22), elements_of(8, 22, 22))
    assert work(trained=10).flops == pytest.approx(0.7 * work().flops)
    expected = flops_of(4, 11, 7), elements_of(4, 11, 18)
    assert work(segment_length=11) == expected
    targets = np.zeros([5, 3])
    found = work(targets=targets, reads_query=True, next_token="query")
    assert found == (flops_of(2, 22, 0, 3), elements_of(2, 22, 22, 3, 3))
    found = work(targets=targets, next_token="pseudo")
    softmax = 3 * 2 * 2 * 3 * 14 * 97
    assert found == (flops_of(2, 25) + softmax, elements_of(2, 25, 25, 3))
