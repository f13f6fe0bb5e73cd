"""Two systems compared from end to end, in parts, after a stop.

Quicker tests hold the commands and the table; none runs them one after the
other.
"""

import importlib
import json

import pytest
import yaml

from data_pipeline.base import command_line
from examples import commands
from examples.compare_objectives import SETTINGS
from examples.compare_objectives import main
from tests.support import finetuning_fixtures as fixtures
from tests.support.samples import tiny_sentences


@pytest.fixture
def started(monkeypatch):
    """Modules that were run, in this process, which starts no other."""
    names = []

    def run(option, module, *arguments, capture=False):
        names.append(module)
        program = importlib.import_module(module).main
        status = command_line.run(program, [str(x) for x in arguments])
        if status:
            raise SystemExit(status)

    monkeypatch.setattr(commands, "run", run)
    return names


def test_two_systems(tmp_path, started, monkeypatch, capsys):
    sentences = list(tiny_sentences(400))
    groups = ["\n".join(sentences[i : i + 10]) for i in range(0, 400, 10)]
    (tmp_path / "text.txt").write_text("\n\n".join(groups), encoding="utf-8")
    data = fixtures.write_task(tmp_path / "data", "classification")
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    settings["vocabulary_size"] = 300
    settings["records"] |= {"sequence_length": 32, "validation_fraction": 0.2}
    settings["model"] |= {"num_layers": 1, "hidden_dim": 16, "head_dim": 8}
    settings["model"] |= {"intermediate_dim": 16}
    settings["xlnet"] = {"memory_length": 8}
    settings["bert"] |= {"max_positions": 32}
    quick = {"steps_per_loop": 2, "evaluation_interval": 2, "steps": 4}
    settings["pretraining"] |= {**quick, "batch_size": 4, "jit_compile": False}
    settings["pretraining"] |= {"checkpoint_interval": 2}
    settings["finetuning"] |= {**quick, "batch_size": 8, "warmup_steps": 1}
    settings["finetuning"]["sequence_length"] = 32
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    monkeypatch.setattr("examples.compare_objectives.TIMED_STEPS", 2)
    argv = ["--text", tmp_path / "text.txt", "--text-format", "sentences"]
    argv += ["--tasks", f"classification={data}", "--settings", file]
    argv += ["--output", tmp_path / "out", "--seeds", 2]
    argv = [str(x) for x in argv]

    assert command_line.run(main, [*argv, "--only", "bert"]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 parts to do, about" in printed
    assert "part 2 of 2 done in" in printed
    assert started[-2:] == ["xlnet_tf.train", "xlnet_tf.finetune"]
    done = len(started)
    assert command_line.run(main, [*argv, "--only", "bert", "unilm-par"]) == 0
    # Records and tokenizer are there already, and so is the first system.
    assert started[done:] == ["xlnet_tf.train", "xlnet_tf.finetune"]
    assert "2 of 4 parts to do" in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert list(results) == ["bert", "unilm-par"]
    for result in results.values():
        assert [tokens for tokens, _ in result["curve"]] == [256, 512]
        assert all(bits > 5 for _, bits in result["curve"])  # of 8.2
        assert len(result["tasks"]["classification"]["all"]) == 2
        assert result["tokens"] == 512 and result["parameters"] > 5000
    assert "| BERT |" in (tmp_path / "out" / "table.md").read_text()
    for suffix in ("png", "svg"):
        picture = tmp_path / "out" / f"comparison.{suffix}"
        assert picture.stat().st_size > 5000
