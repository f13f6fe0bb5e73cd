"""The commands of README.md and BUILD.md run as they are written.

Blocks under `<!-- run: name -->` are run in one directory, in this order, made
smaller by the replacements below and nothing else.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.support.samples import tiny_sentences

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```(sh|python)\n(.*?)```", re.DOTALL)
SMALLER = {
    "--vocabulary-size 8000": "--vocabulary-size 300",
    "--steps 1000": "--steps 2",
    "--batch-size 16": "--batch-size 4",
    "--config small": "--config tiny",
}


def blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return {title: (kind, body) for title, kind, body in BLOCK.findall(text)}


def write_text(directory):
    (directory / "text").mkdir()
    sentences = list(tiny_sentences(1600))
    for number in range(8):
        file = directory / "text" / f"{number}.txt"
        lines = sentences[200 * number : 200 * (number + 1)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "reviews").mkdir()
    for split, begin, end in (("train", 0, 40), ("dev", 40, 60)):
        rows = [
            f"{sentence}\t{'good' if number % 2 else 'bad'}"
            for number, sentence in enumerate(sentences[begin:end])
        ]
        table = "\n".join(["text\tlabel", *rows]) + "\n"
        (directory / "reviews" / f"{split}.tsv").write_text(table)


def run(kind, body, directory):
    for long, short in SMALLER.items():
        body = body.replace(long, short)
    command = (
        ["bash", "-euo", "pipefail", "-c", body]
        if kind == "sh"
        else [sys.executable, "-c", body]
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # `python` is the one that runs the tests.
    bin_directory = directory / "bin"
    bin_directory.mkdir(exist_ok=True)
    if not (bin_directory / "python").exists():
        wrapper = bin_directory / "python"
        wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        wrapper.chmod(0o755)
    result = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        encoding="utf-8",
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    assert result.returncode == 0, f"{body}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.mark.slow
def test_the_readme_runs(tmp_path):
    found = blocks("README.md")
    assert list(found) == ["quickstart", "python"]
    write_text(tmp_path)
    printed = run(*found["quickstart"], tmp_path)
    assert '"filled": "The ' in printed
    printed = run(*found["python"], tmp_path)
    assert "(1, 4, 128)" in printed  # tiny here, small there
    assert (tmp_path / "mine.keras").is_file()


@pytest.mark.slow
def test_build_md_runs(tmp_path):
    found = blocks("BUILD.md")
    write_text(tmp_path)
    names = ("tokenizer", "agreement", "records", "train", "finetune")
    names += ("convert", "export")
    for name in names:
        printed = run(*found.pop(name), tmp_path)
        if name == "agreement":
            assert "100" in printed
    assert '"filled": "The ' in printed
    assert not found


def test_every_command_of_make_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("README.md", "BUILD.md", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"^\s*make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_and_files_named_in_the_documents_exist():
    for name in ("README.md", "BUILD.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        files = re.findall(r"`((?:tests|benchmarks|examples)/[\w./]+)`", text)
        files += re.findall(r"\]\((\w[\w./]+)\)", text)
        assert files
        for file in files:
            assert (ROOT / file).exists(), f"{name}: {file}"
