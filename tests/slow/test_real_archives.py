"""RACE and IMDB, read from archives of thousands of files."""

import collections

from data_pipeline.tasks.reading import find_split
from data_pipeline.tasks.reading import read_examples


def test_real_race(shared):
    path = shared / "data/race/RACE_train_subset.tar.xz"
    found = read_examples("race", path)
    assert len(found) == len({one.id for one in found}) == 33847
    groups = collections.Counter(one.group for one in found)
    assert groups == {"middle": 25421, "high": 8426}
    answers = collections.Counter(one.answer for one in found)
    assert answers == {0: 7304, 1: 8892, 2: 9259, 3: 8392}


def test_real_imdb(shared):
    path = shared / "data/imdb/aclImdb_train.tar.xz"
    found = read_examples("imdb", path)
    labels = collections.Counter(one.label for one in found)
    assert labels == {"neg": 12500, "pos": 12500}
    ratings = collections.Counter(one.id.split("_")[1] for one in found)
    assert ratings["1"] == 5100 and ratings["10"] == 4732
    assert not any("<br />" in one.text or not one.text for one in found)
    assert find_split("imdb", path, "test") is None
