"""Tables for fine-tuning in Parquet, Arrow, Feather and saved data sets."""

import datetime
import json
import zipfile

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from data_pipeline.tasks.reading import is_file
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tasks.reading import read_task
from tests.support.table_files import save_dataset
from tests.support.table_files import write_all
from tests.support.table_files import write_arrow

ROWS = [
    {"text": f"Text {n}.", "label": n % 2, "score": n / 4, "fine": n > 3}
    for n in range(250)
]
MORE = {
    "day": [datetime.date(2024, 5, 1)] * 250,
    "words": [["a", "b"]] * 250,
    "title": pyarrow.array(["T"] * 250).dictionary_encode(),
    "stars": pyarrow.array([5, 3] * 125).dictionary_encode(),
}


def table():
    content = pyarrow.Table.from_pylist(ROWS)
    for name, values in MORE.items():
        content = content.append_column(name, [values])
    return content


def as_json(path):
    rows = [{**row, "day": "2024-05-01", "title": "T"} for row in ROWS]
    rows = [{**row, "stars": (5, 3)[n % 2]} for n, row in enumerate(rows)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def without_place(examples):
    return [x._replace(where="") for x in examples]


def test_columns_as_lines_of_json_have_them(tmp_path):
    lines = as_json(tmp_path / "a.jsonl")
    (tmp_path / "files").mkdir()
    paths = write_all(table(), tmp_path / "files")
    paths.append(save_dataset(table(), tmp_path / "saved", shards=3))
    for path in paths:
        assert is_file(path)
        for task, columns in (
            ("classification", None),
            ("classification", "label=fine"),
            ("classification", "text=title+text,label=day"),
            ("classification", "label=stars"),
            ("regression", "label=score"),
        ):
            found = read_examples(task, path, columns=columns)
            expected = read_examples(task, lines, columns=columns)
            assert without_place(found) == without_place(expected), path
        assert found[249].where.endswith(", row 250")
        for columns, message in (
            ("text=words", "row 1: 'words' is neither a string nor a number"),
            ("text=body", "Columns: text, label, score, fine, day"),
        ):
            with pytest.raises(ValueError, match=message):
                read_examples("classification", path, columns=columns)


def test_names_that_datasets_keeps_beside_numbers(tmp_path):
    """Of your own tables; published tasks have numbers, whatever is there."""
    feature = {"names": ["bad", "good"], "_type": "ClassLabel"}
    content = pyarrow.table({"text": list("abcd"), "label": [1, 0, 5, 1]})
    for features, expected in (
        ({"label": feature}, ["good", "bad", "5", "good"]),
        ({"label": {"_type": "Value"}, "text": 3}, ["1", "0", "5", "1"]),
        ([], ["1", "0", "5", "1"]),
    ):
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        named = content.replace_schema_metadata(metadata)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        paths = write_all(named, folder)
        for path in [*paths, save_dataset(named, folder / "saved")]:
            found = read_examples("classification", path)
            assert [x.label for x in found] == expected, path
    unknown = pyarrow.table({"text": ["a"], "label": [-1]})
    metadata = {
        "huggingface": json.dumps({"info": {"features": {"label": feature}}})
    }
    write_arrow(unknown.replace_schema_metadata(metadata), tmp_path / "a.arrow")
    with pytest.raises(ValueError, match="row 1"):
        read_examples("classification", tmp_path / "a.arrow")
    content = pyarrow.table({"sentence": ["a", "b"], "label": [0, 1]})
    parquet.write_table(
        content.replace_schema_metadata(metadata), tmp_path / "train.parquet"
    )
    found = read_examples("sst-2", tmp_path / "train.parquet")
    assert [x.label for x in found] == ["0", "1"]


def test_lists_of_classes(tmp_path):
    numbers = pyarrow.array(
        [[9], [0, 1], None, []], pyarrow.list_(pyarrow.int8())
    )
    content = pyarrow.table({"text": list("abc"), "labels": numbers[1:]})
    feature = {"names": ["bad", "good"], "_type": "ClassLabel"}
    features = {"labels": {"_type": "Sequence", "feature": feature}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    content = content.replace_schema_metadata(metadata)
    for path in write_all(content, tmp_path):
        found = read_examples("multi-label", path, "test")
        assert [x.label for x in found] == [("bad", "good"), None, ()], path
    content = pyarrow.table({"text": ["a"], "labels": [["x, y", "z"]]})
    write_arrow(content, tmp_path / "a.arrow")
    (example,) = read_examples("multi-label", tmp_path / "a.arrow")
    assert example.label == ("x, y", "z")


def test_names_of_earlier_versions_of_datasets(tmp_path):
    """A digest behind the number, in the folder data/ of a repository."""
    folder = tmp_path / "data"
    folder.mkdir()
    parquet.write_table(table(), tmp_path / "whole.parquet")
    for number, digest in enumerate(("b42a775f", "00ff")):
        name = f"train-{number:05d}-of-00002-{digest}.parquet"
        part = table().slice(125 * number, 125)
        parquet.write_table(part, folder / name)
    expected = read_examples("classification", tmp_path / "whole.parquet")
    found = read_examples("classification", tmp_path)
    assert without_place(found) == without_place(expected)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=r"00001-of-00002-\*.parquet is not"):
        read_examples("classification", tmp_path)


def test_files_that_the_hub_has_divided(tmp_path):
    """Found as splits, in a directory, an archive and by fsspec."""
    whole, folder = tmp_path / "whole", tmp_path / "data"
    whole.mkdir(), folder.mkdir()
    parquet.write_table(table(), whole / "train.parquet")
    for number in range(3):
        name = f"train-{number:05d}-of-00003.parquet"
        parquet.write_table(table().slice(number * 90, 90), folder / name)
    name = "validation-00000-of-00001.parquet"
    parquet.write_table(table().slice(0, 9), folder / name)
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, path.name)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/divided", recursive=True)
    expected = read_examples("classification", whole)
    try:
        for path in (folder, archive, "memory://divided"):
            data = read_task("classification", path)
            assert without_place(data.train) == without_place(expected)
            assert data.train[249].where.endswith(", row 250")
            assert len(data.evaluation["dev"]) == 9
    finally:
        memory.rm("/divided", recursive=True)
    one = read_examples(
        "classification", folder / "train-00000-of-00003.parquet"
    )
    assert len(one) == 90
    (folder / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(ValueError, match="00001-of-00003.parquet is not there"):
        read_examples("classification", folder)


def test_splits(tmp_path):
    for names in (("train", "validation", "test"), ("train",)):
        saved = tmp_path / f"{len(names)} splits"
        for name in names:
            save_dataset(table(), saved / name)
        (saved / "dataset_dict.json").write_text(
            json.dumps({"splits": list(names)})
        )
        archive = tmp_path / f"{len(names)}.zip"
        windows = tmp_path / f"{len(names)}_windows.zip"
        for file_name, separator in ((archive, "/"), (windows, "\\")):
            with zipfile.ZipFile(file_name, "w") as file:
                for path in sorted(saved.rglob("*.*")):
                    name = path.relative_to(saved).as_posix()
                    file.write(path, name.replace("/", separator))
        for path in (saved, archive, windows):
            data = read_task("classification", path)
            assert data.labels == ("0", "1")
            (held_out,) = data.evaluation
            assert held_out == ("dev" if len(names) > 1 else "held out")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_arrow(table(), folder / "train.arrow")
    assert len(read_examples("classification", folder)) == 250
    pairs = pyarrow.table({"source": ["a"], "target": ["b"]})
    save_dataset(pairs, tmp_path / "pairs" / "train", 1)
    (example,) = read_examples("seq2seq", tmp_path / "pairs")
    assert (example.source, example.target) == ("a", "b")


def test_zst_and_a_table_called_state(tmp_path):
    lines = as_json(tmp_path / "state.json")
    expected = read_examples("classification", lines)
    compressed = tmp_path / "a.jsonl.zst"
    compressed.write_bytes(
        pyarrow.compress(lines.read_bytes(), "zstd", asbytes=True)
    )
    found = read_examples("classification", compressed)
    assert without_place(found) == without_place(expected)


def test_tasks_that_read_no_tables(tmp_path):
    for path in write_all(pyarrow.table({"text": ["a"]}), tmp_path):
        for task in ("squad-1.1", "ner"):
            with pytest.raises(ValueError, match="this task reads no Parquet"):
                read_examples(task, path)


def test_what_is_wrong_has_a_row(tmp_path):
    column = pyarrow.array([b"Good.", b"b\xff."])
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, column.buffers())
    content = pyarrow.table({"text": column, "label": ["a", "b"]})
    for path in write_all(content, tmp_path):
        with pytest.raises(ValueError, match=f"{path}, row 2: .* not UTF-8"):
            read_examples("classification", path)
    content = pyarrow.table({"text": ["a", "b"], "label": ["a", None]})
    for path in write_all(content, tmp_path):
        with pytest.raises(ValueError, match=f"{path}, row 2: the label is em"):
            read_examples("classification", path)
        path.write_bytes(path.read_bytes()[:-9])
        if path.name != "c.arrow":  # a stream, which may end there
            with pytest.raises(ValueError, match="damaged|cut short"):
                read_examples("classification", path)
