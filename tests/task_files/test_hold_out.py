"""Holding examples out."""

import pytest

from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.reading import hold_out


def test_hold_out_single_examples():
    found = [TextExample(str(i), f"text {i}") for i in range(103)]
    train, held = hold_out(found, 0.1, seed=3)
    assert len(held) == 10 and sorted(train + held) == sorted(found)
    assert (train, held) == hold_out(found, 0.1, seed=3)
    assert held != hold_out(found, 0.1, seed=4)[1]
    assert held == sorted(held, key=lambda one: int(one.id))
    assert len(hold_out(found, 0.001, seed=3)[1]) == 1
    assert len(hold_out(found[:2], 0.99, seed=3)[0]) == 1


def test_hold_out_whole_groups():
    kinds = {
        "context": [
            ChoiceExample(f"{i}/{j}", f"article {i}", "?", ("a", "b"))
            for i in range(31)
            for j in range(i % 5 + 1)
        ],
        "title": [
            QuestionExample(f"{i}-{j}", f"paragraph {j}", "?", title=f"{i}")
            for i in range(31)
            for j in range(7)
        ],
        "query_id": [
            RankingExample(f"{i % 13}", "q", f"{i}", "d", 1.0)
            for i in range(130)
        ],
    }
    for field, found in kinds.items():
        train, held = hold_out(found, 0.2, seed=1)
        assert 0.1 < len(held) / len(found) < 0.3
        assert len(train) + len(held) == len(found)
        groups = [{getattr(x, field) for x in part} for part in (train, held)]
        assert not groups[0] & groups[1]


def test_hold_out_refuses():
    one = [RankingExample("1", "q", str(i), "d") for i in range(5)]
    with pytest.raises(ValueError, match="nothing can be held out"):
        hold_out(one, 0.5, seed=0)
    for fraction in (0, 1, float("nan")):
        with pytest.raises(ValueError, match="`fraction` must be between"):
            hold_out(one, fraction, seed=0)
