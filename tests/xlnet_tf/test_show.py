"""`python -m xlnet_tf.show`: files of all pictures, and bad options."""

import fsspec

from data_pipeline.base import command_line
from tests.support.artefacts import TOKENIZER
from tests.support.commands import refused
from xlnet_tf import show


def run(*arguments):
    return command_line.run(show.main, [str(x) for x in arguments])


def test_every_picture(pretrained, tmp_path, capsys):
    """In both formats."""
    model = ["--model", pretrained, "--text", "ba co fi"]
    for number, arguments in enumerate(
        (
            ["masks", "--pieces", *"abc", "--order", 3, 1, 2],
            ["masks", "--text", "ba co", "--tokenizer", TOKENIZER],
            ["masks", "--pieces", *"abc", "--blocks", "3,1", "2"],
            ["attention", *model, "--head", 0],
            ["memory", *model, "--before", "gu ha", "--layer", 0],
            ["memory", *model, "--before", "gu ha", "--distances"],
            ["curve", pretrained, "--metric", "accuracy"],
        )
    ):
        file = tmp_path / f"{number}.{('png', 'svg')[number % 2]}"
        assert run(*arguments, "--output", file) == 0, arguments
        assert capsys.readouterr().out == f"wrote {file}\n"
        begin = file.read_bytes()[:5]
        assert begin == (b"\x89PNG\r", b"<?xml")[number % 2]


def test_a_picture_in_a_bucket(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    masks = ["masks", "--pieces", *"abc", "--output"]
    assert run(*masks, "memory://pictures/a.png") == 0
    assert capsys.readouterr().out == "wrote memory://pictures/a.png\n"
    memory = fsspec.filesystem("memory")
    assert memory.cat("/pictures/a.png").startswith(b"\x89PNG\r")
    memory.rm("/pictures", recursive=True)
    for output, message in (
        ("nosuch://a/b.png", "error: nosuch://a/b.png: paths that begin with"),
        ("hf://a/b.png", "error: hf://a/b.png is a model; give"),
    ):
        line = refused(capsys, show.main, *masks, output)
        assert line.startswith(message)
    assert not list(tmp_path.iterdir())


def test_bad_options_end_in_one_line(pretrained, tmp_path, capsys):
    pieces = ["masks", "--pieces", "a", "b"]
    model = ["--model", pretrained, "--text", "ba"]
    for arguments, message in (
        ([*pieces, "--output", "a.gif"], "--output must end in .png or .svg"),
        (["masks"], "either --pieces or --text"),
        ([*pieces, "--text", "a"], "either --pieces or --text"),
        (["masks", "--text", "a"], "--text needs --tokenizer"),
        ([*pieces, "--order", "1", "x"], "--order takes positions"),
        ([*pieces, "--order", "1", "3"], "each position from 1 to 2 once"),
        ([*pieces, "--order", "up"], "`order` must be forward"),
        ([*pieces, "--blocks", "1,x"], "--blocks takes positions"),
        (
            [*pieces, "--blocks", "1", "--order", "forward"],
            "either --order or --blocks",
        ),
        (["attention", *model, "--layer", "7"], "`layer` must be from 0"),
        (
            ["attention", *model, "--distances", "--head", "0"],
            "leave --layer and --head out",
        ),
        (["curve", tmp_path], "there is no metrics.jsonl"),
    ):
        output = ["--output", tmp_path / "a.png"]
        given = arguments if "--output" in arguments else [*arguments, *output]
        assert run(*given) == 1, arguments
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and message in lines[0], lines
        assert not (tmp_path / "a.png").exists()
