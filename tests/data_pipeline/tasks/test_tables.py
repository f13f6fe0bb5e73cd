"""Splits in directories, archives and files; tables and their columns."""

import gzip
import io
import itertools
import json
import lzma
import os
import tarfile
import warnings
import zipfile

import pytest

from data_pipeline.base.files import as_path
from data_pipeline.base.files import copy_tree
from data_pipeline.base.files import remove
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.reading import find_split
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tasks.reading import read_task
from data_pipeline.tasks.reading import read_unlabelled

RTE = (
    "index\tsentence1\tsentence2\tlabel\n"
    '0\tA "big\tB.\tentailment\n'
    "7\tC, d\t\tnot_entailment\n"
)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def pack(path, files):
    """An archive of a dict of name to text."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return path
    compression = path.suffix.removeprefix(".").removeprefix("tar")
    with tarfile.open(path, f"w:{compression}") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def texts(examples):
    return [(x.text, x.text_pair, x.label) for x in examples]


RTE_EXAMPLES = [
    TextExample("0", 'A "big', "B.", "entailment", "train.tsv, row 2"),
    TextExample("7", "C, d", "", "not_entailment", "train.tsv, row 3"),
]


def test_a_directory(tmp_path):
    for folder in ("", "RTE/"):
        path = tmp_path / (folder or "flat")
        file = write(path / "train.tsv", RTE)
        root = tmp_path if folder else path
        assert read_examples("rte", root) == RTE_EXAMPLES
        assert find_split("rte", root, "train") == str(file)
        assert find_split("rte", root, "dev") is None


def test_an_archive(tmp_path):
    insides = ("", "./", "glue/RTE/", "other/")
    endings = (".zip", ".tar", ".tar.gz", ".tar.xz")
    for number, (ending, inside) in enumerate(
        itertools.product(endings, insides)
    ):
        archive = tmp_path / f"{number}{ending}"
        pack(archive, {f"{inside}train.tsv": RTE})
        assert read_examples("rte", archive) == RTE_EXAMPLES, (ending, inside)
        assert find_split("rte", archive, "train").endswith("train.tsv")
        assert find_split("rte", archive, "dev") is None
        with pytest.raises(FileNotFoundError, match="no dev split.*dev.tsv"):
            read_examples("rte", archive, "dev")


def test_an_archive_of_all_tasks_gives_the_right_one(tmp_path):
    other = RTE.replace("big", "small")
    files = {"g/SST-2/train.tsv": other, "g/RTE/train.tsv": RTE}
    archive = pack(tmp_path / "x.zip", {**files, "g/RTE/._train.tsv": "?"})
    assert read_examples("rte", archive) == RTE_EXAMPLES
    archive = pack(
        tmp_path / "y.zip",
        {"RTE/train.tsv": RTE, "SST/x": ""} | {"OLDER/RTE/train.tsv": other},
    )
    assert read_examples("rte", archive) == RTE_EXAMPLES


def test_one_file(tmp_path):
    write(tmp_path / "mine.tsv", RTE)
    found = read_examples("rte", tmp_path / "mine.tsv")
    assert texts(found) == texts(RTE_EXAMPLES)
    path = str(tmp_path / "mine.tsv")
    assert find_split("rte", path, "train") == path
    assert find_split("rte", path, "dev") is None
    for module, name in ((gzip, "a.tsv.gz"), (lzma, "a.tsv.xz")):
        write(tmp_path / name, module.compress(RTE.encode()))
        assert texts(read_examples("pair", tmp_path / name)) == texts(found)


def test_compressed_splits_in_a_directory(tmp_path):
    write(tmp_path / "train.tsv", RTE)
    write(tmp_path / "dev.tsv.gz", gzip.compress(RTE.encode()))
    ((name, found),) = read_task("pair", tmp_path).held_out()
    assert name == "dev" and texts(found) == texts(RTE_EXAMPLES)
    # A plain one comes first, whatever its format.
    for ending in ("jsonl", "tsv"):
        row = '{"text": "B", "text_pair": "b", "label": "entailment"}'
        text = row if ending == "jsonl" else RTE.replace("A", "B")
        write(tmp_path / f"dev.{ending}", text)
        ((_, found),) = read_task("pair", tmp_path).held_out()
        assert found[0].text.startswith("B")


def test_names_of_files_are_no_patterns(tmp_path):
    for name in ("my.target.tsv", "x.tars.tsv.gz", "a[1]*.tsv", "a::b.tsv"):
        text = gzip.compress(RTE.encode()) if ".gz" in name else RTE
        found = read_examples("rte", write(tmp_path / name, text))
        assert texts(found) == texts(RTE_EXAMPLES), name
    archive = pack(tmp_path / "x.tar", {"train.tsv": RTE})
    archive = archive.rename(tmp_path / "x[1].tar.old")
    assert read_examples("rte", archive) == RTE_EXAMPLES


def test_files_in_a_bucket(bucket, tmp_path):
    root = as_path(bucket)
    pack(tmp_path / "x.tar.xz", {"RTE/train.tsv": RTE})
    pack(tmp_path / "x.zip", {"RTE/train.tsv": RTE})
    for file in tmp_path.iterdir():
        copy_tree(file, root / file.name)
    write(root / "glue/RTE/train.tsv", RTE)
    write(root / "train.tsv.gz", gzip.compress(RTE.encode()))
    for name in ("x.tar.xz", "x.zip", "glue", "train.tsv.gz"):
        path = f"{bucket}/{name}"
        assert texts(read_examples("rte", path)) == texts(RTE_EXAMPLES), name
        assert find_split("rte", path, "train").startswith(path)
        assert find_split("rte", path, "dev") is None
    for label in ("pos", "neg"):
        write(root / f"aclImdb/train/{label}/0_5.txt", label)
    found = read_examples("imdb", root)
    assert texts(found) == [("neg", None, "neg"), ("pos", None, "pos")]
    with pytest.raises(FileNotFoundError, match="no file or directory ram://"):
        read_examples("rte", f"{bucket}/none")
    # A new version under the same name is read anew.
    pack(tmp_path / "x.tar.xz", {"train.tsv": RTE * 9})
    remove(root / "x.tar.xz")  # what is in memory is not replaced
    copy_tree(tmp_path / "x.tar.xz", root / "x.tar.xz")
    with pytest.raises(ValueError, match="row 4: the label 'label' is not"):
        read_examples("rte", root / "x.tar.xz")


def test_damaged_archives(tmp_path):
    good = pack(tmp_path / "x.tar.xz", {"train.tsv": RTE * 1000}).read_bytes()
    write(tmp_path / "y.tar.xz", good[: len(good) // 2])
    write(tmp_path / "z.zip", good)
    for name in ("y.tar.xz", "z.zip"):
        with pytest.raises(ValueError, match="damaged, cut short or of ano"):
            read_examples("rte", tmp_path / name)


def test_wrong_paths_and_splits(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or direct"):
        read_examples("rte", tmp_path / "none")
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(ValueError, match="pipe.tsv is a pipe, a terminal or"):
        read_examples("rte", tmp_path / "pipe.tsv")
    (tmp_path / "pipe.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="RTE/ around it"):
        read_examples("rte", tmp_path)
    with pytest.raises(FileNotFoundError, match="without a dev split; it has"):
        read_examples("imdb", tmp_path, "dev")
    with pytest.raises(ValueError, match="`split` must be one of train, dev,"):
        find_split("rte", tmp_path, "validation")


LAYOUTS = {
    "cola/train": ("gj\t1\t\tOurs.\nx\t0\t*\tThey.\n", ["Ours.", "They."]),
    "cola/test": ("index\tsentence\n4\tThe label.\n", ["The label."]),
    "mrpc/train": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t70\t71\t"Hi\tHo\r\n',
        ['"Hi'],
    ),
    "sts-b/train": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
        "sentence2\tscore\n3\tg\tf\ty\to\ts\ts\tA.\tB.\t4.25\n",
        ["A."],
    ),
    "qnli/train": (
        "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n",
        ["Who?"],
    ),
    "qqp/test": ("id\tquestion1\tquestion2\n0\tWho?\tHe?\n", ["Who?"]),
    "wnli/train": ("index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1\n", ["A"]),
}


def test_glue_layouts(tmp_path):
    found = {}
    for layout, (text, expected) in LAYOUTS.items():
        task, split = layout.split("/")
        write(tmp_path / task / f"{split}.tsv", text)
        found[layout] = read_examples(task, tmp_path / task, split)
        assert [x.text for x in found[layout]] == expected, layout
        has_labels = split != "test"
        assert all((x.label is not None) == has_labels for x in found[layout])
    first, second = found["cola/train"]
    assert (first.label, second.label) == ("1", "0")
    assert (second.where, second.id) == ("train.tsv, row 2", "1")
    assert found["cola/test"][0].id == "4"
    (example,) = found["sts-b/train"]
    assert (example.label, example.text_pair) == (4.25, "B.")


def test_mnli(tmp_path):
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    rows = "0\ta\tb\tneutral\t-\n1\tc\td\tneutral\tcontradiction\n"
    for kind in ("matched", "mismatched"):
        write(tmp_path / f"dev_{kind}.tsv", header + rows.replace("c", kind, 1))
    with pytest.warns(UserWarning, match="1 rows without a gold label left"):
        found = read_examples("mnli", tmp_path, "dev")
    assert texts(found) == [("matched", "d", "contradiction")]
    assert found[0].where == "dev_matched.tsv, row 3"
    with pytest.warns(UserWarning):
        found = read_examples("mnli", tmp_path, "dev_mismatched")
    assert found[0].text == "mismatched"


def test_incomplete_rows_of_published_files_are_counted(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(tmp_path / "train.tsv", header + "1\t2\t3\tA?\n4\t5\t6\tB?\tC?\t0\n")
    with pytest.warns(UserWarning, match="1 rows with too few fields left"):
        found = read_examples("qqp", tmp_path)
    assert texts(found) == [("B?", "C?", "0")]


def test_reviews_and_topics(tmp_path):
    write(
        tmp_path / "train.csv",
        '"5","A \\""b\\"" is,\\nwell"\n"1","C\nd"\n"2",""',
    )
    found = read_examples("yelp-5", tmp_path)
    assert texts(found) == [
        ('A "b" is,\nwell', None, "5"),
        ("C\nd", None, "1"),
        ("", None, "2"),
    ]
    # A row is counted from its first line.
    assert [one.where[-1] for one in found] == ["1", "2", "4"]
    write(tmp_path / "test.csv", '"3","Wall St","Near the\\band of 5"\n')
    found = read_examples("ag-news", tmp_path, "test")
    assert texts(found) == [("Wall St Near the band of 5", None, "3")]
    write(tmp_path / "train.csv", '14,"E"," Text."\n')
    assert read_examples("dbpedia", tmp_path)[0].text == "E  Text."


def test_long_fields(tmp_path):
    write(tmp_path / "train.csv", f'1,"{"word " * 40_000}"\n')
    assert len(read_examples("yelp-2", tmp_path)[0].text) == 200_000


OWN = [
    ("a.tsv", 'text\tlabel\nHi "you"\tx\n\nHo\ty\n', 4),
    ("a.csv", 'Label,Text\nx,"Hi ""you"""\n\ny,Ho\n', 4),
    ("a.jsonl", '{"label": "x", "text": "Hi \\"you\\""}\n\n'
     '{"text": "Ho", "label": "y", "more": [1]}\n', 3),
    ("a.json", '[{"label": "x", "text": "Hi \\"you\\""},\n'
     '{"text": "Ho", "label": "y"}]', 2),
]  # fmt: skip


