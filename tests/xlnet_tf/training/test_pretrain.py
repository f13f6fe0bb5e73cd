"""`xlnet_tf.train`: what it leaves, how it resumes, what it refuses."""

import dataclasses
import functools
import json
import math
import re
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.base.checksums import write_listed
from data_pipeline.base.files import read_json_lines
from data_pipeline.pretraining import PretrainingData
from tests.support import artefacts
from tests.support import run_fixtures
from tests.support.equality import assert_equal
from tests.support.record_fixtures import change_manifest
from xlnet_tf import train
from xlnet_tf.objectives import PseudoMasked
from xlnet_tf.training import loop
from xlnet_tf.training import pretrain
from xlnet_tf.training.devices import make_strategy
from xlnet_tf.training.exports import keep_newest
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.settings import PretrainingSettings


@pytest.fixture
def files(tmp_path):
    """Writes the files of `--config` and `--training`, with changes."""

    def write(model=(), training=()):
        training = {**artefacts.TRAINING, **dict(training)}
        return run_fixtures.write_configs(tmp_path, model, **training)

    return write


arguments = functools.partial(run_fixtures.arguments, steps=artefacts.STEPS)


def prepared(argv, export=None):
    """What a run is about to train: run, data, model, checkpoints."""
    found = types.SimpleNamespace()

    def training_of(run, data, model, *others):
        vars(found).update(run=run, data=data, model=model)

    def end(run, training, checkpoints):
        found.checkpoints = checkpoints
        return 143

    options = train.parse_arguments(argv)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "training_of", training_of)
        patch.setattr(loop, "train", end)
        settings = train.read_settings(options)
        backend = TensorFlow(make_strategy(settings.strategy))
        assert pretrain.pretrain(settings, backend, export) == 143
    return found


def weights_at(output, step):
    reader = tf.train.load_checkpoint(str(output / f"checkpoints/ckpt-{step}"))
    return {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype == tf.float32 and "metric" not in name
    }


def test_what_a_run_leaves(pretrained):
    model = keras.models.load_model(pretrained / "model.keras")
    preset = xlnet_tf.XLNetPretrainer.from_preset(pretrained / "preset")
    assert_equal(model.trainable_variables, preset.trainable_variables)
    assert (pretrained / "spiece.model").is_file()
    assert (pretrained / "preset/assets/tokenizer/vocabulary.spm").is_file()
    assert (pretrained / "best/config.json").is_file()
    found = read_json_lines(pretrained / "metrics.jsonl")
    assert [(m["kind"], m["step"]) for m in found] == [
        (kind, step) for step in (2, 4, 6) for kind in ("train", "eval")
    ]
    shown = {"loss", "bits_per_token", "accuracy"}
    training_only = {
        *("gradient_norm", "learning_rate", "tokens_per_second"),
        *("largest_loss", "largest_loss_step"),
    }
    assert set(found[0]) == {"kind", "step"} | shown | training_only
    assert set(found[1]) == {"kind", "step"} | shown
    losses = {m["step"]: m["loss"] for m in found if m["kind"] == "eval"}
    step = min(losses, key=losses.get)
    best = {"metric": "loss", "value": losses[step], "step": step}
    kept = json.loads((pretrained / "best.json").read_text())
    assert kept == best
    for name in ("train", "eval"):
        tags = {
            value.tag
            for event in (pretrained / name).glob("events.out.tfevents.*")
            for record in tf.compat.v1.train.summary_iterator(str(event))
            for value in record.summary.value
        }
        assert shown <= tags
    settings = PretrainingSettings.read(pretrained / "training.json")
    assert settings.learning_rate == artefacts.TRAINING["learning_rate"]


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(
    pretrained, resumed
):
    """Order, permutations, dropout, memory, optimizer, evaluations."""
    whole, parts = weights_at(pretrained, 6), weights_at(resumed, 6)
    assert_equal(whole, parts)
    (whole,) = (pretrained / "checkpoints").glob("memory-6-rows-*.npz")
    parts = np.load(resumed / "checkpoints" / whole.name)
    assert_equal(dict(np.load(whole)), dict(parts))
    names = ("kind", "step", "loss")
    found = [
        [[m[name] for name in names] for m in read_json_lines(file)]
        for file in (pretrained / "metrics.jsonl", resumed / "metrics.jsonl")
    ]
    assert found[0] == found[1]
    best = [(x / "best.json").read_text() for x in (pretrained, resumed)]
    assert best[0] == best[1]


