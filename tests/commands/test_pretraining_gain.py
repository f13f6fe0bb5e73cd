"""`benchmarks/pretraining_gain.py`: its texts, its commands and its table."""

import json
import lzma
import random

import pytest

from benchmarks import pretraining_gain as gain
from examples import commands
from xlnet_tf.training.config import TrainingConfig

LONG = " ".join(f"word{number}" for number in range(36)) + "."
SHORT = "So it did."


def test_sentences_are_repeated_with_words_left_out():
    made = gain.repeated(["\n".join([LONG] * 200)], random.Random(0))
    lines = made.strip().split("\n")
    assert lines[::2] == [LONG] * 200
    words = LONG.split()
    for line in lines[1::2]:
        left = iter(words)
        assert all(word in left for word in line.split())
    kept = sum(len(line.split()) for line in lines[1::2])
    assert 0.73 < kept / (len(words) * 200) < 0.77
    once = f"{SHORT} It was\nso.\n\n" + " ".join(["many"] * 41) + "."
    made = gain.repeated([once], random.Random(0)).strip().split("\n")
    assert made == [SHORT, "It was so.", "", " ".join(["many"] * 41) + "."]


def test_groups_of_ten_sentences_are_shuffled():
    sentences = [f"It was number {number}." for number in range(95)]
    texts = ["\n\n".join(sentences[:60]), " ".join(sentences[60:])]
    made = gain.shuffled(texts, random.Random(0)).strip()
    groups = [group.split("\n") for group in made.split("\n\n")]
    in_order = [sentences[i : i + 10] for i in range(0, 95, 10)]
    assert sorted(groups) == sorted(in_order) and groups != in_order


def test_the_commands_follow_each_other_and_none_runs_twice(
    tmp_path, monkeypatch
):
    (tmp_path / "lm" / "train").mkdir(parents=True)
    with lzma.open(tmp_path / "lm" / "wiki_train.txt.xz", "wt") as file:
        file.write("\n".join([LONG] * 40))
    (tmp_path / "lm" / "train" / "one.txt").write_text(SHORT)
    assert [len(text) > 99 for text in gain.read_text(tmp_path)] == [
        True,
        False,
    ]
    with pytest.raises(SystemExit, match="there is no text below"):
        gain.read_text(tmp_path / "lm")
    ran = []

    def run(*command):
        command = [str(part) for part in command]
        ran.append(command[1:])
        options = dict(zip(command[2::2], command[3::2], strict=False))
        output = tmp_path / options["--output"]
        (output if output.suffix == "" else output.parent).mkdir(exist_ok=True)
        if "xlnet_tf.train" in command:
            (output / "preset").mkdir(exist_ok=True)
            weights = output / "preset" / "model.weights.h5"
            weights.write_text(str(len(ran)))

    monkeypatch.setattr(commands, "run", run)
    preset = gain.pretrain(
        gain.read_settings(), tmp_path, tmp_path / "out", 100
    )
    names = [command[0].split(".")[-1] for command in ran]
    assert names == [
        *("train_tokenizer", "build_records", "train"),
        *("build_records", "train", "train"),
    ]
    trained = [command for command in ran if command[0].endswith(".train")]
    for stage, command, steps, weight in zip(
        ("copying", "comparing", "following"),
        trained,
        ("100", "50", "25"),
        (None, 5.0, 1.0),
        strict=True,
    ):
        assert command[command.index("--steps") + 1] == steps
        settings = json.loads((tmp_path / f"out/{stage}.json").read_text())
        assert settings.get("next_sentence_weight") == weight
        TrainingConfig(**settings)
    assert str(tmp_path / "out/comparing/preset") in trained[-1]
    assert preset == tmp_path / "out/following/preset"
    gain.pretrain(gain.read_settings(), tmp_path, tmp_path / "out", 100)
    assert len(ran) == 6
    # Weights that changed at the same path are another start.
    (tmp_path / "out/comparing/preset/model.weights.h5").write_text("other")
    gain.pretrain(gain.read_settings(), tmp_path, tmp_path / "out", 100)
    assert len(ran) == 7


def test_table():
    def runs(*values):
        return [
            {
                "metric": "f1",
                "examples": 5061,
                "metrics": {"f1": v, gain.ALSO: 1},
            }
            for v in values
        ]

    starts = {"random": runs(0.1, 0.4, 0.2), "pretrained": runs(0.5, 0.3, 0.25)}
    lines = gain.table({"squad-2.0": starts}).splitlines()
    assert lines[2] == (
        "| squad-2.0 | 5,061 | f1 | 0.200 (0.100 to 0.400) "
        "| 0.300 (0.250 to 0.500) | +0.100 |"
    )
    assert lines[3].startswith(f"| squad-2.0 | 5,061 | {gain.ALSO} | 1.000")
