"""`benchmarks/pretraining_gain.py`: its text and its table."""

import pytest

from benchmarks import pretraining_gain as gain


def test_text_is_found_below_the_data(tmp_path):
    (tmp_path / "lm" / "novels" / "train").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="there is no text below"):
        gain.find_text(tmp_path)
    names = ["wiki_train.txt.xz", "novels/train/one.txt"]
    for name in (*names, "novels/one.txt", "wiki.txt"):
        (tmp_path / "lm" / name).write_text("")
    assert gain.find_text(tmp_path) == [str(tmp_path / "lm" / x) for x in names]


def test_table():
    def runs(*values):
        return [
            {
                "metric": "f1",
                "examples": 5061,
                "metrics": {"f1": v, gain.ALSO: 1},
            }
            for v in values
        ]

    starts = {"random": runs(0.1, 0.4, 0.2), "pretrained": runs(0.5, 0.3, 0.25)}
    lines = gain.table({"squad-2.0": starts}).splitlines()
    assert lines[2] == (
        "| squad-2.0 | 5,061 | f1 | 0.200 (0.100 to 0.400) "
        "| 0.300 (0.250 to 0.500) | +0.100 |"
    )
    assert lines[3].startswith(f"| squad-2.0 | 5,061 | {gain.ALSO} | 1.000")
