"""The commands of README.md, BUILD.md and docs/ run as they are written.

Blocks below `<!-- run: name -->` run in one directory, in the order of the
documents below, made smaller by the replacements and nothing else. They run
outside of the checkout, with the wheel that a release uploads.
"""

import importlib.util
import os
import random
import re
import subprocess

import pytest

from tests.conftest import ROOT
from tests.support.preloaded import preloaded_python
from tests.support.samples import tiny_sentences
from tests.support.wheel import build
from tests.support.wheel import install

BLOCK = re.compile(r"<!-- run: (\w+) -->\n```(sh|python)\n(.*?)```", re.DOTALL)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
)
SMALLER = {
    # Of README alone as it is. With so many pieces of so few syllables, some
    # segmentations have equal scores, which Python and the graph may resolve
    # differently (docs/records.md).
    "--vocabulary-size 8000": "--vocabulary-size 300",
    "--steps 1000": "--steps 2",
    "--batch-size 16": "--batch-size 4",
    "--config small": "--config tiny --set num_layers=1",
    "--recipe quick": "--recipe quick --set num_layers=1 --steps 2 "
    "--batch-size 4 --no-jit-compile",
    "--epochs 3": "--epochs 0.4",
}


def blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return {title: (kind, body) for title, kind, body in BLOCK.findall(text)}


def made_smaller(body):
    for long, short in SMALLER.items():
        body = body.replace(long, short)
    return body


def write_text(directory, files=8):
    (directory / "text").mkdir()
    sentences = list(tiny_sentences(1600))
    for number in range(files):
        file = directory / "text" / f"{number}.txt"
        lines = sentences[number::files]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw = random.Random(0)
    with open(directory / "proteins.fasta", "w", encoding="utf-8") as file:
        for number in range(200):
            residues = draw.choices("ACDEFGHIKLMNPQRSTVWY", k=180)
            lines = ["".join(residues[i : i + 60]) for i in (0, 60, 120)]
            file.write("\n".join([f">sp|P{number}|X of a cell", *lines, ""]))
    (directory / "reviews").mkdir()
    rows = [
        (sentence.replace('"', ""), ("bad", "good")[number % 2])
        for number, sentence in enumerate(sentences[:60])
    ]
    for file, separator, some in (
        ("reviews/train.tsv", "\t", rows[:40]),
        ("reviews/dev.tsv", "\t", rows[40:]),
        ("reviews.csv", ",", [(f'"{text}"', label) for text, label in rows]),
    ):
        lines = [separator.join(row) for row in [("text", "label"), *some]]
        (directory / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Path of a folder in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    _, wheel = build(folder)
    install(wheel, folder / "site")
    return folder / "site"


@pytest.fixture
def run(tmp_path, installed):
    """Function that runs a block in `tmp_path` and returns what it prints."""
    (tmp_path / "bin").mkdir()
    programs = [tmp_path / "bin", installed / "bin", os.environ["PATH"]]
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PATH": os.pathsep.join(map(str, programs)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }

    def run_block(kind, body):
        shell = ["bash", "-euo", "pipefail"]
        result = subprocess.run(
            [*(shell if kind == "sh" else [python]), "-c", made_smaller(body)],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            env=environment,
        )
        assert result.returncode == 0, f"{body}\n{result.stderr[-3000:]}"
        return result.stdout

    with preloaded_python(tmp_path / "bin", environment) as python:
        yield run_block


def test_the_readme_runs(tmp_path, run, installed):
    printed = run("python", "import xlnet_tf\nprint(xlnet_tf.__file__)")
    assert printed.startswith(str(installed))
    found = blocks("README.md")
    assert list(found) == ["quickstart", "python", "finetune"]
    write_text(tmp_path, files=1)
    assert (tmp_path / "text/0.txt").stat().st_size < 120_000
    kind, body = found["quickstart"]
    assert "--vocabulary-size 8000" in body
    printed = run(kind, body.replace("size 8000", "size=8000"))
    assert '"filled": "The ' in printed
    assert "128 tokens" in run("sh", "xlnet inspect records")
    printed = run(*found["python"])
    assert "(1, 4, 128)" in printed
    assert (tmp_path / "mine.keras").is_file()
    run(*found["finetune"])
    assert (tmp_path / "saved_models/reviews/1/saved_model.pb").is_file()


def test_a_model_of_ones_own_runs(tmp_path, run):
    """All blocks of that page are one program."""
    text = (ROOT / "docs/own_model.md").read_text(encoding="utf-8")
    body = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(body) >= 10 and text.count("```") == 2 * len(body)
    is_missing = importlib.util.find_spec("onnxruntime") is None
    if is_missing:
        body = [x for x in body if "onnx" not in x]
    assert "(4, 16, 192)" in run("python", "\n".join(body))
    assert (tmp_path / "task.tflite").is_file()
    if is_missing:
        pytest.skip("without ONNX: needs the extra `onnx`")


def test_build_md_and_the_guides_run(tmp_path, run):
    write_text(tmp_path)
    printed = {}
    names = ["BUILD.md", *(x for x in DOCUMENTS if x.startswith("docs/"))]
    for name in names:
        for title, block in blocks(name).items():
            if title != "bucket":  # test_bucket.py
                printed[title] = run(*block)
    assert set(printed) == {
        *("tokenizer", "records", "train", "settings", "finetune", "convert"),
        *("export", "client", "causal", "perplexity", "objective", "agreement"),
        *("continue", "generate", "generating", "score", "fill", "show"),
        "proteins",
    }
    assert '"filled": "The ' in printed["export"]
    assert "100" in printed["agreement"]
    settings = (tmp_path / "runs/settings/training.json").read_text()
    assert '"learning_rate": 0.0005' in settings
    assert (tmp_path / "runs/reviews/predictions.jsonl").is_file()
