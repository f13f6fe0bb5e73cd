"""Settings of runs: ranges, files, options, recipes, numbers of steps."""

import argparse
import dataclasses
import json

import pytest

from data_pipeline.tasks.catalog import TASKS
from xlnet_tf import finetune
from xlnet_tf import train
from xlnet_tf.config import XLNetConfig
from xlnet_tf.training.recipes import recipe
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings

FIELDS = {field.name for field in dataclasses.fields(PretrainingSettings)}


def write(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_defaults_are_those_of_the_paper():
    config = PretrainingSettings()
    assert config.learning_rate == 1e-4
    assert config.weight_decay == 0.01
    assert config.adam_epsilon == 1e-6
    assert config.max_gradient_norm == 0.25
    assert not config.hide_empty_memory
    assert PretrainingSettings(steps=500_000).warmup_steps == 40_000
    assert PretrainingSettings(steps=5).warmup_steps == 0
    assert FinetuningSettings(steps=39).warmup_steps == 3
    assert FinetuningSettings().warmup_steps is None


def test_every_field_has_a_check():
    """A value of no field's kind is refused for each of them."""
    for cls in (PretrainingSettings, FinetuningSettings):
        for field in dataclasses.fields(cls):
            with pytest.raises(TypeError, match=f"`{field.name}` must be.*Rec"):
                cls(**{field.name: [3.5]})


RANGES = {
    "a positive integer": (
        (0, -1),
        "steps batch_size gradient_accumulation_steps steps_per_loop "
        "evaluation_interval evaluation_steps checkpoint_interval "
        "checkpoints_to_keep exports_to_keep num_workers",
    ),
    "an integer from 0 up": ((-1,), "warmup_steps worker_index"),
    "an integer from 0 to 4294967295": ((-1, 2**32), "seed"),
    "a positive number": (
        (0, -1e-9, float("inf"), float("nan")),
        "learning_rate adam_epsilon",
    ),
    "a number from 0 up": (
        (-1e-9, float("inf")),
        "weight_decay max_gradient_norm next_sentence_weight grace_period",
    ),
    r"in \[0, 1\)": ((-0.1, 1, 1.5), "adam_beta_1 adam_beta_2"),
    r"in \[0, 1\]": ((-0.1, 1.1), "final_learning_rate_fraction"),
    "one of linear, cosine or constant": (("poly",), "decay"),
    "one of auto, float32, bfloat16 or float16": (("float64",), "precision"),
    "one of auto, plain, memory_efficient or fused": (
        ("slow",),
        "attention_kernel",
    ),
}
FINETUNING_RANGES = {
    "a positive integer": (
        (0,),
        "steps patience stride sequence_length document_length n_best_size "
        "max_question_length max_answer_length num_documents "
        "evaluation_interval checkpoint_interval",
    ),
    "a positive number": ((0.0,), "epochs"),
    r"in \(0, 1\]": ((0.0, 1.5), "layer_decay"),
    r"in \(0, 1\)": ((0.0, 1.0), "hold_out"),
    r"in \[0, 1\)": ((1.0,), "dropout attention_dropout"),
    "step or gradient": (("loss",), "layer_decay_on"),
    "none or balanced": (("some",), "class_weights"),
    "one of truncate, windows or memory": (("all",), "long_documents"),
}


def test_ranges():
    for cls, ranges in (
        (PretrainingSettings, RANGES),
        (FinetuningSettings, FINETUNING_RANGES),
    ):
        for expected, (wrong, names) in ranges.items():
            for name in names.split():
                for value in wrong:
                    message = f"`{name}` must be {expected}.*{name}={value!r}"
                    with pytest.raises(ValueError, match=message):
                        cls(**{name: value})
    # Whole numbers need no point, and 0 switches off.
    assert (
        PretrainingSettings(learning_rate=1, weight_decay=0).learning_rate == 1
    )


def test_dict_and_files_give_the_same_config(tmp_path):
    config = PretrainingSettings(steps=70, jit_compile=True, learning_rate=3e-3)
    assert set(config.to_dict()) == FIELDS
    file = write(tmp_path / "training.json", config.to_dict())
    assert PretrainingSettings.read(file) == config
    file = tmp_path / "training.yaml"
    file.write_text("steps: 70\njit_compile: true\nlearning_rate: 0.003\n")
    assert PretrainingSettings.read(file) == config
    # Options win; the warm-up is 8 % of their steps.
    over = PretrainingSettings.read(file, {"steps": 200, "seed": None})
    assert (over.steps, over.warmup_steps, over.seed) == (200, 16, 0)


def test_wrong_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file of settings at .*non"):
        PretrainingSettings.read(tmp_path / "none.json")
    for values, error, message in (
        ([], ValueError, "JSON object"),
        ({"step": 3}, ValueError, "unknown fields: step; did you mean steps"),
        ({"steps": 0}, ValueError, "`steps` must be a positive integer"),
        ({"steps": "9"}, TypeError, "`steps` must be a positive integer"),
    ):
        file = write(tmp_path / "training.json", values)
        with pytest.raises(error, match=message):
            PretrainingSettings.read(file)


def options_of(parse, capsys):
    """Text of `--help`."""
    with pytest.raises(SystemExit):
        parse(["--help"])
    return capsys.readouterr().out


def test_every_field_is_an_option(capsys):
    for command, cls in (
        (train, PretrainingSettings),
        (finetune, FinetuningSettings),
    ):
        text = options_of(command.parse_arguments, capsys)
        assert "(default 1000)" not in text  # steps have no default
        first, further = text.split("further settings:")
        for field in dataclasses.fields(cls):
            option = "--" + field.name.replace("_", "-")
            listed = first if field.name in command.FREQUENT else further
            assert f"  {option}" in listed, option
    argv = "--records r --output o --steps 3 --jit-compile --decay cosine"
    options = train.parse_arguments(argv.split())
    config = PretrainingSettings.read(None, options)
    assert config == PretrainingSettings(
        records=["r"], output="o", steps=3, jit_compile=True, decay="cosine"
    )


def test_settings_of_pretraining_alone_are_refused(tmp_path):
    values = {"objective": "causal", "evaluation_steps": 1, "batch_size": 8}
    file = write(tmp_path / "training.json", values)
    with pytest.raises(ValueError, match="fields: evaluation_steps, objective"):
        FinetuningSettings.read(file)


def test_every_task_is_described_in_the_help(capsys):
    text = options_of(finetune.parse_arguments, capsys)
    tasks = " ".join(text.partition("\ntasks:")[2].split())
    assert tasks == " ".join(f"{k} {x.description}" for k, x in TASKS.items())


def test_replica_batch_size():
    config = PretrainingSettings(batch_size=30, gradient_accumulation_steps=5)
    assert config.replica_batch_size(1) == 30
    assert config.replica_batch_size(3) == 10
    message = "a multiple of 20 = 4 replicas x 5 acc.*batch_size=30"
    with pytest.raises(ValueError, match=message):
        config.replica_batch_size(4)


def test_a_worker_needs_all_of_its_options():
    address = {"coordinator": "host0:2222"}
    together = "`worker_index` go together.*coordinator="
    for given, message in (
        (address, together),
        ({"num_workers": 2}, together),
        ({"worker_index": 0, "num_workers": 2}, together),
        ({**address, "num_workers": 2, "worker_index": 2}, "0 to `num_w.*=2"),
    ):
        for cls in (PretrainingSettings, FinetuningSettings):
            with pytest.raises(ValueError, match=message):
                cls(**given)


def test_precision_is_a_policy_of_keras():
    assert PretrainingSettings().policy == "float32"
    assert PretrainingSettings(precision="bfloat16").policy == "mixed_bfloat16"
    assert PretrainingSettings(precision="float16").policy == "mixed_float16"
    for name, meant in (("bf16", "bfloat16"), ("fp16", "float16")):
        with pytest.raises(ValueError, match=f"; did you mean {meant}.$"):
            PretrainingSettings(precision=name)


def test_options_win_over_the_file_and_that_over_the_recipe(tmp_path):
    file = write(tmp_path / "training.json", {"steps": 6, "batch_size": 4})
    for given, steps, epochs in (
        ({}, 6, 3.0),
        ({"epochs": 2.0}, None, 2.0),
        ({"steps": 9}, 9, 3.0),
    ):
        options = argparse.Namespace(**given)
        config = FinetuningSettings.for_task("mnli", file, options)
        assert (config.steps, config.epochs) == (steps, epochs)
        assert config.batch_size == 4
        # The recipe's warm-up of 1000 belongs to its 10,000 steps.
        assert config.warmup_steps == (None if steps is None else 0)
    config = FinetuningSettings.for_task("mnli")
    assert (config.batch_size, config.warmup_steps) == (128, 1000)
    with pytest.raises(ValueError, match="either --steps or --epochs"):
        FinetuningSettings.for_task("rte", None, {"steps": 3, "epochs": 2.0})


def test_the_learning_rate_is_by_task_adapters_and_width(tmp_path):
    lora = {"lora_rank": 8}
    given = {"learning_rate": 1e-4}
    for task, options, width, rate in (
        ("rte", {}, 768, 3e-5),
        ("classification", {}, 258, 2e-5),
        ("rte", lora, 768, 3e-4),
        ("classification", lora, 768, 2e-4),
        ("rte", {}, 256, 5e-4),
        ("classification", {}, 192, 5e-4),
        ("rte", lora, 192, 5e-3),
        ("rte", given | lora, 768, 1e-4),
        ("rte", given, 192, 1e-4),
    ):
        model = XLNetConfig(50, hidden_dim=width, num_heads=2)
        file = write(tmp_path / "training.json", options)
        for way in ((None, options), (file,)):
            config = FinetuningSettings.for_task(task, *way)
            assert config.learning_rate == options.get("learning_rate")
            config, lines = config.for_model(task, model)
            assert config.learning_rate == pytest.approx(rate), options
            is_said = width <= 256 and "learning_rate" not in options
            assert len(lines) == is_said
    assert lines == []
    _, (line,) = FinetuningSettings().for_model(
        "rte", XLNetConfig(50, hidden_dim=192)
    )
    assert line == (
        "rate      5e-4, as the model is small (width 192); --learning-rate "
        "sets it"
    )
    with pytest.raises(ValueError, match="give `lora_rank` too. Received: "):
        FinetuningSettings(lora_alpha=4.0)


def test_every_recipe_is_a_config():
    for name in TASKS:
        config = FinetuningSettings(**recipe(name)).resolve(100)
        assert config.warmup_steps < config.steps
        assert config.evaluation_interval <= config.steps
    assert FinetuningSettings(**recipe("squad-2.0")).layer_decay == 0.75


def test_epochs_become_steps_and_intervals():
    config = FinetuningSettings(epochs=1.5).resolve(30)
    assert (config.steps, config.warmup_steps) == (45, 4)
    assert config.evaluation_interval == config.checkpoint_interval == 5
    assert config.steps_per_loop == 5
    given = FinetuningSettings(steps=8, evaluation_interval=3).resolve(30)
    assert (given.steps, given.checkpoint_interval) == (8, 3)
