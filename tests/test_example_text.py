"""The text that examples/tasks.py pretrains on, and what it runs again."""

import json
import lzma
import random

import pytest

from examples import tasks

LONG = " ".join(f"word{number}" for number in range(36)) + "."
SHORT = "So it did."


def again(text):
    return tasks.say_again(text, random.Random(0)).split("\n")[:-1]


def test_sentences_follow_themselves_with_words_left_out():
    lines = again("\n".join([LONG] * 200))
    assert lines[::2] == [LONG] * 200
    shorter = lines[1::2]
    assert len(shorter) == len(set(shorter)) == 200
    words = LONG.split()
    for line in shorter:
        left = iter(words)
        assert all(word in left for word in line.split())
    kept = sum(len(line.split()) for line in shorter)
    assert 0.73 < kept / (len(words) * len(shorter)) < 0.77


@pytest.mark.parametrize("sentence", [SHORT, " ".join(["many"] * 41) + "."])
def test_sentences_of_few_or_very_many_words_are_said_once(sentence):
    assert again("\n".join([sentence] * 50)) == [sentence] * 50


def test_lines_of_books_are_joined_and_documents_stay_apart():
    text = f"{SHORT} It was\nso again. Yes.\n\nTitle\nNo."
    assert again(text) == [
        SHORT,
        "It was so again.",
        "Yes.",
        "",
        "Title",
        "No.",
    ]


def test_the_same_text_comes_out_each_time(tmp_path):
    (tmp_path / "lm").mkdir()
    with lzma.open(tmp_path / "lm" / "novel_train.txt.xz", "wt") as file:
        file.write("\n".join([LONG] * 40))
    written = []
    for name in ("one", "other"):
        tasks.write_text(tmp_path, tmp_path / name)
        written.append((tmp_path / name / "novel_train.txt").read_text())
    assert written[0] == written[1]
    assert written[0].count("\n") == 80


def test_no_text_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match="there is no text below"):
        tasks.write_text(tmp_path, tmp_path / "text")


def test_a_run_that_took_fewer_steps_at_once_is_not_run_again(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    had = {"training": {"steps": 300, "steps_per_loop": 30}}
    (tmp_path / "run.json").write_text(json.dumps(had))
    assert tasks.is_done(tmp_path, {"steps": 300, "steps_per_loop": 50})
    assert not tasks.is_done(tmp_path, {"steps": 400, "steps_per_loop": 50})