def test_a_finished_run_trains_no_more(
    pretrained, records, files, tmp_path, capsys
):
    """It says what it is, passes a damaged checkpoint over, and ends."""
    output = shutil.copytree(pretrained, tmp_path / "run")
    argv = arguments(records, output, *files())
    settings = (output / "training.json").read_bytes()
    other = [*argv, "--learning-rate", "0.5"]  # by which nothing was trained
    assert command_line.run(train.main, other) == 0
    assert (output / "training.json").read_bytes() == settings
    capsys.readouterr()
    assert command_line.run(train.main, argv) == 0
    said = capsys.readouterr()
    assert "step 6/6" not in said.err
    for line in (
        r"model +XLNet of 1 layers x 16, .* parameters, float32",
        r"batch +4 sequences = 1 replica\(s\) x 1 part\(s\) x 4; 128 tokens",
        r"data +\d+ sequences of 32 tokens, .* per epoch, 6 steps are",
        r"memory +24 tokens remembered, 16 reused; about 0\.0 GB",
        r"held out +\d+ sequences, batches of 4",
        r"resume +from .*ckpt-6",
        r"wrote .*model.keras",
    ):
        assert re.search(line, said.out), line
    index = output / "checkpoints" / "ckpt-6.index"
    index.write_bytes(index.read_bytes()[:100])
    assert prepared(argv).checkpoints.restored.endswith("ckpt-4")
    assert "skipped   damaged checkpoint" in capsys.readouterr().out
    prepared([*argv, "--quiet"])
    assert capsys.readouterr().out == ""


def test_a_directory_of_another_run(pretrained, records, files, capsys):
    config = json.loads((pretrained / "run.json").read_text())["model"]
    for model, more, message in (
        ({"num_layers": 2}, (), "num_layers: 1 there, 2 now"),
        ({}, ("--batch-size", "2"), "batch_size: 4 there, 2 now"),
        ({}, ("--seed", "3"), "seed: 0 there, 3 now"),
        (
            {},
            ("--precision", "float16"),
            "precision: float32 there, float16 now",
        ),
        ({}, ("--memory-length", "8"), "memory_length: 24 there, 8 now"),
        (
            {},
            ("--preset", pretrained / "best"),
            "it began with the weights of another --preset",
        ),
    ):
        argv = arguments(records, pretrained, *files(model), *more)
        assert command_line.run(train.main, argv) == 1
        error = capsys.readouterr().err
        assert message in error
        assert "another --output" in error
    assert json.loads((pretrained / "run.json").read_text())["model"] == config


def test_starts_from_a_preset_with_its_head(
    pretrained, records, tmp_path, capsys
):
    source = xlnet_tf.XLNetPretrainer.from_preset(
        pretrained / "preset", reuse_length=0
    )
    # With rows for added tokens, which no record has.
    config = source.config.replace(reuse_length=7, vocabulary_size=320)
    model = xlnet_tf.XLNetPretrainer(
        xlnet_tf.XLNetBackbone(config), has_transform=True, transform_gelu="erf"
    )
    model.save_to_preset(tmp_path / "preset")
    argv = arguments(records, tmp_path / "run", "--preset", tmp_path / "preset")
    run = prepared(argv)
    assert run.model.head.has_transform
    assert run.model.get_config()["transform_gelu"] == "erf"
    # The records say what is reused.
    assert run.model.config.reuse_length == 16
    assert_equal(model.trainable_variables, run.model.trainable_variables)
    # All weights are trained, and a new optimizer has slots for all.
    frozen = tmp_path / "frozen"
    model.backbone.block_0.trainable = False
    model.save_to_preset(frozen)
    argv = arguments(records, tmp_path / "other", "--preset", frozen)
    capsys.readouterr()
    assert command_line.run(train.main, argv) == 1
    error = capsys.readouterr().err.strip()
    assert error.endswith("Received: the layer backbone/block_0."), error
    assert "\n" not in error