def test_tables_of_your_own(tmp_path):
    for name, text, row in OWN:
        found = read_examples("classification", write(tmp_path / name, text))
        assert texts(found) == [('Hi "you"', None, "x"), ("Ho", None, "y")]
        assert found[1].where == f"{name}, row {row}"


def test_columns(tmp_path):
    for header, columns in (
        ("stars,title,body\n", "text=title+body,label=stars"),
        ("stars,title,body\n", {"text": "Title+body", "label": "stars"}),
        ("stars,title,body\n", "text=title+2, label=stars"),
        ("label,title,body\n", "text=1+2"),
        # Without a header, by index.
        ("", "text=1+2, label=0"),
        ("", {"text": "1+2", "label": 0}),
    ):
        path = write(tmp_path / "a.csv", f"{header}5,Good,It is.\n")
        found = read_examples("classification", path, columns=columns)
        assert texts(found) == [("Good It is.", None, "5")]
    columns = "label=0,text=1"
    for first in ("0", "1", "2"):
        # An index is not a name of the first row.
        path = write(tmp_path / "a.csv", f"{first},Good\n3,Bad\n")
        found = read_examples("classification", path, columns=columns)
        assert texts(found) == [("Good", None, first), ("Bad", None, "3")]
    # A header may be of numbers, or of names, one in each of the columns.
    for header in ("0,1", "Label,text"):
        write(path, f"{header}\n3,Bad\n")
        found = read_examples("classification", path, columns=columns)
        assert texts(found) == [("Bad", None, "3")]


