"""The convert command: from every format to every other, and refusals."""

import json
import shutil

import keras
import numpy as np
import pytest

import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.tokenization.hugging_face import read_tokenizer
from data_pipeline.tokenization.model_file import with_accents
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.conftest import ROOT
from tests.support.commands import refused
from tests.support.equality import assert_equal
from tests.support.oracle import randomize
from tests.support.samples import tiny_model
from xlnet_tf import convert
from xlnet_tf.weights.released import save_tf1
from xlnet_tf.weights.tensor_files import open_arrays

RELEASED = ROOT / "tests" / "golden" / "base"


def run(*arguments):
    return command_line.run(convert.main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    (directory / "spiece.model").write_bytes(tiny_model())
    return read_tokenizer(directory)


@pytest.fixture
def classifier(tmp_path, tokenizer):
    """(a classifier of ours, the preset it was written to)."""
    config = xlnet_tf.XLNetConfig.from_size(
        "tiny",
        num_layers=2,
        hidden_dim=24,
        num_heads=3,
        head_dim=8,
        intermediate_dim=20,
        vocabulary_size=tokenizer.vocabulary_size,
        memory_length=5,
    )
    model = xlnet_tf.XLNetTextClassifier(
        xlnet_tf.XLNetBackbone(config), num_classes=3, labels=["a", "b", "c"]
    )
    randomize(model)
    model.save_to_preset(tmp_path / "keras", tokenizer=tokenizer)
    return model, tmp_path / "keras"


def same_weights(model, other):
    assert_equal(model.trainable_variables, other.trainable_variables)


def test_formats_lead_to_each_other_and_back(
    classifier, tokenizer, tmp_path, capsys
):
    model, preset = classifier
    route = ["hf", "tf1", "hf", "keras", "tf1", "keras"]
    place = preset
    for step, form in enumerate(route):
        target = tmp_path / str(step)
        assert run("--from", place, "--to", target, "--format", form) == 0
        again = xlnet_tf.XLNetTextClassifier.from_preset(target)
        same_weights(again, model)
        assert again.config == model.config
        assert read_tokenizer(target).digest == tokenizer.digest
        place = target
        if step == 0:
            assert again.labels == ["a", "b", "c"]
            values = json.loads((target / "config.json").read_text())
            assert values["id2label"] == {"0": "a", "1": "b", "2": "c"}
    printed = capsys.readouterr().out
    assert "read Hugging Face directory" in printed
    assert "gelu: tanh (the released code computes the tanh form)" in printed
    assert 'gelu: tanh ("ff_activation" is "gelu_new")' in printed
    assert "  spiece.model  " in printed


def test_the_backbone_alone_and_one_of_several_heads(tmp_path, capsys):
    options = ("--from", RELEASED, "--to", tmp_path / "x")
    line = refused(capsys, convert.main, *options)
    assert "several heads: XLNetPretrainer, XLNetTextClassifier 'demo'" in line
    assert not (tmp_path / "x").exists()
    for task in (
        "XLNetBackbone",
        "XLNetTextRegressor",
        "XLNetPretrainer",
        "XLNetSeq2Seq",
    ):
        target = tmp_path / task
        assert run("--from", RELEASED, "--to", target, "--task", task) == 0
        model = getattr(xlnet_tf, task).from_preset(target)
        same_weights(model, type(model).from_preset(RELEASED))
    assert "no tokenizer was found" in capsys.readouterr().out


def test_gelu_can_be_chosen(classifier, tmp_path, capsys):
    _, preset = classifier
    target = tmp_path / "hf"
    run("--from", preset, "--to", target, "--format", "hf", "--gelu", "erf")
    values = json.loads((target / "config.json").read_text())
    assert values["ff_activation"] == "gelu"
    assert "gelu: erf (as asked for with --gelu)" in capsys.readouterr().out
    run("--from", target, "--to", tmp_path / "tf1", "--format", "tf1")
    error = capsys.readouterr().err
    assert "warning: the released code computes the tanh form" in error


def test_a_checkpoint_apart_from_its_config(tmp_path, capsys):
    for file in RELEASED.glob("xlnet_model.ckpt.*"):
        end = file.name.removeprefix("xlnet_model.ckpt")
        shutil.copy(file, tmp_path / f"model.ckpt-900{end}")
    target = ("--to", tmp_path / "out", "--task", "XLNetBackbone")
    assert run("--from", tmp_path, *target) == 1
    assert "without its xlnet_config.json" in capsys.readouterr().err
    config = RELEASED / "xlnet_config.json"
    assert run("--from", tmp_path, *target, "--config", config) == 0
    shutil.rmtree(tmp_path / "out")
    prefix = tmp_path / "model.ckpt-900"
    assert run("--from", prefix, *target, "--config", config) == 0


def test_what_fits_is_taken_when_asked_for(classifier, tmp_path, capsys):
    _, preset = classifier
    run("--from", preset, "--to", tmp_path / "tf1", "--format", "tf1")
    file = tmp_path / "tf1" / "xlnet_config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "n_layer": 3}))
    file.with_name("SHA256SUMS").unlink()
    target = ("--to", tmp_path / "out", "--format", "hf")
    assert run("--from", tmp_path / "tf1", *target) == 1
    error = capsys.readouterr().err
    assert "missing: " in error and "other shapes: " in error
    assert run("--from", tmp_path / "tf1", *target, "--partial") == 0
    assert "layer_2/rel_attn/q/kernel" in capsys.readouterr().err


def test_a_tokenizer_has_the_case_of_the_model(classifier, tmp_path):
    model, _ = classifier
    own = Tokenizer.from_model_proto(tiny_model(), lowercase=True)
    model.save_to_preset(tmp_path / "lower", tokenizer=own)
    model.save_to_preset(tmp_path / "none")
    file = tmp_path / "spiece.model"
    file.write_bytes(tiny_model())
    for source, options, expected in (
        ("lower", [], True),
        ("none", [], False),
        ("none", ["--lowercase"], True),
    ):
        target = tmp_path / f"{source}-{len(options)}"
        argv = ["--from", tmp_path / source, "--to", target, *options]
        assert run(*argv, "--tokenizer", file) == 0
        assert read_tokenizer(target).lowercase is expected


def test_accents_are_kept_by_every_format(classifier, tmp_path, capsys):
    model, _ = classifier
    kept = Tokenizer.from_model_proto(with_accents(tiny_model()))
    model.save_to_preset(tmp_path / "keras", tokenizer=kept)
    source = tmp_path / "keras"
    assert read_tokenizer(source).keep_accents
    for form in ("hf", "tf1", "keras"):
        target = tmp_path / f"from-{source.name}-{form}"
        assert run("--from", source, "--to", target, "--format", form) == 0
        assert read_tokenizer(target).model_proto == kept.model_proto
        said = "preprocess_text with keep_accents=True" in (
            capsys.readouterr().out
        )
        assert said == (form == "tf1")
        source = target


def test_a_directory_with_something_in_it_is_left_alone(classifier, tmp_path):
    _, preset = classifier
    target = tmp_path / "mine"
    target.mkdir()
    (target / "thesis.txt").write_text("all of it")
    assert run("--from", preset, "--to", target) == 1
    assert [f.name for f in target.iterdir()] == ["thesis.txt"]


def test_places_to_write_to(classifier, tmp_path, monkeypatch, capsys):
    """The working directory, a link, the home directory; a file is none."""
    model, preset = classifier
    for name in ("here", "linked", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("linked")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    for form, target, place in (
        ("keras", ".", "here"),
        ("hf", tmp_path / "link", "linked"),
        ("tf1", "~/new", "home/new"),
    ):
        assert run("--from", preset, "--to", target, "--format", form) == 0
        found = xlnet_tf.load(tmp_path / place)
        same_weights(model, found)
        assert sorted(x.name for x in (tmp_path / place).glob(".*")) == []
    assert (tmp_path / "link").is_symlink()
    same_weights(model, xlnet_tf.load("~/new"))
    capsys.readouterr()
    file = tmp_path / "file"
    file.write_text("mine")
    assert run("--from", preset, "--to", file / "new") == 1
    assert f"new cannot be made: {file} is a file." in capsys.readouterr().err
    for save in (model.save_to_preset, lambda x: save_tf1(model.backbone, x)):
        with pytest.raises(ValueError, match="file is a file; name a director"):
            save(file)
    with pytest.raises(ValueError, match="holds a preset, which would be rea"):
        save_tf1(model.backbone, preset)
    assert file.read_text() == "mine"
    same_weights(model, xlnet_tf.load(preset))


def test_paths_that_tensorflow_takes_for_a_pattern(classifier, tmp_path):
    model = classifier[0].backbone
    save_tf1(model, tmp_path / "[old]")
    with pytest.raises(ValueError, match=r"TensorFlow takes \[ \] in the pat"):
        xlnet_tf.load(tmp_path / "[old]")
    save_tf1(model, tmp_path / "old")
    index = tmp_path / "old" / "xlnet_model.ckpt.index"
    with pytest.raises(
        FileNotFoundError, match="Name the checkpoint: .*ckpt.$"
    ):
        xlnet_tf.XLNetBackbone.from_preset(index)


def test_a_failed_write_leaves_nothing(classifier, tmp_path, monkeypatch):
    model, _ = classifier
    monkeypatch.setattr(
        "data_pipeline.tokenization.hugging_face.write_tokenizer",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")),
    )
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="No space left"):
        convert.write(model, tmp_path / "hf", "hf", tokenizer=object())
    assert sorted(tmp_path.iterdir()) == before


def test_wrong_arguments_are_one_line(tmp_path, capsys):
    file = tmp_path / "spiece.model"
    file.write_bytes(tiny_model())
    models = "--task must be one of XLNetBackbone, "
    for arguments, message in [
        (["--task", "XLNetPoet"], models),
        (["--task", "XLNetConfig"], models),
        (["--task", "XLNetTokenClassifier"], "no head for XLNetTokenClass"),
        (["--task", "XLNetMultipleChoice"], "no head for XLNetMultipleChoice"),
        (["--head", "mnli"], "has no head 'mnli'. It has: XLNetPretrainer"),
        (
            ["--task", "XLNetTextClassifier", "--head", "mnli"],
            "no head 'mnli' for XLNetTextClassifier",
        ),
        (["--task", "XLNetBackbone", "--tokenizer", "nope"], "nope"),
        (
            ["--task", "XLNetBackbone", "--tokenizer", file],
            "300 pieces and the model 120 tokens. Give the model's with",
        ),
    ]:
        options = ("--from", RELEASED, "--to", tmp_path / "x", *arguments)
        assert message in refused(capsys, convert.main, *options)
        assert not (tmp_path / "x").exists()


def test_heads_that_a_format_has_no_place_for_are_named(
    classifier, tmp_path, capsys
):
    model, _ = classifier
    tagger = xlnet_tf.XLNetTokenClassifier(model.backbone, num_classes=5)
    tagger.save_to_preset(tmp_path / "tagger")
    target = ("--to", tmp_path / "x", "--format", "tf1")
    assert run("--from", tmp_path / "tagger", *target) == 1
    error = capsys.readouterr().err
    assert "no head like that of XLNetTokenClassifier" in error
    assert not (tmp_path / "x").exists()
    pretrainer = xlnet_tf.XLNetPretrainer(
        model.backbone, next_sentence_weight=1.0
    )
    pretrainer.save_to_preset(tmp_path / "next")
    assert run("--from", tmp_path / "next", *target) == 0
    error = capsys.readouterr().err
    assert "no place for the head of next-sentence prediction" in error


def test_float16_takes_half_the_space(classifier, tmp_path, capsys):
    model, preset = classifier
    half = tmp_path / "half"
    assert run("--from", preset, "--to", half, "--dtype", "float16") == 0
    for name in ("model.weights.h5", "task.weights.h5"):
        with open_arrays(half / name) as arrays:
            kinds = {array.dtype for array in arrays.values()}
        assert np.dtype("float16") in kinds
        assert np.dtype("float32") not in kinds
    loaded = xlnet_tf.load(half)
    for one, two in zip(model.weights, loaded.weights, strict=True):
        assert one.dtype == two.dtype
        one, two = map(keras.ops.convert_to_numpy, (one, two))
        rounded = one.astype("float16") if one.dtype == "float32" else one
        np.testing.assert_array_equal(rounded.astype(one.dtype), two)
    capsys.readouterr()

    refused = tmp_path / "refused"
    options = ("--from", preset, "--to", refused, "--dtype", "float16")
    assert run(*options, "--format", "hf") == 1
    assert "--dtype float16 is for presets" in capsys.readouterr().err
    weight = model.backbone.weights[0]
    weight.assign(keras.ops.full(weight.shape, 7e4))
    with pytest.raises(ValueError, match="vars/0 has values beyond 65,504"):
        model.save_to_preset(refused, dtype="float16")
    with pytest.raises(ValueError, match="float32 or float16, not 'int8'"):
        model.save_to_preset(refused, dtype="int8")
    assert not refused.exists()