def test_starts_from_a_preset_of_another_objective(records, tmp_path):
    """With next-sentence prediction, or causal and of the same length."""
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    causal = config.replace(attention_type="causal", same_length=True)
    for number, (model, more) in enumerate(
        (
            (dict(next_sentence_weight=2.0), ()),
            (dict(next_sentence_weight=2.0), ("--objective", "masked")),
            (dict(objective="causal"), ("--objective", "masked")),
            (dict(objective="causal"), ()),
            (dict(objective="causal"), ("--objective", "causal")),
        )
    ):
        is_causal = model.get("objective") == "causal"
        source = xlnet_tf.XLNetPretrainer(
            xlnet_tf.XLNetBackbone(causal if is_causal else config), **model
        )
        preset = tmp_path / f"preset{number}"
        source.save_to_preset(preset)
        argv = arguments(
            records, tmp_path / f"run{number}", "--preset", preset, *more
        )
        run = prepared(argv)
        assert run.model.config.same_length == (more[1:] == ("causal",))
        for one, other in zip(
            source.backbone.weights, run.model.backbone.weights, strict=True
        ):
            if "seed" not in one.path:
                np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_memory_length(records, files, tmp_path):
    for model, more, length in (
        ({}, (), 24),
        ({"memory_length": 0}, (), 0),
        ({"memory_length": 5}, (), 5),
        ({"memory_length": 5}, ("--memory-length", 9), 9),
        ({}, ("--set", "memory-length=0"), 0),
        # What the objective needs is there before what needs it.
        ({}, ("--set", "same_length=true", "--objective", "causal"), 24),
    ):
        argv = arguments(records, tmp_path / "run", *files(model), *more)
        settings = train.read_settings(train.parse_arguments(argv))
        data = pretrain.open_data(settings, num_replicas=1)
        assert data.model_config.memory_length == length, model


def test_exports_go_to_the_step(records, files, tmp_path, capsys):
    asked = []

    def export(model, tokenizer, directory, sequence_length):
        asked.append((tokenizer.vocabulary_size, directory, sequence_length))

    more = (*files(), "--export", tmp_path / "export")
    found = prepared(arguments(records, tmp_path / "run", *more), export)
    run, data, model = found.run, found.data, found.model
    run.step.assign(3)
    pretrain.save(run, data, model, "best", export)
    assert asked == [(300, tmp_path / "export/3", artefacts.LENGTH)]
    # The evaluation of the last step may have exported it already.
    directory = tmp_path / "export/3"
    for step, is_there, expected in (
        (None, True, False),
        (2, True, False),
        (3, False, False),
        (3, True, True),
    ):
        if step:
            value = {"metric": "loss", "value": 1.0, "step": step}
            write_listed(tmp_path / "run", {"best.json": value})
        shutil.rmtree(directory, ignore_errors=True)
        if is_there:
            directory.mkdir(parents=True)
        assert pretrain.is_best_exported(run) == expected, step
    pretrain.save(run, data, model, "preset")
    assert len(asked) == 1
    capsys.readouterr()
    pretrain.tell_results(run, data, model)
    written = capsys.readouterr().out
    assert f"wrote {tmp_path / 'export/3'}\n" in written
    assert f"xlnet predict --model {tmp_path / 'export/3'} --text" in written
    assert "xlnet export" not in written
    assert (tmp_path / "run/preset/config.json").is_file()


