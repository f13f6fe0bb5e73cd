"""`examples/build_preset.py`: its texts, its commands, its errors."""

import json
import lzma
import random
import re

import pytest
import yaml

from examples import arrangements
from examples import build_preset
from examples import commands
from tests.support.commands import refused
from xlnet_tf.config import XLNetConfig
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings

LONG = " ".join(f"word{number}" for number in range(36)) + "."
SHORT = "So it did."


def test_sentences_are_repeated_with_words_left_out():
    lines = list(arrangements.repeated([[LONG] * 200], random.Random(0)))
    assert lines[:-1:2] == [LONG] * 200 and lines[-1] == ""
    words = LONG.split()
    for line in lines[1:-1:2]:
        left = iter(words)
        assert all(word in left for word in line.split())
    kept = sum(len(line.split()) for line in lines[1:-1:2])
    assert 0.73 < kept / (len(words) * 200) < 0.77
    # Too short, and too long.
    once = [SHORT, " ".join(["many"] * 41) + "."]
    lines = list(arrangements.repeated([once, once], random.Random(0)))
    assert lines == [*once, "", *once, ""]


def test_groups_of_ten_sentences_are_shuffled():
    sentences = [f"It was number {number}." for number in range(95)]
    documents = [sentences[:60], sentences[60:]]
    lines = list(arrangements.shuffled(documents, random.Random(0)))
    text = "\n".join(lines).strip()
    groups = [group.split("\n") for group in text.split("\n\n")]
    in_order = [sentences[i : i + 10] for i in range(0, 95, 10)]
    assert sorted(groups) == sorted(in_order) and groups != in_order


def test_versions_of_one_sentence_follow_each_group():
    sentences = [LONG.replace("word", f"w{i}x") for i in range(30)]
    lines = list(arrangements.versions([sentences], random.Random(0)))
    text = "\n".join(lines).strip()
    groups = [group.split("\n") for group in text.split("\n\n")]
    natural, made = groups[::2], groups[1::2]
    assert sorted(natural) == sorted(
        sentences[i : i + 10] for i in range(0, 30, 10)
    )
    for group, lines in zip(natural, made, strict=True):
        assert len(set(lines)) == 8
        word = lines[0].split()[0].split("x")[0]
        (whole,) = (x for x in group if x.startswith(f"{word}x"))
        for line in lines:
            left = iter(whole.split())
            assert all(word in left for word in line.split())
            assert 0.3 < len(line.split()) / 36 < 1
    # Without a sentence of fitting length there are none.
    lines = list(arrangements.versions([[SHORT] * 5], random.Random(0)))
    assert lines == [SHORT] * 5 + [""]


def test_pairs_are_graded_by_the_words_that_they_share():
    generator = random.Random(1)
    words = [f"{number}word" for number in range(400)]
    document = [
        " ".join(generator.choices(words, k=12)) + "." for _ in range(500)
    ]
    header, *lines = arrangements.graded([document], random.Random(0))
    assert header.split("\t") == ["sentence1", "sentence2", "score"]
    rows = [line.split("\t") for line in lines]
    scores = [float(score) for _, _, score in rows]
    for low in range(5):
        assert sum(low <= score <= low + 1 for score in scores) > 20
    for a, b, score in rows:
        a, b = (set(x.replace(".", "").split()) for x in (a, b))
        assert (float(score) > 0) == bool(a & b)
    # A rare word tells more than one that is everywhere.
    cosine = arrangements._Cosine(
        [["the", "cat"], ["the", "dog"], ["the", "end"], ["an", "end"]]
    )
    assert cosine(["Cat", "end"], ["the", "cats"]) == 0
    rare = cosine(["the", "cat"], ["cat", "end"])
    frequent = cosine(["the", "cat"], ["the", "end"])
    assert (
        0
        < frequent
        < rare
        < cosine(["the", "cat"], ["The", "cat!"])
        == (pytest.approx(1))
    )


def test_names_are_marked_whatever_their_capitals():
    said = "When Ann of Cleves met Bob, the queen of spades was late in Ghent."
    other = "Then they met a queen, and I wrote that the late bob was there."
    lines = list(arrangements.named([[said, other] * 500], random.Random(0)))
    sentences = [
        [line.split("\t") for line in sentence.split("\n")]
        for sentence in "\n".join(lines).strip().split("\n\n")
    ]
    names = [x for x in sentences if x[0][0].lower() == "when"]
    assert len(names) == 500 and 200 < len(sentences) - len(names) < 300
    for sentence in sentences:
        found = [(word.lower(), tag) for word, tag in sentence if tag != "O"]
        assert found == [
            *(("ann", "B-name"), ("of", "I-name"), ("cleves", "I-name")),
            # Half of the time `bob` is written small: then it is no name.
            ("ghent", "B-name"),
        ] * (sentence in names)
    written = [" ".join(word for word, _ in sentence) for sentence in names]
    as_it_is = " ".join(re.findall(r"\w+|[^\w\s]", said))
    for form, share in ((str, 0.4), (str.lower, 0.3), (str.upper, 0.1)):
        assert share - 0.06 < written.count(form(as_it_is)) / 500 < share + 0.06
    assert len(set(written)) > 30


