"""Text files: formats, encodings, compression, parts, errors."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import random
import tracemalloc

import pytest

from data_pipeline.base.files import as_path
from data_pipeline.base.files import sha256_of
from data_pipeline.text import compression
from data_pipeline.text import documents
from data_pipeline.text import files
from data_pipeline.text import lines
from data_pipeline.text import rows
from data_pipeline.text.documents import Corpus
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
        monkeypatch.setattr(compression, "CHUNK_BYTES", size)
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
    assert Corpus(str(path)).reader.text_format == "running"


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
        (
            "\n A.\nB  b?  \n\t\n c! \n\n_ D. e. 1. ǅ.\n\nf. (g",
            ["A.", "B  b?", "c!", "_ D. e. 1. ǅ.", "f.", "(g"],
        ),
        ("A。！” 。b。\n \n C.”\u3000D", ["A。！”", "。", "b。", "C.”", "D"]),
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
            with pytest.raises(ValueError, match="damaged, cut short or"):
                read(path)


def test_rows_of_csv_are_documents(tmp_path):
    quoted = (
        '\ufeff\r\nid,text\r\n1,"He said ""no"".\r\n\r\nNew, yes"\r\n\r\n'
        "2, \r\n3, plain,\r\n"
    )
    for name, content, options, expected in (
        ("a.csv", quoted, {}, ['He said "no".\n\nNew, yes', "plain"]),
        ("a.CSV.gz", quoted, {}, ['He said "no".\n\nNew, yes', "plain"]),
        ("b.csv", 'id;note\n1;"a;b"\n', {"text_field": "note"}, ["a;b"]),
        ("c.csv", "id\ttext\n1\ta, b\n", {}, ["a, b"]),
        ("d.tsv", 'id\ttext\n1\t"a, b\n2\tc\n', {}, ['"a, b', "c"]),
        ("e.csv", "text\nOne.\n\nTwo.\n", {}, ["One.", "Two."]),
        ("f.csv", f"text\n{'a' * 200_000}\n", {}, ["a" * 200_000]),
        ("g.txt", "text,b\nOne.,2\n", {"text_format": "csv"}, ["One."]),
        ("h.csv", "One.\nTwo.", {"text_format": "running"}, ["One.\nTwo."]),
        (
            "i.csv",
            'id,text\n1,"a" b\n2\n3,c\n',
            {"on_bad_text": "skip"},
            ["c"],
        ),
    ):
        data = content.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if "gz" in name else data)
        log = files.ReadLog(None)
        corpus = Corpus(path, **options)
        assert [x.text for x in corpus.documents(log)] == expected, name
        assert corpus.notes == [], name
        if name[0] in "ai":
            count = {"a": "empty_rows", "i": "skipped_lines"}[name[0]]
            assert log.bad_text[count] == {"a": 1, "i": 2}[name[0]]


def test_odd_rows_of_csv_are_counted(tmp_path):
    for name, content, expected, counts in (
        ("a.csv", "sep=;\nid;text\n1;a, b\n", ["a, b"], {}),
        ("a.tsv", '\ufeff"sep=|"\r\ntext|id\r\n"a|b"|2\r\n', ["a|b"], {}),
        (
            "a.csv",
            "text,id\na,1\n\ufefftext,id\nb,2\n",
            ["a", "b"],
            {"dropped_marks": 1, "repeated_headers": 1},
        ),
        (
            "a.tsv",
            'text\tid\n"a ""b"""\t1\n"c\t2\n',
            ['"a ""b"""', '"c'],
            {"quoted_texts": 1},
        ),
        (
            "a.jsonl",
            '{"text": "a"}\n\ufeff{"text": "b"}\n',
            ["a", "b"],
            {"dropped_marks": 1},
        ),
        (
            "a.txt",
            "\ufeffOne.\n\ufeffTwo\ufeff.\n",
            ["One.\nTwo\ufeff."],
            {"dropped_marks": 1},
        ),
    ):
        path, log = tmp_path / name, files.ReadLog(None)
        path.write_bytes(content.encode())
        options = {"text_format": "running"} if name == "a.txt" else {}
        documents = Corpus(path, **options).documents(log)
        assert [x.text for x in documents] == expected, content
        assert log.bad_text == counts
        assert len(files.describe_bad_text(log.bad_text)) == len(counts)


