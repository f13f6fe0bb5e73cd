"""`python -m xlnet_tf.generate`: prompts from files, JSON lines, resuming."""

import contextlib
import json

import fsspec
import pytest

from data_pipeline.base.command_line import run
from tests.support.commands import refused
from tests.xlnet_tf.generation.test_generator import PROMPTS
from tests.xlnet_tf.generation.test_generator import model_of
from tests.xlnet_tf.tasks.test_seq2seq import task_of as seq2seq_of
from xlnet_tf import generate
from xlnet_tf.generation import generator

pytestmark = pytest.mark.usefixtures("eager_functions")
SETTINGS = ["--max-new-tokens", "4"]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("generate") / "preset"
    model_of("permutation").save_to_preset(path)
    return str(path)


def lines(text):
    return [json.loads(line) for line in text.split("\n") if line]


def test_prompts_of_options_and_files(preset, tmp_path, capsys):
    file = tmp_path / "prompts.NDJSON"
    file.write_text('{"id": 7, "prompt": "co ba"}\n{"prompt": ""}\n')
    command = ["--model", preset, "--prompt", PROMPTS[0], *SETTINGS]
    assert run(generate.main, [*command, "--input", str(file)]) == 1
    output = capsys.readouterr()
    first, second, third = lines(output.out)
    expected = model_of("permutation").generate(
        [PROMPTS[0], "co ba"], strip_prompt=True, max_new_tokens=4
    )
    assert first["prompt"] == PROMPTS[0]
    assert [first["texts"][0]["text"], second["texts"][0]["text"]] == expected
    assert second["id"] == 7
    assert "this one is empty" in third["error"]
    assert "1 of 3 prompts could not be read" in output.err


def test_a_tokenizer_for_sources(tmp_path, capsys):
    """Given to a model that has none."""
    task, file = seq2seq_of("query"), tmp_path / "spiece.model"
    expected = task.generate(["ba co fi"], max_new_tokens=4)
    file.write_bytes(task.preprocessor.tokenizer.model_proto)
    task.preprocessor = None
    task.save_to_preset(tmp_path / "model")
    command = ["--model", str(tmp_path / "model"), "--prompt", "ba co fi"]
    assert run(generate.main, [*command, *SETTINGS]) == 1
    capsys.readouterr()
    command += ["--tokenizer", str(file)]
    assert run(generate.main, [*command, *SETTINGS]) == 0
    (line,) = lines(capsys.readouterr().out)
    assert [x["text"] for x in line["texts"]] == expected


@contextlib.contextmanager
def stopped_at_the_second_batch():
    """The command is stopped, as by Ctrl-C."""
    made, calls = generator.TextGenerator.generate, []

    def stops(self, prompts, numbers):
        calls.append(numbers)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(self, prompts, numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator.TextGenerator, "generate", stops)
        yield


def test_a_stopped_command_goes_on(preset, tmp_path, capsys):
    file, output = tmp_path / "prompts.txt", tmp_path / "out" / "texts.jsonl"
    # A line may hold what Python too takes for the end of one.
    file.write_text("\n".join(["ba\u2028co", *PROMPTS[1:]]))
    command = ["--model", preset, "--input", str(file), *SETTINGS]
    command += ["--output", str(output), "--batch-size", "1", "--top-k", "9"]
    assert run(generate.main, command) == 0
    expected = output.read_text()
    assert len(lines(expected)) == 3
    output.unlink()
    with stopped_at_the_second_batch():
        assert run(generate.main, command) == 130
    assert not output.exists()
    assert run(generate.main, command) == 0
    assert "1 of 3 are done" in capsys.readouterr().err
    assert output.read_text() == expected
    assert list(output.parent.iterdir()) == [output]