def test_lines_of_progress():
    """Of training steps the loss alone, of evaluations its bits as well."""
    scalars = {"loss": 2.0, "bits_per_token": 2.885, "accuracy": 0.5}
    more = {
        "gradient_norm": 1.0,
        "learning_rate": 0.01,
        "tokens_per_second": 1234.5,
    }
    for kind, values, line in (
        ("eval", scalars, "held out  loss 2.000  bits/token 2.885  accuracy"),
        ("train", scalars | more, "loss 2.000  accuracy 0.500  gradient 1.00"),
    ):
        text = pretrain.progress_text(kind, values)
        assert text.startswith(line), text


def test_the_newest_exports_are_kept(tmp_path):
    """Of this run: others in the directory are not its own."""
    exports, note = tmp_path / "mine", tmp_path / "exports.json"
    (exports / "1").mkdir(parents=True)
    for step, left in (
        (2, {1, 2}),
        (4, {1, 2, 4}),
        (6, {1, 4, 6}),
        (4, {1, 4}),  # resumed before step 6, which it makes again
        (5, {1, 4, 5}),
        (6, {1, 5, 6}),
    ):
        (exports / f"{step}").mkdir(exist_ok=True)
        keep_newest(exports, step, 2, note)
        assert {int(x.name) for x in exports.iterdir()} == left
    other = tmp_path / "other"
    (other / "7").mkdir(parents=True)
    keep_newest(other, 7, 1, note)
    assert len(list(exports.iterdir())) == 3
    note.write_text(note.read_text().replace("7", "6"))
    with pytest.raises(ValueError, match="exports.json is damaged: it is not"):
        keep_newest(other, 8, 1, note)
    assert (other / "7").is_dir()


def test_ways_of_computing_reach_the_model(records, files, tmp_path):
    ways = {"rematerialize": True, "attention_kernel": "plain"}
    argv = arguments(records, tmp_path / "run", *files(training=ways))
    backbone = prepared(argv).model.backbone
    assert backbone.rematerialize
    assert backbone.attention_kernel == "plain"


TINY, BERT = ("--config", "tiny"), ("--backbone", "bert")
ERRORS = [
    # config, training, options, message
    ({}, {}, ["--batch-size", "100000"], "batch_size.*number of records"),
    ({}, {}, ["--config", "huge"], "tiny, small, base, large"),
    ({}, {}, ["--config", "smal"], "Received: .*; did you mean small"),
    ({}, {}, ["--config", "."], "weights of a preset give --preset"),
    ({"class_name": "X", "config": {}}, {}, [], "of a preset.*give --preset"),
    ({}, {}, ["--config", "missing.json"], "no config file at missing.json"),
    ({}, {}, ["--training", "missing.json"], "no file of settings at missing"),
    ({}, {}, ["--precision", "float64"], "precision.*float32"),
    ({}, {}, ["--steps", "0"], "`steps` must be a positive"),
    ({}, {}, ["--learning-rate", "-1"], "learning_rate.*positive"),
    ({}, {}, ["--records", "nowhere"], "manifest"),
    ({}, {}, ["--preset", "nowhere"], "no directory nowhere"),
    ({}, {}, ["--strategy", "gpu"], "strategy.*must be one of"),
    ({}, {}, ["--memory-length", "-3"], "memory_length.*from 0 up"),
    ({}, {"step": 3}, [], "unknown fields: step; did you mean steps"),
    (
        {},
        {"gradient_accumulation_steps": 3},
        [],
        "multiple of 3 = 1 replicas x 3",
    ),
    (
        {"vocabulary_size": 299},
        {},
        [],
        "300 pieces and the model 299 tokens. Build the records in",
    ),
    ({"reuse_length": 8}, {}, [], "`reuse_length` is 8 in the config and 16"),
    ({"reverse_half_batch": True}, {}, [], "--both-directions"),
    ({}, {}, [*TINY, "--objective", "pseudo_masked"], "a backbone that takes"),
    ({}, {}, [*TINY, *BERT], "needs a backbone with a query stream"),
    (
        {},
        {},
        [*TINY, *BERT, "--objective", "causal"],
        "needs a backbone with attention_type='causal'",
    ),
    (
        {},
        {},
        [*TINY, *BERT, "--objective", "masked", "--memory-length", "4"],
        "has no memory",
    ),
    (
        {},
        {},
        [*TINY, "--order", "block", "--objective", "causal"],
        "`order` needs the",
    ),
    ({}, {}, [*TINY, "--masked-unit", "pieces"], "`masked_unit` needs the obj"),
]


