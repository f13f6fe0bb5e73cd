"""Training and evaluation examples of a task; holding examples out."""

import collections
import json

import pytest

from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tasks.splitting import hold_out
from data_pipeline.tasks.task_data import TaskData


def write_reviews(directory, *splits):
    for split in splits:
        for label in ("pos", "neg"):
            folder = directory / split / label
            folder.mkdir(parents=True)
            for index in range(3):
                text = f"{split} {label} {index}"
                (folder / f"{index}_7.txt").write_text(text)
    return directory


def write_table(file, rows, header="text\tlabel"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def texts(examples):
    return {example.text.split()[0] for example in examples}


def test_where_there_is_no_dev_split_the_test_split_is_evaluated_on(tmp_path):
    path = write_reviews(tmp_path / "aclImdb", "train", "test")
    data = reading.read_task("imdb", path, evaluation=path)
    assert texts(data.train) == {"train"} and len(data.train) == 6
    assert list(data.evaluation) == ["test"]
    assert texts(data.evaluation["test"]) == {"test"}
    # Not unless it is asked for.
    data = reading.read_task("imdb", path)
    assert texts(data.evaluation["held out"]) == {"train"}


def test_training_examples_are_not_taken_to_evaluate_on(tmp_path):
    path = write_reviews(tmp_path / "aclImdb", "train")
    with pytest.raises(FileNotFoundError, match="neither a dev nor a test"):
        reading.read_task("imdb", path, evaluation=path)


def test_a_test_split_without_labels(tmp_path):
    train = write_table(tmp_path / "train.tsv", ["a\tx", "b\ty"])
    other = tmp_path / "other"
    write_table(other / "test.tsv", ["c", "d"], header="text")
    with pytest.raises(ValueError, match=r"test.tsv, row 2: there is no label"):
        reading.read_task("classification", train, evaluation=other)


def test_a_file_to_evaluate_on(tmp_path):
    train = write_table(tmp_path / "train.tsv", ["a\tx", "b\ty"])
    test = write_table(tmp_path / "test.tsv", ["c\tx"])
    data = reading.read_task("classification", train, evaluation=test)
    assert [x.text for x in data.evaluation["dev"]] == ["c"]


def test_a_file_to_evaluate_on_is_read_as_a_dev_split(tmp_path):
    """Whose labels may be numbers of classes."""
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    rows = [{"text": x, "label": [x]} for x in "012"]
    train.write_text("\n".join(map(json.dumps, rows)))
    dev.write_text('{"text": "a", "label": ["0", "1"]}')
    for path, evaluation in ((tmp_path, None), (train, dev)):
        data = reading.read_task("multi-label", path, evaluation=evaluation)
        (example,) = data.evaluation["dev"]
        assert example.label == ("0", "1")


def test_a_class_of_one_example_is_a_class(tmp_path):
    rows = [f"text {i}\tx" for i in range(5)] + ["text\trare"]
    train = write_table(tmp_path / "train.tsv", rows)
    for seed in range(8):
        data = reading.read_task(
            "classification", train, fraction=0.5, seed=seed
        )
        assert data.labels == ("rare", "x")


def test_the_title_of_a_task():
    for name, labels, title in (
        ("classification", ("a",), "classification, 1 class"),
        ("regression", None, "regression"),
        ("multi-label", ("a", "b"), "multi-label, 2 classes"),
        ("rte", ("a", "b"), "rte, classification, 2 classes"),
        ("ner", ("O", "B-x"), "ner, token_classification, 2 classes"),
    ):
        data = TaskData(find_task(name), labels, [], {})
        assert data.title() == title


def test_a_set_by_name_evaluated_on_a_file(tmp_path, monkeypatch):
    asked = []

    def read_by_name(task, split):
        asked.append(split)
        return ["an example"]

    monkeypatch.setattr(reading, "read_by_name", read_by_name)
    file = write_table(
        tmp_path / "mine.tsv", ["good\t1"], header="review\tstars"
    )
    data = reading.read_task(
        "sst-2", None, evaluation=file, columns="text=review,label=stars"
    )
    assert asked == ["train"] and data.train == ["an example"]
    assert data.evaluation["dev"][0].text == "good"
    with pytest.raises(ValueError, match="`--columns` needs files"):
        reading.read_task("sst-2", None, columns="text=review")


def test_hold_out_single_examples():
    found = [TextExample(str(i), f"text {i}") for i in range(103)]
    train, held = hold_out(found, 0.1, seed=3)
    assert len(held) == 10 and sorted(train + held) == sorted(found)
    assert (train, held) == hold_out(found, 0.1, seed=3)
    assert held != hold_out(found, 0.1, seed=4)[1]
    assert held == sorted(held, key=lambda one: int(one.id))
    assert len(hold_out(found, 0.001, seed=3)[1]) == 1
    assert len(hold_out(found[:2], 0.99, seed=3)[0]) == 1


def test_the_same_share_of_every_class_is_held_out():
    sizes = {"a": 200, "b": 20, "c": 3, "d": 2, "e": 1}
    found = [
        TextExample(f"{name}{i}", f"{name} {i}", label=name)
        for name, size in sizes.items()
        for i in range(size)
    ]
    # Copies of one text, and a text that two classes have.
    found += [TextExample(f"f{i}", "f", label="f") for i in range(4)]
    found += [TextExample("g0", "a 0", label="g"), TextExample("g1", "g")]
    found[-1] = found[-1]._replace(label="g")
    for seed in range(5):
        train, held = hold_out(found, 0.1, seed)
        counts = collections.Counter(x.label for x in held)
        assert counts["a"] in (19, 20, 21) and counts["b"] == 2
        assert counts["c"] == counts["d"] == counts["g"] == 1
        assert not counts["e"] and not counts["f"]
        assert {x.label for x in train} == {*sizes, "f", "g"}
        assert not {x.text for x in train} & {x.text for x in held}
        assert (train, held) == hold_out(found, 0.1, seed)


def test_copies_of_an_example_are_held_out_together():
    for copies in (
        [TextExample(str(i), f"text {i % 40}", label="x") for i in range(120)],
        [TextExample(str(i), "a", f"text {i % 40}") for i in range(120)],
        [TokensExample(str(i), ("a", str(i % 40))) for i in range(120)],
    ):
        train, held = hold_out(copies, 0.2, seed=1)
        assert len(held) == 24 and len(train) == 96
        sides = [{one[1:3] for one in part} for part in (train, held)]
        assert not sides[0] & sides[1]


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


def grouped(sizes):
    """Examples of each kind whose groups are not split, of these sizes."""
    rows = [
        (str(g), str(i)) for g, size in enumerate(sizes) for i in range(size)
    ]
    return [
        [RankingExample(g, "q", i, "d") for g, i in rows],
        [PairExample(g + i, g, i) for g, i in rows],
        [TokensExample(g + i, (g,)) for g, i in rows],
        [ChoiceExample(g + i, g, i, ("a", "b")) for g, i in rows],
        [QuestionExample(g + i, g, i) for g, i in rows],
        [TextExample(g + i, g) for g, i in rows],
        # Copies of a text by several classes.
        [
            TextExample(g + i, g, label="abc"[(int(g) + int(i)) % 3])
            for g, i in rows
        ],
        [
            TextExample(g + i, g, label=("b", "abc"[(int(g) + int(i)) % 3]))
            for g, i in rows
        ],
    ]


def test_groups_beyond_the_share_are_passed_over():
    for sizes in (
        [85, 3, 3],
        [85, *[1] * 91],
        [20, *[1] * 80],
        [1, 60, *[5] * 10],
        [30, 20, 40, 10, 35, 1, 1],
        [9] * 10,
    ):
        for seed in range(10):
            for examples in grouped(sizes):
                train, held = hold_out(examples, 0.1, seed)
                assert 0.05 < len(held) / len(examples) < 0.15, examples[0]
                assert (train, held) == hold_out(examples, 0.1, seed)


def test_articles_beyond_the_share_are_split_by_their_texts():
    def articles(*sizes):
        return [
            QuestionExample(f"{a}-{i}-{j}", f"text {i} of {a}", "?", title=a)
            for a, size in zip("ABCD", sizes, strict=False)
            for i in range(size)
            for j in range(3)
        ]

    for sizes in ([30], [30, 30], [30, 1], [30, 20, 40, 10]):
        found = articles(*sizes)
        for seed in range(10):
            train, held = hold_out(found, 0.1, seed)
            assert 0.05 < len(held) / len(found) < 0.15
            sides = [{x.context for x in part} for part in (train, held)]
            assert not sides[0] & sides[1]
            assert (train, held) == hold_out(found, 0.1, seed)
    # Whole ones, where they are small enough.
    found = articles(10, 4, 1, 2)
    for seed in range(10):
        sides = [{x.title for x in part} for part in hold_out(found, 0.2, seed)]
        assert not sides[0] & sides[1]


def test_a_share_that_groups_do_not_allow_is_told():
    for sizes, count in (
        ([50, 50], 50),
        ([1000, 1], 1),
        ([1000, 1000, 1], 1001),
        ([40, 40, 40], 40),
    ):
        for examples in grouped(sizes)[:6]:
            share = f"{count / sum(sizes):.2g} instead of 0.1: those of one"
            with pytest.warns(UserWarning, match=share) as told:
                held = hold_out(examples, 0.1, 3)[1]
            assert len(held) == count and len(told) == 1


def test_hold_out_refuses():
    ranked = [RankingExample("1", "q", str(i), "d") for i in range(5)]
    article = [QuestionExample(str(i), "a", "?", title="A") for i in range(5)]
    for one in (ranked, article, article[:1], []):
        with pytest.raises(ValueError, match="nothing can be held .*--eval-da"):
            hold_out(one, 0.5, seed=0)
    one = ranked
    for fraction in (0, 1, float("nan")):
        with pytest.raises(ValueError, match="`fraction` must be between"):
            hold_out(one, fraction, seed=0)