def test_texts_in_a_bucket(preset, tmp_path, monkeypatch, capsys):
    """As on a disk; what a stop leaves is written when it comes."""
    monkeypatch.chdir(tmp_path)
    command = ["--model", preset, "--batch-size", "1", *SETTINGS]
    command += [f"--prompt={prompt}" for prompt in PROMPTS] + ["--output"]
    assert run(generate.main, [*command, "texts.jsonl"]) == 0
    expected = (tmp_path / "texts.jsonl").read_bytes()
    memory = fsspec.filesystem("memory")
    with stopped_at_the_second_batch():
        assert run(generate.main, [*command, "memory://far/texts.jsonl"]) == 130
    assert memory.ls("/far", detail=False) == ["/far/texts.jsonl.partial"]
    assert run(generate.main, [*command, "memory://far/texts.jsonl"]) == 0
    assert "1 of 3 are done" in capsys.readouterr().err
    assert memory.ls("/far", detail=False) == ["/far/texts.jsonl"]
    assert memory.cat("/far/texts.jsonl") == expected
    memory.rm("/far", recursive=True)
    uploaded = {}

    def upload(source, path):
        uploaded[path] = source.read_bytes()

    monkeypatch.setattr("data_pipeline.base.hub.upload", upload)
    assert run(generate.main, [*command, "hf://a/b/texts.jsonl"]) == 0
    assert uploaded == {"hf://a/b/texts.jsonl": expected}
    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]
    command[1] = "nowhere"  # the place is refused before a model is read
    for output in ("https://127.0.0.1:1/a", "nosuch://far/a", "hf://a/b"):
        line = refused(capsys, generate.main, *command, output)
        assert line.startswith(f"error: {output}")


def test_progress(preset, tmp_path, told):
    command = ["--model", preset, *SETTINGS]
    command += [x for prompt in PROMPTS[:2] for x in ("--prompt", prompt)]
    for options in ((), ("--output", tmp_path / "texts.jsonl")):
        found = told(generate.main, *command, *options)
        assert "generating: 2 of 2 texts, 100%" in found
        assert told(generate.main, *command, *options, "--quiet") == ""


def test_a_stream_prints_the_text(preset, capsys):
    command = ["--model", preset, "--prompt", PROMPTS[0], "--stream"]
    assert run(generate.main, [*command, *SETTINGS]) == 0
    expected = model_of("permutation").generate(PROMPTS[0], max_new_tokens=4)
    assert capsys.readouterr().out == f"{expected}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is nothing to continue"),
        (["--prompt", "b", "--stream", "--num-beams", "2"], "--num-beams 1"),
        (["--prompt", "b", "--stream", "--output", "o"], "leave --output out"),
        (["--prompt", "b", "--num-sequences", "2"], "as many beams"),
        (["--prompt", "b", "--segment-length", "2"], "a model with memory"),
        (["--input", "prompts.csv"], "one per line, or JSON lines"),
    ],
)
def test_options_that_do_not_fit(preset, options, message, capsys):
    line = refused(capsys, generate.main, "--model", preset, *options)
    assert message in line


def test_a_failed_line_is_tried_again(preset, tmp_path):
    """Without the error of its first try."""
    prompts, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "ba", "error": "too long", "id": 3}\n')
    argv = ["--model", preset, "--input", prompts, "--output", output]
    argv += ["--max-new-tokens", 1]
    assert generate.main([str(x) for x in argv]) == 0
    (line,) = lines(output.read_text())
    assert line["id"] == 3 and line["texts"] and "error" not in line


def test_prompts_that_are_no_unicode(preset, tmp_path, capsys):
    """Lone surrogates: JSON's escapes, and bytes of the command line."""
    prompts, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "\\ud800 ba"}\n')
    argv = ["--model", preset, "--input", prompts, *SETTINGS]
    assert run(generate.main, [*map(str, argv), "--output", str(output)]) == 0
    (line,) = lines(output.read_text())
    assert line["prompt"] == "\ud800 ba" and line["texts"]
    argv = ["--model", str(preset), "--prompt", "ba \udcff", *SETTINGS]
    assert run(generate.main, argv) == 0
    assert lines(capsys.readouterr().out)[0]["prompt"] == "ba \udcff"
    assert run(generate.main, [*argv, "--stream"]) == 0
    assert capsys.readouterr().out.startswith("ba \\udcff ")


def test_a_line_without_a_prompt_is_named(preset, tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "b"}\n{"text": "b"}\n')
    assert run(generate.main, ["--model", preset, "--input", str(file)]) == 1
    assert "prompts.jsonl, line 2" in capsys.readouterr().err