def test_errors_are_one_line(records, files, tmp_path, capfd):
    for model, training, options, message in ERRORS:
        argv = arguments(
            records, tmp_path / "run", *files(model, training), *options
        )
        assert command_line.run(train.main, argv) == 1, options
        *before, error = capfd.readouterr().err.strip().splitlines()
        assert error.startswith("error: "), error
        unused = "warning: --preset has a config of its own; --config "
        assert all(line.startswith(unused) for line in before), before
        assert len(before) == ("--preset" in options)
        assert re.search(message, error), error
        assert not (tmp_path / "run" / "checkpoints").exists()


def change_records(directory, **changes):
    """Changes fields of a manifest, or entries of its `tokenizer`."""
    path = directory / "manifest.json"
    tokenizer = json.loads(path.read_text())["tokenizer"]
    for name in tokenizer.keys() & changes.keys():
        tokenizer[name] = changes.pop(name)
    change_manifest(path, tokenizer=tokenizer, **changes)


def test_records_of_another_tokenizer_or_permutation(
    pretrained, records, files, tmp_path, capsys
):
    other = shutil.copytree(records, tmp_path / "other")
    preset = ("--preset", str(pretrained / "preset"))
    change_records(other, lowercase=True)
    argv = arguments(other, tmp_path / "run", *preset)
    assert command_line.run(train.main, argv) == 1
    assert "are of lower-cased text" in capsys.readouterr().err
    shutil.copy(records / "manifest.json", other)
    change_records(other, sha256="0" * 64)
    argv = arguments(other, tmp_path / "run", *preset)
    assert command_line.run(train.main, argv) == 1
    assert "is not the tokenizer that the records" in capsys.readouterr().err
    # Compact records of another permutation have the same shards.
    shutil.copy(records / "manifest.json", other)
    change_records(other, permutation_length=8)
    argv = arguments(other, pretrained, *files())
    assert command_line.run(train.main, argv) == 1
    error = capsys.readouterr().err
    assert "permutation_length of the data: 16 there, 8 now" in error


def test_held_out_records_that_do_not_fit(records, files, tmp_path, capsys):
    other = shutil.copytree(records, tmp_path / "other")
    argv = arguments(records, tmp_path / "run", *files())
    argv += ["--eval-records", str(other)]
    for change, message in (
        ({"sha256": "0" * 64}, "another length or tokenizer"),
        ({"lowercase": True}, "are lower-cased, but not both"),
    ):
        shutil.copy(records / "manifest.json", other)
        change_records(other, **change)
        assert command_line.run(train.main, argv) == 1
        assert message in capsys.readouterr().err
    few = PretrainingData(records, 1, split="validation").num_records
    settings = dataclasses.replace(
        train.read_settings(train.parse_arguments(argv)),
        eval_records=None,
        batch_size=few + 1,
    )
    message = f"holds {few} record.* to evaluate on, and there are {few + 1} re"
    with pytest.raises(ValueError, match=message):
        pretrain.open_data(settings, num_replicas=few + 1)


def test_bits_are_those_of_one_prediction():
    """A token may be predicted twice, where the loss is the sum of both."""
    for losses, bits in (("both", 3.0), ("autoencoding", 6.0)):
        objective = PseudoMasked(losses=losses)
        model = types.SimpleNamespace(objectives=[objective])
        found = pretrain.with_bits({"loss": 6 * math.log(2)}, model)
        assert math.isclose(found["bits_per_token"], bits)
