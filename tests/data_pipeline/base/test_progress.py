"""Progress of long work: bars for terminals, lines for logs, silence."""

import io
import sys

import pytest

from data_pipeline import build_records
from data_pipeline import train_tokenizer
from data_pipeline.base import progress
from tests.support.artefacts import TOKENIZER


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """list of one number, the seconds that have passed."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_now_and_then(clock, capsys):
    for value in progress.track(range(6), "reading", "rows", initial=2):
        clock[0] += 20
        assert 0 <= value < 6
    with progress.Progress("text", "B", 4_000_000) as bar:
        for seconds, size in ((29, 1e6), (1, 1e6), (29, 1e6), (200, 1e6)):
            clock[0] += seconds
            bar.update(int(size))
    with progress.Progress("guessing", "words") as bar:
        clock[0] += 120
        bar.update(1200)
    assert capsys.readouterr().err.splitlines() == [
        "reading: 4 of 8 rows, 50%, 80 s left",
        "reading: 6 of 8 rows, 75%, 40 s left",
        "reading: 8 of 8 rows, 100%, 0 s left",
        "text: 2 of 4 MB, 50%, 30 s left",
        "text: 4 of 4 MB, 100%, 0 s left",
        "guessing: 1,200 words in 2 min",
    ]


def test_short_work_and_quiet_work_are_silent(clock, capsys, monkeypatch):
    def work(shown=True):
        with progress.Progress("reading", "rows", 3, shown=shown) as bar:
            for _ in range(3):
                clock[0] += 0.5 if shown else 100
                bar.update()

    for shown in (True, False):
        work(shown)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    work(shown=False)
    for value in progress.track("abc", "reading", "rows"):
        assert value in "abc"
    assert sys.stderr.getvalue() == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setattr(progress, "_BAR_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress.track("abc", "reading", "rows")) == [*"abc"]
    text = sys.stderr.getvalue()
    assert text.startswith("\rreading:") and "/3 [" in text
    assert "\n" not in text  # it is taken away at the end


def test_durations():
    for seconds, text in ((89, "89 s"), (600, "10 min"), (9000, "2.5 h")):
        assert progress.duration(seconds) == text


def test_text_tells_how_far_it_is(told, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over a lazy dog. " * 400)
    records = ("--input", text, "--tokenizer", TOKENIZER, "--processes", 1)
    records += ("--sequence-length", 64, "--validation-fraction", 0)
    output = ("--output", tmp_path / "records", "--overwrite")
    for main, arguments, expected in (
        (build_records.main, (*records, *output), "text: 0 of 0 MB, 100%"),
        (
            train_tokenizer.main,
            ("--input", text, "--output", tmp_path / "x.model")
            + ("--vocabulary-size", 50),
            "training on it, which takes from seconds to minutes\n",
        ),
    ):
        assert expected in told(main, *arguments)
        assert told(main, *arguments, "--quiet") == ""