def test_names_of_columns_with_commas_and_equals_signs(tmp_path):
    path = write(tmp_path / "a.csv", '"Review, full","a=b, c=d"\nIt is.,5\n')
    for columns in (
        "text=Review, full,label=a=b, c=d",
        "label=a=b, c=d , text=Review, full",
        {"text": "Review, full", "label": "a=b, c=d"},
        "text=Review, full,label=1",
    ):
        found = read_examples("classification", path, columns=columns)
        assert texts(found) == [("It is.", None, "5")], columns
    with pytest.raises(ValueError, match="looked for Review, full,lable=a"):
        columns = "text=Review, full,lable=a=b"
        read_examples("classification", path, columns=columns)


def test_two_columns_of_a_name(tmp_path):
    path = write(tmp_path / "a.csv", "text,text,label\nA,B,x\nC,D,y\n")
    with pytest.raises(ValueError, match="several columns are named 'text'"):
        read_examples("classification", path)
    found = read_examples("classification", path, columns="text=1")
    assert texts(found)[0] == ("B", None, "x")
    # Columns that nobody asks for, and names that differ.
    write(path, "id,id,Text,text,label\n1,2,A,B,x\n1,2,C,D,y\n")
    found = read_examples("classification", path)
    assert texts(found)[0] == ("B", None, "x")