def test_an_open_quote_costs_its_line_alone(tmp_path):
    """Not all rows behind it, of which it would be a text."""
    good = [f'"row {n}\nof two",1\n' for n in range(20)]
    text = f'text,label\n{good[0]}"an odd quote,1\n{"".join(good[1:])}'
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(files.TextError, match="row in lines 4 to 5 is broken"):
        read(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text('text,label\n"open,1\n' + 5000 * "a,1\n")
    # A whole row with too many fields is left out whole.
    (tmp_path / "c.csv").write_text('text,label\n"one\ntwo",1,2\na,1\n')
    # Nor is one read in pieces that has a quote within its text.
    (tmp_path / "d.csv").write_text('text\n"one\ntwo\nsaid "hi" to\nme"\nok\n')
    whole = [f"row {n}\nof two" for n in range(20)]
    for name, expected in (
        ("a", whole),
        ("b", ["a"] * 5000),
        ("c", ["a"]),
        ("d", ['me"', "ok"]),
    ):
        log = files.ReadLog(None)
        path = tmp_path / f"{name}.csv"
        documents = Corpus(path, on_bad_text="skip").documents(log)
        assert [x.text for x in documents] == expected, name
        assert log.bad_text["skipped_lines"] == 1, name


def test_quotes_that_are_opened_in_every_row(tmp_path, monkeypatch):
    """Each would take all that follows, and reading would never end."""
    monkeypatch.setattr(rows, "_MOST_READ_AGAIN", 5000)
    path = tmp_path / "a.csv"
    path.write_text("id,text\n" + '5","x\n' * 2000)
    with pytest.raises(files.TextError, match="too many quotes are opened"):
        [*Corpus(path, on_bad_text="skip").documents(files.ReadLog(None))]


def test_json_of_data_frames(tmp_path):
    """Null is an empty text, as in tables of other formats."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": null}\n{"text": " "}\n{"text": "a"}\n')
    log = files.ReadLog(None)
    assert [x.text for x in Corpus(path).documents(log)] == ["a"]
    assert log.bad_text == {"empty_rows": 2}


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


def test_one_guess_for_a_corpus(tmp_path, monkeypatch):
    """The majority decides; JSON goes by its name; others are told of."""
    for name in "bcd":
        (tmp_path / f"{name}.txt").write_text("CHAPTER\n\nIt was\n\nhe. Yes.")
    (tmp_path / "empty.txt").write_text("")
    corpus = Corpus(tmp_path / "[b-d].txt")
    assert corpus.notes == ["the text format was guessed: running"]
    (tmp_path / "a.txt").write_text(SENTENCES)
    (tmp_path / "e.jsonl").write_text('{"text": "One. Two."}')
    corpus = Corpus(tmp_path / "[a-e].*")
    assert (
        "guessed: running, though 1 of 4 files look otherwise, such as "
        in (corpus.notes[0])
    )
    assert f"{tmp_path / 'a.txt'}; name it by" in corpus.notes[0]
    formats = {document.text_format for document in corpus.documents()}
    assert formats == {"running"}
    assert len(list(corpus.documents())) == 5
    assert Corpus(tmp_path / "a.txt").reader.text_format == "sentences"
    for named in (
        Corpus(tmp_path / "[a-d].txt", "sentences"),
        Corpus(tmp_path / "e.jsonl"),
    ):
        assert named.notes == []
    # Of a large corpus, some files from all its places.
    monkeypatch.setattr(documents, "_HEADS", 2)
    assert "of 2 files" in Corpus(tmp_path / "[a-d].txt").notes[0]


def test_json_of_any_name(tmp_path):
    """Its beginning tells, in a file of any ending, beside other files."""
    texts = ["One. Two.", "Three\n\nFour"]
    lines = [json.dumps({"id": 1, "text": text}) for text in texts]
    for name, content, compress in (
        ("wiki_00", "\n".join(lines), bytes),
        ("a.txt", "\n \n" + "\n\n".join(lines), bytes),
        ("b.log", "\ufeff" + "\r\n".join(lines), bytes),
        ("wiki_00.gz", "\n".join(lines), gzip.compress),
        ("long", json.dumps({"t": "x" * (1 << 17)} | {"text": "Z."}), bytes),
    ):
        path = tmp_path / name
        path.write_bytes(compress(content.encode()))
        corpus = Corpus(path)
        expected = [["Z."]] if name == "long" else [["One.", "Two."]]
        assert read(path)[:1] == expected, name
        assert corpus.notes == ["the text format was guessed: jsonl"], name
        assert corpus.reader.text_format == "jsonl", name
    (tmp_path / "c.txt").write_text(SENTENCES)
    corpus = Corpus([tmp_path / "c.txt", tmp_path / "wiki_00"])
    assert corpus.notes == [
        "the text format was guessed: sentences; jsonl for files that begin "
        f"so, 1 of 2, such as {tmp_path / 'wiki_00'}"
    ]
    assert len(list(corpus.documents())) == 4
    # What only looks like JSON is text, and a given format holds.
    for text in ("{{Infobox}} is here.", "[1] One is here.", "{a: b} is."):
        (tmp_path / "c.txt").write_text(text)
        assert read(tmp_path / "c.txt") == [[text]], text
    assert read(tmp_path / "wiki_00", text_format="sentences")[0] == lines


def test_tags_that_end_documents(tmp_path):
    """The tag of the first line, in running text and in sentences."""
    path = tmp_path / "wiki_00"
    for begin, end in (
        ('<doc id="1" url="https://x/?a=1" title="A > B">', "</doc>"),
        ("<page>", "</page>"),
        ("<text lang='de'>", "</text>"),
    ):
        bodies = ["Title\n\nOne is. Two\n\nThree", "Other\nFour.\nFive.\n"]
        path.write_text("".join(f"\n{begin}\n{x}\n{end}\n" for x in bodies))
        expected = [
            ["Title", "One is.", "Two", "Three"],
            ["Other Four.", "Five."],
        ]
        assert read(path) == expected, begin
        assert Corpus(path).notes == ["the text format was guessed: running"]
        sentences = read(path, text_format="sentences")
        assert sentences[-1] == ["Other", "Four.", "Five."], begin
        assert len(sentences) == 4
    # A file without text says so; a tag in a text is text.
    path.write_text("<doc>\n</doc>\n")
    with pytest.raises(files.TextError, match="holds no text"):
        read(path)
    path.write_text("One.\n<doc>\nTwo.")
    assert read(path, text_format="sentences") == [["One.", "<doc>", "Two."]]


def test_markup_is_told_of(tmp_path):
    book = "*** START OF THE PROJECT GUTENBERG EBOOK X ***"
    for text, expected in (
        (">sp|P1 One\nMKTAYIAK\nMKT\n>sp|P2 Two\nMKV\n", "'>sp|P1 One'"),
        ("<s> a cat . </s>\n<s> a dog . </s>\n", "'<s> a cat . </s>'"),
        ("<!DOCTYPE html>\n<html>\n<p>One.\n", "'<html>'"),
        ("<doc>\n<p>\nOne.\n</p>\n</doc>\n", "'<p>'"),
        (f"A book\n\n{book}\n" + 200 * "It was\nso. It is.\n\n", f"'{book}'"),
        (200 * "One is\ntwo. It is.\n" + 3 * "<|end|>\n", "'<|end|>'"),
        (" <unk> is . \n\n It is\n <unk> now . It is .\n", None),
        ("He wrote:\n\n> a quote\n> of two. Yes.\n", None),
        (200 * "One is\ntwo. It is.\n" + "<br>\n", None),
    ):
        (tmp_path / "a.txt").write_text(text)
        for text_format in ("auto", "running", "sentences"):
            guess = " ".join(Corpus(tmp_path / "a.txt", text_format).notes)
            assert ("warning: lines of markup" in guess) == bool(expected), text
            assert expected is None or f"such as {expected} in" in guess


def test_few_ends_of_sentences(tmp_path):
    """A line is a sentence, or all of a text, and no mark tells."""
    path = tmp_path / "a.txt"
    for text, warned in (
        ("".join(f"the film number {n} was fine\n" for n in range(99)), True),
        ("".join(f"MKV{n % 7 * 'LAGVES'}\n\n" for n in range(99)), True),
        ("It was a day\nof rain. We\nwent.\n\n" * 30, False),
        ("你好。他说：“好！”再见\n\n" * 99, False),
    ):
        path.write_text(text)
        corpus = Corpus(path)
        assert corpus.reader.text_format == "running"
        notes = " ".join(corpus.notes)
        assert ("give --text-format sentences" in notes) == warned, text
        assert Corpus(path, "sentences").notes == []


def test_long_lines(tmp_path, monkeypatch):
    """They are cut at blanks, whatever the chunks, in bounded memory."""
    path = tmp_path / "a.txt"
    words = [f"word{i}" for i in range(99)]
    path.write_text(" ".join(words) + "\n\nshort one\n" + "x" * 70)
    cut = []
    for size in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(compression, "CHUNK_BYTES", size)
        cut.append(list(lines.read_lines(str(path), "utf-8", longest=30)))
    assert cut[0] == cut[1] == cut[2] == cut[3]
    assert max(map(len, cut[0])) == 30
    assert cut[0][-3:] == ["x" * 30, "x" * 30, "x" * 10]
    assert " ".join(cut[0][:-5]) == " ".join(words)
    monkeypatch.undo()

    path.write_text(" ".join(f"word{i}" for i in range(2_000_000)))
    chunks = []

    def read_chunks(*arguments):
        for chunk in compression.read_chunks(*arguments):
            chunks.append(len(chunk))
            yield chunk

    monkeypatch.setattr(lines, "read_chunks", read_chunks)
    corpus = Corpus(path)
    assert len(chunks) == 1
    tracemalloc.start()
    longest = max(len(document.text) for document in corpus.documents())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert longest < 2_000_000 and peak < path.stat().st_size


def test_bad_text(tmp_path):
    """Refused, replaced or left out, and counted."""
    broken = ["{", "7" * 5000, "[" * 100_000, '{"text": 3}']
    text = json.dumps({"text": "Fine."})
    (tmp_path / "a.jsonl").write_text("\n".join([*broken, text]))
    (tmp_path / "b.txt").write_bytes(b"One.\nTw\xffo \xfe.\nThree.\n")
    (tmp_path / "c.txt").write_text("\n")
    for choice, sentences, counts in (
        ("replace", ["One.", "Tw\ufffdo \ufffd.", "Three."], (2, 4, 1)),
        ("skip", ["One.", "Three."], (0, 5, 1)),
    ):
        corpus = Corpus(tmp_path / "*", "sentences", on_bad_text=choice)
        log = files.ReadLog()
        found = [
            document.sentences()
            for path in corpus.files
            for document in corpus.reader._replace(knows_names=True).documents(
                path, log
            )
        ]
        assert found == [["Fine."], sentences]
        names = ("replaced_characters", "skipped_lines", "empty_files")
        assert tuple(log.bad_text[name] for name in names) == counts
        assert sorted(log.digests) == corpus.files
    # A U+FFFD of the text itself is no fault.
    (tmp_path / "d.txt").write_text("\ufffd.", encoding="utf-8")
    assert read(tmp_path / "d.txt", on_bad_text="skip") == [["\ufffd."]]


def test_json_lines_that_are_too_long(tmp_path, monkeypatch):
    """They cannot be cut: refused with a number, or left out and counted."""
    path = tmp_path / "a.jsonl"
    texts = ["One.", "x" * 60, "y" * 200, "Two."]
    path.write_text("".join(f"{json.dumps({'text': x})}\n" for x in texts))
    monkeypatch.setattr(rows, "MOST_CHARACTERS", 50)
    for size in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(compression, "CHUNK_BYTES", size)
        with pytest.raises(
            files.TextError, match=r"a.jsonl:2: .* more than 50"
        ):
            read(path)
        for choice in ("skip", "replace"):
            corpus, log = Corpus(path, on_bad_text=choice), files.ReadLog()
            found = [document.text for document in corpus.documents(log)]
            assert found == ["One.", "Two."]
            assert log.bad_text == {"skipped_lines": 2}


def test_files_that_are_no_text(tmp_path):
    """NUL in any place, and the bytes of a program."""
    path = tmp_path / "a.txt"
    for content, line in (
        (b"\0" * 99, 1),
        ("One.\nTwo.\n".encode("utf-16-le"), 1),
        (b"One.\r\nT\0\0\0wo.\n", 2),
        (b"One.\nTwo.\n" + b"\0" * 99, 3),
    ):
        path.write_bytes(content)
        with pytest.raises(
            files.TextError, match=f"a.txt:{line}: .* are NUL"
        ) as x:
            read(path)
        assert "\n" not in str(x.value)
    path.write_bytes(b"One.\nT\0\0o.\nThree.\nF\0our.")
    for choice, expected in (
        ("skip", ["One.", "Three.", "F\0our."]),
        ("replace", ["One.", "T\ufffd\ufffdo.", "Three.", "F\0our."]),
    ):
        found = read(path, text_format="sentences", on_bad_text=choice)
        assert found == [expected]
    generator = random.Random(0)
    for _ in range(20):
        path.write_bytes(generator.randbytes(3000))
        with pytest.raises(files.TextError, match="a.txt"):
            read(path)
        for choice in ("skip", "replace"):
            for sentences in read(path, on_bad_text=choice):
                text = "".join(sentences)
                assert text.count("\0") < len(text) / 4


def test_digests_are_those_of_the_files(tmp_path):
    """Compressed ones too, and bytes behind the compressed data."""
    log = files.ReadLog()
    for name, compress, rest in (
        ("a.txt", bytes, b""),
        ("b.txt.gz", gzip.compress, b""),
        ("c.txt.xz", lzma.compress, b""),
        ("d.txt.bz2", bz2.compress, b"more"),
    ):
        path = tmp_path / name
        path.write_bytes(compress(SENTENCES.encode() * 9) + rest)
        reader = Corpus(path, "sentences").reader
        assert len(list(reader.documents(str(path), log))) == 10
        assert log.digests[str(path)] == sha256_of(path)


def test_files_of_patterns(tmp_path):
    """Several, links in circles, and what names no file."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name in "cab":
        (folder / f"{name}.txt").write_text(name)
    one, other = str(folder / "a.txt"), str(folder / "b.txt")
    assert files.find_files([other, str(folder / "[ab].txt")]) == [one, other]
    spelled = os.path.join(folder, "..", "text", "a.txt")
    assert files.find_files([one, spelled, os.path.relpath(one)]) == [one]
    for name in ("round", "and_round"):  # together 2 ** 40 ways
        (folder / name).symlink_to(folder)
    (folder / "same.txt").symlink_to(one)
    found = files.find_files(str(tmp_path / "**" / "*.txt"))
    names = [os.path.relpath(path, folder) for path in found]
    assert names == ["a.txt", "b.txt", "c.txt"]
    found = files.find_files(str(tmp_path / "**" / "t*" / "**" / "[a-b]*"))
    assert found == [one, other]
    (folder / "gone.txt").symlink_to(folder / "nothing")
    for pattern in ("gone.txt", "*.txt"):
        with pytest.raises(FileNotFoundError, match="gone.txt: .* no file"):
            files.find_files(folder / pattern)
    for pattern in (str(folder), f"{folder}/"):
        with pytest.raises(ValueError, match=r"not a directory.*\*\.txt"):
            files.find_files(pattern)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        files.find_files([one, str(folder / "x*")])
    os.mkfifo(folder / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe, a terminal or a"):
        files.find_files(folder / "pipe")


def test_files_in_a_bucket(bucket):
    for name, content in (
        ("a/b.txt", SENTENCES.encode()),
        ("a/c.txt.gz", gzip.compress(SENTENCES.encode())),
        ("a/d.md", b"no"),
    ):
        path = as_path(bucket) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = [f"{bucket}/a/b.txt", f"{bucket}/a/c.txt.gz"]
    assert files.find_files(f"{bucket}/a/*.txt*") == names
    assert files.find_files(names[0]) == names[:1]
    assert read(f"{bucket}/*/*.txt*") == read(names[0]) * 2
    assert len(read(names[1])) == 2
    assert files.sizes_of(names)[0] == len(SENTENCES)
    for pattern, error, message in (
        ("a/x.txt", FileNotFoundError, "no file matches"),
        ("a", ValueError, "not a directory"),
        ("**/b.txt", ValueError, "cannot be used in a bucket"),
    ):
        with pytest.raises(error, match=message):
            files.find_files(f"{bucket}/{pattern}")


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
        monkeypatch.setattr(compression, "CHUNK_BYTES", chunk)
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
        ("a.jsonl", fine + "[1]", {}, "a.jsonl:3: the JSON is an array"),
        ("a.txt", '[{"text": "a"}]', {}, r"a.txt:1: .* array.* jq -c '.\[\]'"),
        ("a.txt", '[\n {\n "text": "a"\n}]', {}, r"a.txt:1: .* jq -c '.\[\]'"),
        ("a.txt", '{\n "text": "a"\n}', {}, "a.txt:1: .* jq -c . FILE"),
        ("a.jsonl", fine + "[" * 100_000, {}, "a.jsonl:3: .* not JSON"),
        ("a.jsonl", fine + "7" * 5000, {}, "a.jsonl:3: .* not JSON"),
        ("a.csv", "", {}, "a.csv: the file holds no text"),
        ("a.csv", "text\n", {}, "a.csv: the file holds no text"),
        (
            "a.csv",
            "id,note\n1,a",
            {},
            "no column 'text' of texts. Columns: id, note. Name yours by `text",
        ),
        (
            "a.csv",
            "\nid,text\n1,a\n2",
            {},
            "row in line 4 is broken .its fields are 1 and the columns 2",
        ),
        ("a.csv", 'text\n"a" b\nc', {}, "line 2 is broken .',' expected"),
        (
            "a.csv",
            'text\n"a\nb',
            {},
            "lines 2 to 3 is broken .unexpected end of",
        ),
        (
            "a.csv",
            "text,label\nhello,1,\nhello, world,1\n",
            {},
            "row in line 3 is broken .its fields are 3.*must be quoted",
        ),
        ("a.csv", "text,text\na,b", {}, "2 columns are named 'text'"),
        ("a.txt", "a", {"encoding": "zlib"}, "`encoding` is not one"),
        ("a.txt", "a", {"encoding": "hex"}, "`encoding` is not one"),
        (
            "a.txt",
            "ab",
            {"encoding": "utf-16"},
            "a.txt: invalid utf-16 .UTF",
        ),
        ("a.txt", "a", {"on_bad_text": "no"}, "`on_bad_text` must be one of"),
        ("a.txt", "a", {"text_format": "html"}, "`text_format` must be one of"),
        ("a.txt", "a", {"encoding": "utf-9"}, "`encoding` is not one"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / name, **options)
