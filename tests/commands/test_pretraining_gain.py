"""The text that benchmarks/pretraining_gain.py pretrains on, and what it runs again."""

import json
import lzma
import random

import pytest

from benchmarks import pretraining_gain as tasks
from xlnet_tf.files import digest_of_weights

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


def test_pieces_are_ten_sentences_that_follow_each_other():
    sentences = [f"It was number {number}." for number in range(95)]
    book = "\n\n".join(sentences[:60])  # blank lines between paragraphs
    article = " ".join(sentences[60:])
    made = tasks.in_pieces([book, article], random.Random(0))
    pieces = [piece.split("\n") for piece in made.strip().split("\n\n")]
    in_order = [sentences[i : i + 10] for i in range(0, 95, 10)]
    assert sorted(pieces) == sorted(in_order)
    assert pieces != in_order
    assert made == tasks.in_pieces([book, article], random.Random(0))


def test_text_is_read_from_all_files(tmp_path):
    (tmp_path / "lm" / "novels" / "train").mkdir(parents=True)
    with lzma.open(tmp_path / "lm" / "wiki_train.txt.xz", "wt") as file:
        file.write(LONG)
    (tmp_path / "lm" / "novels" / "train" / "one.txt").write_text(SHORT)
    (tmp_path / "lm" / "wiki_test.txt").write_text("Not to be read.")
    assert tasks.read_text(tmp_path) == {
        "wiki_train.txt": LONG,
        "one.txt": SHORT,
    }


def test_no_text_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match="there is no text below"):
        tasks.read_text(tmp_path)


def test_the_stages_follow_each_other_and_none_is_done_twice(
    tmp_path, monkeypatch
):
    (tmp_path / "lm").mkdir()
    with lzma.open(tmp_path / "lm" / "novel_train.txt.xz", "wt") as file:
        file.write("\n".join([LONG] * 40))
    ran = []

    def run(*command):
        rest = [part for part in command[2:] if part != "--overwrite"]
        options = dict(zip(rest[::2], rest[1::2], strict=True))
        ran.append((command[1].split(".")[-1], options))
        if "train" in command[1].split("."):
            preset = options["--output"] / "preset"
            preset.mkdir(parents=True)
            (preset / "config.json").write_text("{}")
        elif command[1].endswith("build_records"):
            options["--output"].mkdir()
            (options["--output"] / "manifest.json").write_text("{}")

    monkeypatch.setattr(tasks, "run", run)
    preset = tasks.pretrain(tmp_path, tmp_path / "out", 100)
    assert [name for name, _ in ran] == [
        "train_tokenizer",
        "build_records",
        "train",
        "build_records",
        "train",
        "train",
    ]
    first, *others = (options for name, options in ran if name == "train")
    assert first["--steps"] == 100 and "--preset" not in first
    before = first
    for stage, steps, weight in zip(others, (50, 25), (5.0, 1.0), strict=True):
        assert stage["--steps"] == steps
        assert stage["--preset"] == before["--output"] / "preset"
        assert stage["--output"] != before["--output"]
        settings = json.loads(stage["--training"].read_text())
        assert settings["next_sentence_weight"] == weight
        before = stage
    assert preset == before["--output"] / "preset"
    assert tasks.pretrain(tmp_path, tmp_path / "out", 100) == preset
    assert len(ran) == 6


def test_a_run_that_took_fewer_steps_at_once_is_not_run_again(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    had = {"training": {"steps": 300, "steps_per_loop": 30}}
    (tmp_path / "run.json").write_text(json.dumps(had))
    assert tasks.is_done(tmp_path, {"steps": 300, "steps_per_loop": 50})
    assert not tasks.is_done(tmp_path, {"steps": 400, "steps_per_loop": 50})


def test_a_run_from_other_weights_is_not_taken_for_done(tmp_path):
    preset = tmp_path / "preset"
    preset.mkdir()
    (preset / "spiece.model").write_bytes(b"first")
    (tmp_path / "results.json").write_text("{}")
    had = {
        "preset_weights": digest_of_weights(preset),
        "training": {"steps": 300},
    }
    (tmp_path / "run.json").write_text(json.dumps(had))
    assert tasks.is_done(tmp_path, {"steps": 300}, preset)
    # Trained anew, at the same path.
    (preset / "spiece.model").write_bytes(b"other")
    assert not tasks.is_done(tmp_path, {"steps": 300}, preset)
    # Of random weights only the config counts.
    assert tasks.is_done(tmp_path, {"steps": 300})
