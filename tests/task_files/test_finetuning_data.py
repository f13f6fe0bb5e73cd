"""What a run learns from and what it is evaluated on."""

import pytest

from data_pipeline.tasks import reading


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


@pytest.mark.parametrize("seed", range(8))
def test_a_class_of_one_example_is_a_class(tmp_path, seed):
    rows = [f"text {i}\tx" for i in range(5)] + ["text\trare"]
    train = write_table(tmp_path / "train.tsv", rows)
    data = reading.read_task("classification", train, fraction=0.5, seed=seed)
    assert data.labels == ("rare", "x")


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
    with pytest.raises(ValueError, match="`--columns` is of files"):
        reading.read_task("sst-2", None, columns="text=review")