def test_a_name_in_a_row_of_a_table_without_a_header(tmp_path):
    for cells, columns, warns in (
        (("review", "It is."), "label=0,text=1", False),
        (("It is.", "content"), "text=0,label=1", False),
        (("It is.", "target"), "text=0,label=1", True),
        (("comment", "sentiment"), "text=0,label=1", True),
        (("comment", "pos"), "text=0,label=1", False),
        (("Label", "It is."), "label=0,text=1", True),
    ):
        rows = "a,b\n" if cells[0] != "comment" else "a,pos\nb,pos\n"
        path = write(tmp_path / "a.csv", f"{','.join(cells)}\n{rows}")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = read_examples("classification", path, columns=columns)
        assert {found[0].text, found[0].label} == set(cells)
        assert len(found) == 1 + rows.count("\n")
        assert ["is read as an example" in str(x.message) for x in told] == (
            [True] * warns
        )


def test_blanks_behind_commas(tmp_path):
    text = 'text, label\nbad, "neg"\n"so, ""so""", neg\n" good", "pos"\n'
    path = write(tmp_path / "a.csv", text)
    assert texts(read_examples("classification", path)) == [
        ("bad", None, "neg"),
        ('so, "so"', None, "neg"),
        (" good", None, "pos"),
    ]


def test_objects_may_leave_out_what_others_have(tmp_path):
    rows = [
        {"text": "a", "label": 1},
        {"text": "b", "text_pair": "c", "label": 2},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path = write(tmp_path / "a.jsonl", lines)
    found = read_examples("regression", path)
    assert texts(found) == [("a", None, 1.0), ("b", "c", 2.0)]


def test_one_text_or_two(tmp_path):
    path = write(tmp_path / "a.csv", "score,title,body\n5,Good,It is.\n")
    found = read_examples("regression", path, columns="text=title")
    assert texts(found) == [("Good", None, 5.0)]
    columns = "text=title,text_pair=body"
    found = read_examples("regression", path, columns=columns)
    assert texts(found) == [("Good", "It is.", 5.0)]


def test_wrong_columns(tmp_path):
    path = write(tmp_path / "a.csv", "stars,body\n5,It is.\n")
    with pytest.raises(ValueError, match="no column for `text` .*Columns: st"):
        read_examples("classification", path)
    with pytest.raises(ValueError, match=r"looked for \('rating',\)|rating"):
        read_examples("classification", path, columns="text=body,label=rating")
    for columns in ("words=body", "nope", {"words": "body"}):
        received = "nope" if columns == "nope" else "words=body"
        message = f"ROLE=COLUMN.*Received: {received}; roles of the task cl"
        with pytest.raises(ValueError, match=message):
            read_examples("classification", path, columns=columns)
    with pytest.raises(ValueError, match=r"'text' twice.*text=stars\+body jo"):
        read_examples("classification", path, columns="text=stars,text=body")
    with pytest.raises(ValueError, match="roles of the task imdb: none"):
        read_examples("imdb", tmp_path, columns="text=body")


def test_a_test_split_needs_no_labels(tmp_path):
    path = write(tmp_path / "a.csv", "text\nIt is.\n")
    found = read_examples("classification", path, "test")
    assert texts(found) == [("It is.", None, None)]
    for split in ("train", "dev"):
        with pytest.raises(ValueError, match="no column for `label`"):
            read_examples("classification", path, split)
    path = write(tmp_path / "b.csv", "text,label\nIt is.,\n")
    assert read_examples("regression", path, "test")[0].label is None
    path = write(tmp_path / "c.jsonl", '{"text": "It is."}\n')
    for task in ("classification", "multi-label"):
        assert read_examples(task, path, "test")[0].label is None
    path = write(tmp_path / "d.csv", "It is.\nIt was.\n")
    found = read_examples(
        "classification", path, "test", columns="text=0,label=1"
    )
    assert texts(found) == [("It is.", None, None), ("It was.", None, None)]


def test_classes_of_a_text(tmp_path):
    """One separator for all of a file."""
    rows = 'a,"Arts, Culture|Sports"\nb,"Arts, Culture"\nc,\n'
    path = write(tmp_path / "a.csv", "text,label\n" + rows)
    found = [x.label for x in read_examples("multi-label", path)]
    assert found == [("Arts, Culture", "Sports"), ("Arts, Culture",), ()]
    path = write(tmp_path / "b.csv", 'text,label\na,"y, x"\nb,[z]\n')
    found = [x.label for x in read_examples("multi-label", path)]
    assert found == [("x", "y"), ("[z]",)]
    # Where others are lists, a comma separates nothing.
    lines = (
        '{"text": "a", "label": ["x, y", NaN]}\n{"text": "b", "label": "y, z"}'
    )
    path = write(tmp_path / "c.jsonl", lines)
    found = [x.label for x in read_examples("multi-label", path)]
    assert found == [("x, y",), ("y, z",)]
    # Multi-hot lists name no classes, but those to evaluate on may be ids.
    for lists in ([[0, 1, 0], [1, 1, 0]], [[0.0, 1.0], [1.0, 0.0]]):
        lines = [json.dumps({"text": "a", "label": one}) for one in lists]
        path = write(tmp_path / "e.jsonl", "\n".join(lines))
        with pytest.raises(ValueError, match="0 or 1, which name no classes"):
            read_examples("multi-label", path)
    write(tmp_path / "f.jsonl", '{"text": "a", "label": [0, 2]}')
    write(tmp_path / "e.jsonl", '{"text": "a", "label": [1, 0]}')
    found = read_examples("multi-label", tmp_path / "e.jsonl", "test")
    assert [x.label for x in found] == [("0", "1")]
    # To predict, a text of no class differs from one that is not labelled.
    lines = ['{"text": "a", "label": []}', '{"text": "a"}']
    path = write(tmp_path / "g.jsonl", "\n".join(lines))
    found = read_examples("multi-label", path, "test")
    assert [x.label for x in found] == [(), None]
    path = write(tmp_path / "g.csv", "text,x,y\na,0,0\nb,1,0\nc,,\n")
    found = read_examples("multi-label", path, "test", "text=text,label=x+y")
    assert [x.label for x in found] == [(), ("x",), None]
    # A file to evaluate on knows the classes of the one to train on.
    write(tmp_path / "d.csv", 'text,label\nd,"Arts, Culture"\ne,"Sports,x"\n')
    data = read_task("multi-label", tmp_path / "a.csv", tmp_path / "d.csv")
    ((_, found),) = data.held_out()
    assert [x.label for x in found] == [("Arts, Culture",), ("Sports", "x")]
    found = read_unlabelled(data.task, tmp_path / "d.csv")
    assert found[0].label == ("Arts, Culture",)


def test_missing_values_blank_lines_and_blanks_around_names(tmp_path):
    """As pandas and spreadsheets write them."""
    for name, text in (
        ("a.csv", "\n \ntext,label\na,x\n  \nb,y\n"),
        ("a.tsv", "\ntext\tlabel\na\tx\n  \nb\ty\n"),
        (
            "a.jsonl",
            '{"text": "a", " label": "x"}\n{"text": "b", " label": "y"}',
        ),
    ):
        found = read_examples("classification", write(tmp_path / name, text))
        assert texts(found) == [("a", None, "x"), ("b", None, "y")], name
    rows = '{"title": NaN, "body": "b", "label": 1}\n'
    path = write(tmp_path / "b.jsonl", rows)
    columns = "text=title+body"
    found = read_examples("classification", path, columns=columns)
    assert texts(found) == [("b", None, "1")]


BAD = [
    ("rte", "a.tsv", RTE + "8\tx\ty\tmaybe\n", "row 4: the label 'maybe' is"),
    ("rte", "a.tsv", RTE + "8\tx\n", "row 4: a field is missing .2 fields"),
    ("rte", "a.tsv", RTE + "8\tx\ty\t\n", "row 4: the label is empty"),
    ("rte", "a.tsv", "", "the file is empty"),
    ("rte", "a.tsv", RTE.splitlines()[0] + "\n", "holds no examples"),
    ("rte", "a.tsv", RTE.encode() + b"8\t\xe9\tb\tc", "row 4: the file is"),
    ("rte", "a.tsv", RTE.encode() + b"\n" * 20_000 + b"\xff", "row 20004.*xff"),
    ("pair", "a.csv", "text,text_pair,label\na,b,c,d\n", "row 2: 4 fields"),
    ("pair", "a.csv", 'text,text_pair,label\n"a"b,c,d\n', "row 2: not valid"),
    ("pair", "a.csv", 'text,text_pair,label\na,"b,c\n', "row 2: not valid"),
    ("pair", "a.xls", "text", "what kind of table"),
    ("regression", "a.csv", "text,label\na,1\nb,good\n", "row 3: the label"),
    ("regression", "a.csv", "text,label\na,nan\n", "'nan' is not a finite"),
    ("regression", "a.csv", "text,label\na,-inf\n", "'-inf' is not a finite"),
    ("regression", "a.jsonl", '{"text": "a", "label": true}', "'true' is not"),
    ("regression", "a.jsonl", '{"text": "a", "label"}', "row 1: broken JSON"),
    ("regression", "a.json", '[{"text": "a"},\n{]', "row 2: broken JSON"),
    ("regression", "a.jsonl", '{"text": "a", "label": 1}\n' + "[" * 100_000,
     "row 2 or below: JSON that cannot be read"),
    ("regression", "a.jsonl", "9" * 5000, "row 1 or below: JSON that cannot"),
    ("ag-news", "a.csv", "Class Index,Title,Description\n3,a,b\n",
     "row 1: the label 'Class Index' is not .* names the columns, remove it"),
    ("regression", "a.jsonl", "3\n", "row 1: not an object"),
    ("regression", "a.jsonl", '{"text": ["a"], "label": 1}', "neither a str"),
    ("regression", "a.jsonl", '{"text": null, "label": 1}', "'text' is null"),
    ("regression", "a.jsonl", '{"text": NaN, "label": 1}', "'text' is null"),
    ("classification", "a.jsonl", '{"text": "a", "label": NaN}', "is empty"),
    ("rte", "a.tsv", RTE.encode("utf-16"), "iconv -f utf-16 -t utf-8"),
    ("multi-label", "a.csv", "text,label\na,\"['x', 'y']\"\n",
     "row 2: the label .* is a list written as text"),
    ("regression", "a.jsonl", '{"text": "", "label": 1}\n{"label": 2}',
     "row 2: a field is missing .it has label"),
]  # fmt: skip


def test_bad_tables(tmp_path):
    for task, name, text, message in BAD:
        path = write(tmp_path / name, text)
        with pytest.raises(ValueError, match=message) as caught:
            read_examples(task, path)
        assert name in str(caught.value) and "\n" not in str(caught.value)


def test_ranking(tmp_path):
    path = write(
        tmp_path / "a.tsv",
        "query\tdocument\trelevance\nq\ta\t2\nr\tb\t0\nq\tc\t-2\n",
    )
    with pytest.warns(UserWarning, match="1 rows with a relevance below 0"):
        found = read_examples("ranking", path)
    assert found == [
        RankingExample("0", "q", "0", "a", 2.0, "a.tsv, row 2"),
        RankingExample("1", "r", "1", "b", 0.0, "a.tsv, row 3"),
        RankingExample("0", "q", "2", "c", 0.0, "a.tsv, row 4"),
    ]
    rows = [
        {"query_id": 7, "query": "q", "document_id": "d", "document": "x"},
        {"query_id": 7, "query": "r", "document_id": "e", "document": "y"},
    ]
    path = write(tmp_path / "b.jsonl", json.dumps(rows[0]))
    assert read_examples("ranking", path, "test") == [
        RankingExample("7", "q", "d", "x", None, "b.jsonl, row 1")
    ]
    write(path, "\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="row 2: the query 7 has another text"):
        read_examples("ranking", path, "test")
    path = write(tmp_path / "c.csv", "query,document,relevance\nq,a,high\n")
    with pytest.raises(
        ValueError, match="row 2: the label 'high' is not a fin"
    ):
        read_examples("ranking", path)


def test_real_glue(shared):
    for task, counts, positive in (
        ("rte", {"train": 2490, "dev": 277}, ("entailment", 1249)),
        ("sst-2", {"train": 67349, "dev": 872, "test": 1821}, ("1", 37569)),
        ("sts-b", {"train": 5749, "dev": 1500, "test": 1379}, None),
    ):
        for split, count in counts.items():
            found = read_examples(task, shared / "data/glue", split)
            assert len(found) == len({x.id for x in found}) == count
            if positive is None:
                assert all(0 <= x.label <= 5 for x in found)
            elif split == "train":
                label, number = positive
                assert sum(x.label == label for x in found) == number
