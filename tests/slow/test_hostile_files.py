"""Hostile files in a process of its own, as `make torture` reads them.

Guards what tests/xlnet_tf/weights/test_hostile_files.py cannot: readers that
need TensorFlow's C++, the limit of memory, and that a reader that ends the
process is named.
"""

import random

from tests.torture import hostile_files


def test_every_reader_and_one_that_crashes(tmp_path):
    found = list(hostile_files.trials(20, tmp_path, random.Random(1)))
    assert [label for label, problem in found if problem] == []
    assert len({label for label, _ in found}) == 17
    worker = hostile_files.Worker(tmp_path / "more")
    try:
        cases = [("texts", "1"), ("unknown", "2"), ("texts", "3")]
        answers = list(worker.outcomes(cases))
        assert answers[0] == ("texts", None)
        assert answers[1][0] == "unknown"
        assert "2: the process ended with status 1" in answers[1][1]
        assert len(answers) == 2
        assert list(worker.outcomes(cases[2:])) == [("texts", None)]
    finally:
        worker.stop()
