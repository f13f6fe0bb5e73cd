"""The first line of a docstring: a noun phrase or an imperative, no riddle."""

import ast

from tests.conftest import ROOT

FOLDERS = (
    "xlnet_tf",
    "data_pipeline",
    "saved_models",
    "benchmarks",
    "examples",
)
# As in "What the state of a layer is" or "Of [B, Q, N, H]". "Whether" is how
# the docstrings of predicates begin.
RIDDLES = frozenset(
    "As Beside How Of That What When Where Which Who Whom Whose Why".split()
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_lines(tree):
    """Yield (line number, first line) of the docstrings of a module's tree."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.splitlines()[0]


def is_riddle(line):
    return line.split()[0].strip(",.:;") in RIDDLES


def test_docstrings_begin_with_a_noun_phrase_or_an_imperative():
    wrong = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            tree = ast.parse(file.read_text(encoding="utf-8"))
            wrong += [
                f"{path}:{number}: {line}"
                for number, line in first_lines(tree)
                if is_riddle(line)
            ]
    assert not wrong, "\n".join(wrong)


def test_riddles_are_found():
    tree = ast.parse(
        '"""Of shapes."""\n'
        "class A:\n"
        '    """Whether it is."""\n'
        "    def _f(self):\n"
        '        """Why it fails."""\n'
    )
    found = [line for _, line in first_lines(tree) if is_riddle(line)]
    assert found == ["Of shapes.", "Why it fails."]
