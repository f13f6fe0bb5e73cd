"""The command `xlnet`, near misses of options, and printed settings."""

import importlib

import pytest
import yaml

from data_pipeline import build_records
from data_pipeline.base import command_line
from tests.support import artefacts
from tests.support.commands import python
from xlnet_tf import __main__ as xlnet
from xlnet_tf import finetune
from xlnet_tf import train
from xlnet_tf.config import XLNetConfig
from xlnet_tf.training.records import with_fields
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings


def test_every_subcommand_is_a_command(capsys):
    assert xlnet.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, (module, text) in xlnet.COMMANDS.items():
        assert f"  {name} " in printed and text in printed
        assert callable(importlib.import_module(module).command)
    assert xlnet.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("xlnet_tf ")


def test_a_subcommand_takes_its_options(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["xlnet"])
    assert xlnet.main(["build_records", "--print-config"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values["sequence_length"] == 512
    with pytest.raises(SystemExit) as stopped:
        xlnet.main(["train", "--output", "o", "--batchsize", "4"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "there is no option --batchsize; did you mean --batch-size?" in error
    assert len(error.splitlines()) == 1


def test_near_misses_of_names(capsys):
    assert xlnet.main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err
    assert xlnet.main(["x" * 4000]) == 2
    error = capsys.readouterr().err
    assert "did you mean" not in error and len(error) < 200
    for argv, message in (
        (["--objective", "permutatoin"], "did you mean permutation?"),
        (["--objective", "xyz"], "Received: objective='xyz'."),
    ):
        argv = ["--records", "r", "--output", "o", "--steps", "1", *argv]
        assert command_line.run(train.main, argv) == 1
        assert message in capsys.readouterr().err


def test_options_that_other_commands_have(capsys):
    """And nothing that is far from what was given."""
    argv = ["--records", "r", "--output", "o"]
    of_records = "no option {}; --sequence-length is set when records are b"
    for main, option, message in (
        (train.main, "--seq-length", of_records.format("--seq-length")),
        (train.main, "--tokenizer", "; --tokenizer is set when records are"),
        (train.main, "--max-length", "no option --max-length. "),
        (train.main, "--memroy-length", "did you mean --memory-length?"),
        (finetune.main, "--seq-length", "did you mean --sequence-length?"),
    ):
        more = argv if main is train.main else []
        with pytest.raises(SystemExit):
            main([*more, option, "1"])
        assert message in capsys.readouterr().err, option


def test_names_are_checked_before_anything_heavy_is_loaded():
    """And before what is missing."""
    code = (
        "import sys; from data_pipeline.base.command_line import run\n"
        "from xlnet_tf import finetune, train\n"
        "for main, argv in {}:\n"
        "    assert run(main, argv.split()) == 1\n"
        "    assert 'keras' not in sys.modules\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    of_train, of_task = "--records r --output o", "--preset p --output o"
    trials = [
        (
            f"train.main, '{of_train} --config medium'",
            "Received: --config medi",
        ),
        (f"train.main, '{of_train} --strategy gpu'", "`strategy` must be"),
        (f"train.main, '{of_train} --decay steep'", "`decay` must be one of"),
        (f"train.main, '{of_train}'", "the number of optimizer steps is not"),
        (f"finetune.main, '{of_task} --task rtee'", "did you mean rte?"),
        (f"finetune.main, '{of_task} --task rte --decay x'", "`decay` must be"),
        (
            f"finetune.main, '{of_task} --task classification'",
            "the task classification needs your files: --data PATH",
        ),
    ]
    code = code.format("".join(f"({call}), " for call, _ in trials))
    done = python("-c", code)
    lines = done.stderr.splitlines()
    for (call, message), line in zip(trials, lines, strict=True):
        assert message in line, call


def test_options_of_others_are_for_beam_alone(capsys):
    """What `build_records` does not know, a runner of Beam may."""
    argv = ["--input", "x", "--tokenizer", "y", "--output", "z"]
    for more in (["--tokeniser", "y"], ["loose"]):
        with pytest.raises(SystemExit):
            build_records.main([*argv, *more])
    error = capsys.readouterr().err
    assert "no option --tokeniser; did you mean --tokenizer?" in error
    assert "unknown arguments: loose." in error


@pytest.mark.parametrize(
    ("main", "kind", "options"),
    [
        (train.main, PretrainingSettings, {"learning_rate": 2e-5}),
        (finetune.main, FinetuningSettings, {"epochs": 3.0}),
    ],
)
def test_printed_settings_are_a_file_of_settings(
    main, kind, options, tmp_path, capsys
):
    argv = [x for k, v in options.items() for x in (f"--{k}", str(v))]
    argv = [x.replace("_", "-") for x in argv]
    assert main(["--print-config", *argv]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert main(["--print-config", "--training", str(file)]) == 0
    assert capsys.readouterr().out == text
    values = kind.read(file).to_dict()
    assert options.items() <= values.items()
    assert text.count("# ") == len(values)


def test_recipes(capsys):
    def printed(*argv):
        assert train.main(["--print-config", *argv]) == 0
        return yaml.safe_load(capsys.readouterr().out)

    assert printed("--recipe", "quick")["learning_rate"] == 3e-3
    values = printed("--recipe", "quick", "--steps", "20")
    assert (values["steps"], values["warmup_steps"]) == (20, 1)
    values = printed("--recipe", "quick", "--set", "num_layers=2")
    assert values["config"] == "tiny" and values["set"][-1] == "num_layers=2"
    values = printed("--recipe", "quick", "--config", "small")
    assert values["config"] == "small" and values["set"] == []
    values = printed("--recipe", "large", "--batch-size", "64")
    # the paper's table 7, but what is given
    found = values["steps"], values["warmup_steps"]
    assert found == (500_000, 40_000)
    assert values["batch_size"] == 64
    values = printed("--recipe", "base")  # BERT-Base's
    found = values["steps"], values["warmup_steps"], values["batch_size"]
    assert found == (1_000_000, 10_000, 256)
    options = train.parse_arguments(
        "--records r --output o --recipe quick --set dropout=0.2".split()
    )
    settings = train.read_settings(options)
    assert (settings.steps, settings.config) == (1000, "tiny")
    config = XLNetConfig.from_size("tiny", vocabulary_size=50)
    config = with_fields(config, settings.set)
    assert (config.num_heads, config.head_dim) == (4, 32)
    assert (config.initializer_range, config.dropout) == (0.08, 0.2)
    options = train.parse_arguments(["--records", "r", "--output", "o"])
    with pytest.raises(ValueError, match="give --steps N, or --recipe"):
        train.read_settings(options)


def test_fields_of_the_model_by_options(tmp_path, capsys):
    records = artefacts.Artefacts(tmp_path).get("records")
    argv = ["--records", str(records), "--output", str(tmp_path / "run")]
    argv += ["--steps", "1", "--batch-size", "2", "--config", "tiny"]
    for values, message in (
        (["num_layer=3"], "did you mean num_layers?"),
        (["num_layers"], "--set takes NAME=VALUE"),
        (["num_layers=none"], "`num_layers` must be a positive"),
        (["num_layers=[3"], "--set num_layers=[3: "),
        (["num_heads=3"], "`hidden_dim`"),
    ):
        options = [x for value in values for x in ("--set", value)]
        assert command_line.run(train.main, [*argv, *options]) == 1
        assert message in capsys.readouterr().err, values
    assert not (tmp_path / "run" / "run.json").exists()
    options = ["--set", "num_layers=1", "--set", "hidden_dim=32"]
    assert train.main([*argv, *options]) == 0
    assert "1 layers x 32, 2 heads" in capsys.readouterr().out


def test_what_a_backend_cannot_do_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    path = str(tmp_path)
    for name, options in (
        ("finetune", ["--task", "rte", "--data", path, "--preset", path]),
        ("evaluate", ["--model", path, "--text", path]),
        ("export", ["--model", path]),
    ):
        output = str(tmp_path / "output")
        assert xlnet.main([name, *options, "--output", output]) == 1
        message = capsys.readouterr().err
        needs = "needs Keras' backend tensorflow or jax. Received: torch, from"
        assert needs in message
    assert not (tmp_path / "output").exists()
