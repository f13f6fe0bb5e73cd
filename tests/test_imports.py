"""The house rules: who may import whom, and how long things may be."""

import ast
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("xlnet_tf", "data_pipeline", "saved_models")
FILES = [
    pytest.param(file, id=str(file.relative_to(ROOT)))
    for package in PACKAGES
    for file in sorted((ROOT / package).rglob("*.py"))
]


def package(name):
    return [f for f in FILES if f.id.split("/")[0] == name]


def tree(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(nodes):
    """Full dotted names that these nodes and all inside them import."""
    found = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, "imports are absolute here"
                found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def top_level_imports(file):
    """Those that run when the file is imported."""
    body = tree(file).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return imports(node for node in body if not isinstance(node, kinds))


def all_imports(file):
    return imports([tree(file)])


def roots(names):
    return {name.split(".")[0] for name in names}


def is_command(file):
    names = ("train", "finetune", "convert")
    return file.stem in names or file.stem.startswith(
        ("training", "finetuning")
    )


def is_preprocessor(file):
    return file.parent.name == "tasks" and "preprocessor" in file.stem


def may_use_tensorflow(file):
    return (
        is_command(file)
        or file.stem == "strategy"
        or file.parent.name == "checkpoints"
    )


@pytest.mark.parametrize("file", package("data_pipeline"))
def test_the_data_pipeline_knows_no_model(file):
    forbidden = {"keras", "tf_keras", "xlnet_tf", "saved_models", "tests"}
    assert not roots(all_imports(file)) & forbidden


@pytest.mark.parametrize("file", package("xlnet_tf"))
def test_the_core_needs_no_tensorflow(file):
    heavy = {"tensorflow", "tensorflow_text", "orbit", "official", "jax"}
    if not may_use_tensorflow(file):
        assert not roots(top_level_imports(file)) & heavy


@pytest.mark.parametrize("file", package("xlnet_tf"))
def test_only_commands_and_preprocessors_know_the_data_pipeline(file):
    if is_preprocessor(file):
        # When the first text comes, so that the models need no tokenizer.
        assert "data_pipeline" not in roots(top_level_imports(file))
    elif not is_command(file):
        assert "data_pipeline" not in roots(all_imports(file))
    assert "tests" not in roots(all_imports(file))


@pytest.mark.parametrize("file", package("saved_models"))
def test_serving_knows_the_model_and_graphs_of_text_only(file):
    ours = {
        name
        for name in all_imports(file)
        if name.startswith(("data_pipeline", "tests"))
    }
    # The signatures of tasks lay out sequences as the preprocessors do.
    allowed = (
        "tokenizer",
        "Tokenizer",
        "symbols",
        "command_line",
        "cpp_log",
        "packing",
        "data_pipeline.graph_",
        "unicode_tables",
    )
    if file.stem == "task_comparison":  # reads what a task's files say is right
        allowed += ("task_", "span_merging", "squad_evaluation")
    for name in ours:
        assert any(part in name for part in allowed), name


def test_importing_the_library_loads_nothing_heavy():
    code = (
        "import sys, xlnet_tf; "
        "print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "xlnet_tf" in loaded
    heavy = {
        "data_pipeline",
        "official",
        "orbit",
        "saved_models",
        "sentencepiece",
        "tensorflow_text",
        "transformers",
    }
    assert not heavy & set(loaded)


@pytest.mark.parametrize("file", FILES)
def test_files_and_functions_stay_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400
    for node in ast.walk(tree(file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < 75, node.name


@pytest.mark.parametrize("file", FILES)
def test_the_library_neither_asserts_nor_prints_nor_catches_blindly(file):
    for node in ast.walk(tree(file)):
        where = f"{file}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), where
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, where
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", where


def test_no_file_has_a_name_that_says_nothing():
    empty = {"utils", "util", "misc", "common", "helpers", "helper"}
    for file in FILES:
        parts = set(pathlib.Path(file.id).with_suffix("").parts)
        assert not parts & empty, file.id


def test_console_scripts_exist():
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    scripts = re.findall(r'"xlnet-[a-z-]+ = ([\w.]+):(\w+)"', text)
    assert len(scripts) == 7
    for module, function in scripts:
        assert callable(getattr(importlib.import_module(module), function))
