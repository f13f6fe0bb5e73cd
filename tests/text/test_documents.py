"""Text files: formats, encodings, compression, parts, errors."""

import bz2
import gzip
import itertools
import json
import lzma

import pytest

from data_pipeline.text import documents
from data_pipeline.text.documents import Document
from data_pipeline.text.documents import PartPlanner
from data_pipeline.text.documents import read_documents
from data_pipeline.text.sentences import split_sentences

SENTENCES = "One is here.\nTwo is here.\n\n \nThree is here.\nFour!\nFive?\n"


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
    for line_end in ("\n", "\r\n", "\r"):
        content = "\ufeff" + SENTENCES.replace("\n", line_end)
        path.write_bytes(content.encode())
        assert read(path) == expected
    path.write_text(SENTENCES, encoding="utf-16")
    assert read(path, encoding="utf-16") == expected


def test_results_do_not_depend_on_chunks(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes("Größe ä. Ö\r\nß.\r\n\r\nĀ new one…\r\n".encode())
    expected = read(path, text_format="sentences")
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(documents, "_CHUNK_BYTES", size)
        assert read(path, text_format="sentences") == expected


def test_long_files_are_cut(tmp_path, monkeypatch):
    """At the end of a paragraph, or of a line without blank lines."""
    monkeypatch.setattr(documents, "DOCUMENT_CHARACTERS", 30)
    path = tmp_path / "long.txt"
    paragraphs = [f"Paragraph {i}\nof two lines." for i in range(7)]
    path.write_text("\n\n".join(paragraphs) + "\n")
    running = read(path, text_format="running")
    assert len(running) == 4
    assert sum(running, []) == [
        f"Paragraph {i} of two lines." for i in range(7)
    ]
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
    assert documents.detect_format(str(path)) == "running"


def test_split_sentences():
    for text, expected in (
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
    ):
        assert split_sentences(text) == expected


def test_jsonl_and_compression(tmp_path):
    texts = ["One. Two.", "  ", "Three\n\nFour"]
    content = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    for name, compress in (
        ("a.jsonl", bytes),
        ("a.json.gz", gzip.compress),
        ("a.json.bz2", bz2.compress),
        ("a.jsonl.xz", lzma.compress),
    ):
        path = tmp_path / name
        path.write_bytes(compress(content))
        assert read(path) == [["One.", "Two."], ["Three", "Four"]], name
        if compress is not bytes:
            path.write_bytes(path.read_bytes()[:-9])
            with pytest.raises(ValueError, match="damaged or cut short"):
                read(path)


def test_files_in_order_and_their_bytes(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(f"Text {name}")
    texts = [document[0] for document in read(tmp_path / "*.txt")]
    assert texts == ["Text a", "Text b", "Text c"]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(SENTENCES.encode() * 1000))
    steps = []
    list(documents.stream_documents(str(path), progress=steps.append))
    assert sum(steps) == path.stat().st_size


def test_real_corpora(shared):
    wikitext = shared / "data" / "lm" / "wikitext-2" / "wiki.train.tokens"
    novel = shared / "data" / "lm" / "novels_en" / "train"
    if not wikitext.is_file() or not novel.is_dir():
        pytest.skip("there is no wikitext-2 or novels_en beside the project")
    articles = read(wikitext)
    assert articles[0][0] == "= Valkyria Chronicles III ="
    assert sum(map(len, articles)) > 70_000
    assert 40 < len(articles) < 60  # 10.8 MB in pieces of 200,000
    document = read(novel / "Barclay_Rosary_1909.txt")[0]
    assert document[:2] == ["THE ROSARY", "CHAPTER I"]
    assert document[3].startswith("The peaceful stillness of an English")


def plan_parts(stream, part_characters):
    planner = PartPlanner(part_characters)
    for document in stream:
        yield from planner.add(document)
    yield from planner.finish()


def test_parts_end_with_documents_and_hold_enough():
    stream = [Document("x" * (i % 7 * 10), "running") for i in range(100)]
    parts = list(plan_parts(stream, 200))
    assert sum(parts, []) == stream
    sizes = [sum(len(document.text) for document in part) for part in parts]
    assert len(parts) > 5
    assert min(sizes) >= 200
    # Only the last part may hold a document more than needed.
    for part, size in list(zip(parts, sizes, strict=True))[:-1]:
        assert size - len(part[-1].text) < 200
    assert list(plan_parts(stream[:2], 200)) == [stream[:2]]
    assert list(plan_parts([], 200)) == []
    endless = itertools.repeat(Document("x" * 50, "running"))
    parts = plan_parts(endless, 100)
    assert [len(next(parts)) for _ in range(3)] == [2, 2, 2]


def test_invalid_encoding(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    for mark, chunk in itertools.product((b"", b"\xef\xbb\xbf"), (3, 1 << 20)):
        monkeypatch.setattr(documents, "_CHUNK_BYTES", chunk)
        path.write_bytes(mark + "Größe.\nZwei ".encode() + b"\xe4.\n")
        offset = len(mark) + 14
        with pytest.raises(
            ValueError, match=rf"a.txt: invalid utf-8 at byte {offset} \(0xe4\)"
        ):
            read(path)
        assert read(path, encoding="cp1252")[0][-1] == "Zwei ä."


def test_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file matches `input`"):
        read(tmp_path / "*.txt")
    fine = '{"text": "fine"}\n\n'
    no_field = r'a.jsonl:3: the JSON has no string field "text"'
    for name, content, options, message in (
        ("a.txt", "", {}, "a.txt: the file holds no text"),
        ("a.txt", "\n \n\t\n", {}, "a.txt: the file holds no text"),
        ("a.jsonl", "", {}, "a.jsonl: the file holds no text"),
        ("a.jsonl", "\n \n\t\n", {}, "a.jsonl: the file holds no text"),
        ("a.jsonl", fine + '{"text": "a', {}, "a.jsonl:3: .* not valid JSON"),
        ("a.jsonl", fine + '{"body": "a"}', {}, no_field),
        ("a.jsonl", fine + '{"text": 7}', {}, no_field),
        ("a.jsonl", fine + "[1]", {}, no_field),
        ("a.txt", "a", {"text_format": "html"}, "`text_format` must be one of"),
        ("a.txt", "a", {"encoding": "utf-9"}, "`encoding` is not one"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / name, **options)
