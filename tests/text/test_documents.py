"""Text files: layouts, encodings, compression, parts, errors."""

import bz2
import gzip
import json
import lzma

import pytest

from data_pipeline.text import documents as text_files
from data_pipeline.text.documents import Document
from data_pipeline.text.documents import PartPlanner
from data_pipeline.text.documents import read_documents
from data_pipeline.text.sentences import split_sentences

SENTENCES = "One is here.\nTwo is here.\n\n \nThree is here.\nFour!\nFive?\n"


def plan_parts(documents, part_characters):
    planner = PartPlanner(part_characters)
    for document in documents:
        yield from planner.add(document)
    yield from planner.finish()


def read(path, **options):
    return list(read_documents(str(path), **options))


def test_sentences(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(SENTENCES)
    expected = [
        ["One is here.", "Two is here."],
        ["Three is here.", "Four!", "Five?"],
    ]
    assert read(path, text_format="sentences") == expected
    assert read(path) == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark(tmp_path, line_end):
    path = tmp_path / "a.txt"
    content = "\ufeff" + SENTENCES.replace("\n", line_end)
    path.write_bytes(content.encode())
    assert read(path)[0] == ["One is here.", "Two is here."]


def test_chunks_do_not_show(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(
        "Größe ä. Ö\r\nß.\r\n\r\nĀ new one…\r\n".replace(
            "\n", "\n" * 1
        ).encode()
    )
    whole = read(path, text_format="sentences")
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(text_files, "_CHUNK_BYTES", size)
        assert read(path, text_format="sentences") == whole


def test_a_long_running_file_is_cut_at_ends_of_paragraphs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(text_files, "DOCUMENT_CHARACTERS", 30)
    path = tmp_path / "long.txt"
    paragraphs = [f"Paragraph {i}\nof two lines." for i in range(7)]
    path.write_text("\n\n".join(paragraphs) + "\n")
    documents = read(path, text_format="running")
    assert len(documents) == 4
    assert sum(documents, []) == [
        f"Paragraph {i} of two lines." for i in range(7)
    ]


def test_long_files_without_a_blank_line_are_cut_at_line_ends(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(text_files, "DOCUMENT_CHARACTERS", 30)
    path = tmp_path / "long.txt"
    path.write_text("".join(f"Line number {i}.\n" for i in range(20)))
    sentences = read(path, text_format="sentences")
    assert [len(document) for document in sentences] == [2] * 10
    running = read(path, text_format="running")
    assert [len(document) for document in running] == [8, 8, 4]


def test_running(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "CHAPTER I\n\nIt was he\nwho came. \"No!\" she said. 'Yes.' And\n"
        "so on\n\nthe end 3.14 e.g. this.\n"
    )
    assert read(path, text_format="running") == [
        [
            "CHAPTER I",
            "It was he who came.",
            '"No!" she said.',
            "'Yes.'",
            "And so on",
            "the end 3.14 e.g. this.",
        ]
    ]
    assert text_files.detect_format(str(path)) == "running"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A b. C d.", ["A b.", "C d."]),
        ("A b . C d .", ["A b .", "C d ."]),
        (
            'He said "stop." "Why?" (No.) Ok',
            ['He said "stop."', '"Why?"', "(No.)", "Ok"],
        ),
        (
            "One... Two… three. élan. Élan",
            ["One...", "Two… three. élan.", "Élan"],
        ),
        ("你好。他说：“好！”再见", ["你好。", "他说：“好！”", "再见"]),
        ("  \n\n ", []),
    ],
)
def test_split_sentences(text, expected):
    assert split_sentences(text) == expected


def test_jsonl(tmp_path):
    path = tmp_path / "a.jsonl"
    texts = ["One. Two.", "  ", "Three\n\nFour"]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert read(path) == [["One.", "Two."], ["Three", "Four"]]


@pytest.mark.parametrize(
    ("extension", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
def test_compressed(tmp_path, extension, compress):
    path = tmp_path / f"a.json{extension}"
    path.write_bytes(compress(b'{"text": "One. Two."}'))
    assert read(path) == [["One.", "Two."]]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged or cut short"):
        read(path)


def test_files_in_order(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(f"Text {name}")
    assert [d[0] for d in read(tmp_path / "*.txt")] == [
        "Text a",
        "Text b",
        "Text c",
    ]


def test_progress_counts_bytes_of_files(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(SENTENCES.encode() * 1000))
    steps = []
    list(text_files.stream_documents(str(path), progress=steps.append))
    assert sum(steps) == path.stat().st_size


def test_real_corpora(shared):
    wikitext = shared / "data" / "lm" / "wikitext-2" / "wiki.train.tokens"
    novel = shared / "data" / "lm" / "novels_en" / "train"
    if not wikitext.is_file() or not novel.is_dir():
        pytest.skip("there is no wikitext-2 or novels_en beside the project")
    documents = read(wikitext)
    assert documents[0][0] == "= Valkyria Chronicles III ="
    assert sum(map(len, documents)) > 70_000
    assert 40 < len(documents) < 60  # 10.8 MB in pieces of 200,000
    document = read(novel / "Barclay_Rosary_1909.txt")[0]
    assert document[:2] == ["THE ROSARY", "CHAPTER I"]
    assert document[3].startswith("The peaceful stillness of an English")


def test_parts_end_with_documents_and_hold_enough():
    documents = [Document("x" * (i % 7 * 10), "running") for i in range(100)]
    parts = list(plan_parts(iter(documents), 200))
    assert sum(parts, []) == documents
    sizes = [sum(len(document.text) for document in part) for part in parts]
    assert len(parts) > 5
    assert min(sizes) >= 200
    # The rest is joined to the last part; no other holds a document too many.
    for part, size in list(zip(parts, sizes, strict=True))[:-1]:
        assert size - len(part[-1].text) < 200
    assert list(plan_parts(documents[:2], 200)) == [documents[:2]]
    assert list(plan_parts([], 200)) == []


def test_parts_stream():
    def endless():
        while True:
            yield Document("x" * 50, "running")

    parts = plan_parts(endless(), 100)
    assert [len(next(parts)) for _ in range(3)] == [2, 2, 2]


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file matches `input`"):
        read(tmp_path / "*.txt")


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_empty_file(tmp_path, content, name):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name}: the file holds no text"):
        read(tmp_path / name)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_invalid_encoding(tmp_path, monkeypatch, mark, chunk):
    monkeypatch.setattr(text_files, "_CHUNK_BYTES", chunk)
    path = tmp_path / "a.txt"
    path.write_bytes(mark + "Größe.\nZwei ".encode() + b"\xe4.\n")
    offset = len(mark) + 14
    with pytest.raises(
        ValueError, match=rf"a.txt: invalid utf-8 at byte {offset} \(0xe4\)"
    ):
        read(path)
    assert read(path, encoding="cp1252")[0][-1] == "Zwei ä."


def test_utf16(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(SENTENCES, encoding="utf-16")
    assert len(read(path, encoding="utf-16")) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a', r"a.jsonl:3: the line is not valid JSON"),
        ('{"body": "a"}', r'a.jsonl:3: the JSON has no string field "text"'),
        ('{"text": 7}', r'a.jsonl:3: the JSON has no string field "text"'),
        ("[1]", r'a.jsonl:3: the JSON has no string field "text"'),
    ],
)
def test_broken_json(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=message):
        read(path)


def test_unknown_format_and_encoding(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match="`text_format` must be one of"):
        read(tmp_path / "a.txt", text_format="html")
    with pytest.raises(ValueError, match="`encoding` is not one"):
        read(tmp_path / "a.txt", encoding="utf-9")
