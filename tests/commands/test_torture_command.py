"""`make torture`: its kinds of faults, counts, table and exit status."""

import types

import pytest

from tests.torture import __main__ as torture


def kind(*problems):
    """A kind of fault whose trials end so, and that keeps what it was given."""
    module = types.ModuleType("kind", "Nothing is lost.\n\nMore.")
    module.TRIALS, module.given = len(problems), []

    def trials(count, directory, generator):
        assert directory.is_dir() and not list(directory.iterdir())
        module.given.append((count, generator.random()))
        for number, problem in enumerate(problems[:count]):
            yield f"label {number % 2}", problem

    module.trials = trials
    return module


def test_what_broke_is_counted_and_ends_with_an_error(
    tmp_path, monkeypatch, capfd
):
    whole, broken = kind(None, None, None), kind(None, "weights differ", None)
    monkeypatch.setattr(
        torture, "kinds", lambda: {"whole": whole, "broken": broken}
    )
    output = ["--output", str(tmp_path / "out")]
    assert torture.main(output) == 1
    captured = capfd.readouterr()
    assert "BROKEN broken, label 1: weights differ" in (
        captured.out + captured.err
    )
    table = (tmp_path / "out" / "torture.md").read_text()
    assert table.strip() in captured.out
    lines = table.splitlines()
    assert lines[2:5] == [
        "| Nothing is lost. | label 0 | 2 | 2 |",
        "| Nothing is lost. | label 1 | 1 | 1 |",
        "| | **whole**, 0 min | 3 | 3 |",
    ]
    assert "| Nothing is lost. | label 1 | 1 | 0 |" in lines[5:]
    only = [*output, "--only", "whole", "--trials", "1", "--seed", "3"]
    assert torture.main(only) == 0 == torture.main(only)
    with pytest.raises(ValueError, match="`--trials` must be at least 1"):
        torture.main([*output, "--trials", "0"])
    counts, draws = zip(*whole.given, strict=True)
    assert counts == (3, 1, 1)
    assert draws[1] == draws[2] != draws[0]


def test_every_kind_has_a_promise_and_a_number_of_trials():
    for name, module in torture.kinds().items():
        assert module.__doc__.splitlines()[0].endswith("."), name
        assert module.TRIALS >= 1, name