def test_the_commands_follow_each_other_and_none_runs_twice(
    tmp_path, monkeypatch
):
    with lzma.open(tmp_path / "one.txt.xz", "wt") as file:
        file.write("\n".join([LONG] * 40))
    ran = []

    def run(*command):
        command = [str(part) for part in command]
        ran.append(command[1:])
        options = dict(zip(command[2::2], command[3::2], strict=False))
        output = tmp_path / options["--output"]
        folder = output if output.suffix == "" else output.parent
        folder.mkdir(parents=True, exist_ok=True)
        kinds = {"xlnet_tf.train": "preset", "xlnet_tf.finetune": "best"}
        if kind := kinds.get(command[1]):
            (output / kind).mkdir(exist_ok=True)
            weights = output / kind / "model.weights.h5"
            weights.write_text(str(len(ran)))

    monkeypatch.setattr(commands, "run", run)
    output = tmp_path / "out"

    def build():
        text = [str(tmp_path / "one.txt.xz")]
        recipe = build_preset.read_recipe()
        return build_preset.build(recipe, text, output, 0.01)

    preset = build()
    names = [command[0].split(".")[-1] for command in ran]
    assert names == [
        *("train_tokenizer", "build_records", "train"),
        *("build_records", "train", "build_records", "train", "train"),
        *("finetune", "finetune", "train", "train"),
    ]
    lengths = [
        command[command.index("--sequence-length") + 1]
        for command in ran
        if command[0].endswith("build_records")
    ]
    assert lengths == ["64", "128", "64"]
    trained = [command for command in ran if command[0].endswith(".train")]
    for stage, command, steps, weight in zip(
        ("copying", "reading", "comparing", "comparing_longer")
        + ("settling", "settling_longer"),
        trained,
        ("20", "80", "30", "60", "10", "25"),
        (None, None, 2.0, 5.0, 5.0, 5.0),
        strict=True,
    ):
        assert command[command.index("--steps") + 1] == steps
        settings = json.loads((output / f"{stage}.json").read_text())
        assert settings.get("next_sentence_weight") == weight
        assert settings["warmup_steps"] == min(200, int(steps) // 4)
        PretrainingSettings(**settings)
    XLNetConfig.from_json(output / "model.json")
    assert str(output / "reading" / "preset") in trained[2]
    labelled = [command for command in ran if "xlnet_tf.finetune" in command]
    for stage, command, start, task, begin in zip(
        ("grading", "naming"),
        labelled,
        ("comparing_longer/preset", "grading/best"),
        ("regression", "ner"),
        ("sentence1\tsentence2\t", "word"),
        strict=True,
    ):
        assert command[command.index("--task") + 1] == task
        assert str(output / start) in command
        examples = command[command.index("--data") + 1]
        assert (tmp_path / examples).read_text().lower().startswith(begin)
        FinetuningSettings(**json.loads((output / f"{stage}.json").read_text()))
    assert str(output / "naming" / "best") in trained[4]
    assert preset == output / "settling_longer" / "preset"
    build()
    assert len(ran) == 12
    # Weights that changed at the same path are another start, of the rest.
    (output / "reading/preset/model.weights.h5").write_text("other")
    build()
    assert len(ran) == 18


def test_errors_are_one_line(tmp_path, capsys):
    recipe = build_preset.read_recipe()
    cases = {
        "[1]": "a recipe has the keys",
        yaml.safe_dump({**recipe, "step": 1}): "a recipe has the keys",
        yaml.safe_dump(
            {**recipe, "stages": {"one": {"arrangement": "sorted"}}}
        ): "`arrangement` of the stage one must be one of repeated",
        yaml.safe_dump(
            {**recipe, "stages": {"one": {"arrangement": "repeated"}}}
        ): "the stage one has no `steps` of `pretraining`",
        yaml.safe_dump(
            {**recipe, "stages": {"one": recipe["stages"]["grading"]}}
        ): "the first stage has no weights to fine-tune",
        yaml.safe_dump({**recipe, "stages": {}}): "`stages` must have entries",
        yaml.safe_dump({**recipe, "stages": ["a"]}): "`stages` must have",
        yaml.safe_dump({**recipe, "stages": {"one": 1}}): "the stage one must",
        "{": "is not YAML",
    }
    file = tmp_path / "recipe.yaml"
    argv = ["--text", "none.txt", "--output", str(tmp_path / "out")]
    for text, message in cases.items():
        file.write_text(text)
        line = refused(capsys, build_preset.main, *argv, "--recipe", file)
        assert message in line
    for wrong, message in (
        (["--scale", "0"], "`--scale` must be above 0"),
        (["--recipe", str(tmp_path / "none.yaml")], "No such file"),
        ([], "none.txt"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commands, "run", None)
            line = refused(capsys, build_preset.main, *argv, *wrong)
        assert message in line
