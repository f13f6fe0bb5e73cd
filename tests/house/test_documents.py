"""What the documents name is there; their commands run in `tests/slow`."""

import json
import re

from tests.conftest import ROOT
from tests.house import options

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
    ]
)


def test_every_command_of_make_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for file in (*DOCUMENTS, ROOT / ".ci" / "run"):
        text = file.read_text(encoding="utf-8")
        for target in re.findall(r"(?:^|[`&])\s*make ([a-z-]+)", text, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), (file, target)


def test_files_and_links_exist():
    folders = "tests|benchmarks|examples|docs|xlnet_tf|data_pipeline"
    folders += r"|saved_models/(?:signatures|client|serving)"
    for file in DOCUMENTS:
        text = file.read_text(encoding="utf-8")
        for name in re.findall(rf"`((?:{folders})/[\w./]*)`", text):
            assert (ROOT / name).exists(), f"{file.name}: {name}"
        for name in re.findall(r"\]\(([\w./]+)\)", text):
            assert (file.parent / name).exists(), f"{file.name}: {name}"


def test_options_named_exist():
    """Every `--option` is one of a command, of make's programs, or Beam's."""
    kept = json.loads(options.FILE.read_text(encoding="utf-8"))
    # Those of a subcommand have its name before them.
    known = {x.split()[-1] for command in kept.values() for x in command}
    for file in (
        *(ROOT / "benchmarks").glob("*.py"),
        *(ROOT / "examples").glob("*.py"),
        ROOT / "tests/conftest.py",
        ROOT / "tests/house/unchanged/__main__.py",
        ROOT / "tests/torture/__main__.py",
    ):
        known |= set(re.findall(r'"(--[a-z-]+)"', file.read_text("utf-8")))
    others = {
        "--no-build-isolation",  # pip
        "--no-deps",
        "--require-hashes",
        "--strict",  # twine
        "--local-dir",  # hf
        "--rm",  # docker
        "--worker",  # gcloud
        "--command",
        "--tf_xla_persistent_cache_directory",
        "--direct_num_workers",
        "--direct_running_mode",
        "--enable_per_model_batching_parameters",  # TensorFlow Serving
        "--plugin_config",  # OpenVINO Model Server
    }
    for file in DOCUMENTS:
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"(?<![\w-])--[a-z][a-z_0-9-]*", text):
            assert name in known | others, f"{file.name}: {name}"
