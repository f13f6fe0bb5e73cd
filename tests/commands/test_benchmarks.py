"""The benchmark runs at tiny sizes, and its arithmetic is right.

How long anything takes is asserted nowhere.
"""

import importlib
import pathlib

import numpy as np
import pytest

from benchmarks import any_order
from benchmarks import gpu
from benchmarks import run
from benchmarks import tpu_step
from benchmarks.contest import process
from benchmarks.contest import report
from benchmarks.contest import rounds
from benchmarks.contest.rounds import quartiles
from benchmarks.contest.rounds import ratios
from benchmarks.measurements.measurement import Contender
from benchmarks.measurements.measurement import Measurement
from benchmarks.workload import batches
from benchmarks.workload import flops
from benchmarks.workload import texts
from benchmarks.workload.sizes import TINY


def test_every_command_explains_itself(capsys):
    for file in sorted((process.ROOT / "benchmarks").glob("[!_]*.py")):
        command = importlib.import_module(f"benchmarks.{file.stem}")
        with pytest.raises(SystemExit) as ended:
            command.main(["--help"])
        assert ended.value.code == 0, file.stem
        assert command.__doc__.splitlines()[0] in capsys.readouterr().out


def test_list(capsys):
    assert run.main(["--list", "--contender", "KerasHub*"]) == 0
    printed = capsys.readouterr().out
    assert "inference_1x128: " in printed
    assert "KerasHub, XLA" in printed
    assert "training_step" not in printed


def test_a_measurement_that_is_not_there():
    with pytest.raises(SystemExit, match="no measurement training_stp.*export"):
        run.main(["--list", "--only", "training_stp"])
    with pytest.raises(SystemExit, match="no contender's name fits"):
        run.main(["--list", "--contender", "Nobody"])


def test_quartiles():
    values = [7.0, 1.0, 2.0, 11.0, 3.0, 5.0]
    expected = np.percentile(values, [25, 50, 75])
    np.testing.assert_allclose(quartiles(values), expected)
    assert quartiles([3.0]) == [3.0] * 3


def test_ratios_are_those_of_rounds():
    """A round that was slow for all counts like any other."""
    ours, peer = [2.0, 20.0, 2.0], [3.0, 30.0, 4.0]
    assert ratios(peer, ours) == [1.5, 1.5, 2.0]
    with pytest.raises(ValueError):
        ratios(peer, ours[:2])


class Played:
    """A process that takes given times."""

    times = {"ours": [2.0, 20.0, 2.0], "peer": [6.0, 60.0, 8.0]}
    turns = []

    def __init__(self, contender, log, matmul_size, timeout):
        if contender.name == "absent":
            raise process.Ended("x is not installed", "skipped")
        self.name = contender.name
        self.left = list(self.times[self.name])
        self.set_up = {
            "framework": "tensorflow",
            "matmul_rate": 50.0,
            "first_seconds": 9.0,
        }

    def run(self):
        Played.turns.append(self.name)
        return self.left.pop(0)

    def finish(self):
        return {"baseline_bytes": 1, "peak_bytes": 3, "running_bytes": 2}

    def kill(self):
        pass


def played(monkeypatch, num_rounds=3, alongside=4):
    """Rows of a contest of three, the peer doing twice the items."""
    monkeypatch.setattr(rounds, "Process", Played)
    Played.turns = []
    measurement = Measurement(
        "name",
        "group",
        "Title",
        "tokens",
        10,
        tuple(
            Contender(name, "library", "a:b", {}, items)
            for name, items in (("ours", None), ("absent", None), ("peer", 20))
        ),
        flops=40,
    )
    settings = run._parser().parse_args(
        ["--rounds", str(num_rounds), "--alongside", str(alongside)]
    )
    settings.matmul_size = 2
    return rounds.hold(measurement, settings, pathlib.Path(), str)


def test_a_step_is_measured_in_the_precision_of_its_settings(monkeypatch):
    ours = importlib.import_module("benchmarks.contenders.ours")
    models = []

    def set_up(backend, model, *_):
        models.append(model)
        return lambda: None

    monkeypatch.setattr(ours, "_step", set_up)
    for precision in ("float32", "bfloat16"):
        ours.fine_tuning_step(TINY, 2, 8, precision=precision)
        assert models[-1].backbone.compute_dtype == precision


def test_contest(monkeypatch):
    ours, absent, peer = played(monkeypatch)
    assert Played.turns == ["ours", "peer"] * 3
    assert ours["ratios"] == [1.0] * 3
    assert peer["ratios"] == pytest.approx([1.5, 1.5, 2.0])
    assert peer["ratio_quartiles"] == pytest.approx([1.5, 1.5, 1.75])
    assert peer["items_per_second"] == 20 / 8
    assert peer["flops_per_second"] == 40 / 8
    assert absent["status"] == "skipped" and not absent["seconds"]


def test_heats(monkeypatch):
    """The first meets all others, few at a time; its times are pooled."""
    ours, absent, peer = played(monkeypatch, alongside=2)
    assert Played.turns == ["ours"] * 3 + ["ours", "peer"] * 3
    assert ours["seconds"] == Played.times["ours"] * 2
    assert peer["ratios"] == pytest.approx([1.5, 1.5, 2.0])


def test_contenders_alongside_fit_in_memory():
    gibibytes = [None, 4, 27, 64]
    assert [run.contenders_alongside(n and n * 2**30) for n in gibibytes] == [
        2,
        2,
        3,
        4,
    ]


def test_table(monkeypatch):
    rows = played(monkeypatch)
    rows[0]["seconds_quartiles"] = [0.5, 2.0, 2.5]
    measurement = {
        "name": "name",
        "group": "group",
        "title": "Title",
        "item": "tokens",
        "items": 10,
        "flops": 40,
        "contenders": rows,
    }
    report.add_shares([measurement])
    lines = report.table(measurement)
    assert "- absent: skipped, x is not installed" in lines
    row = next(line for line in lines if line.startswith("| peer "))
    assert "| 8.00 s (7.00 s to 34.00 s) | 1.50 (1.50 to 1.75) |" in row
    assert "| 2.5 | 9.00 s |" in row
    assert row.endswith("| 10% |")  # 40 / 8 of 50


@pytest.mark.parametrize(
    "line, status, reason",
    [
        ("ModuleNotFoundError: No module named 'torch.nn'", "skipped", "torch"),
        ("benchmarks.contenders.NotAvailable: no room", "skipped", "no room"),
        ("ValueError: `rate` is wrong", "failed", "ValueError: `rate`"),
    ],
)
def test_why_a_contender_is_left_out(line, status, reason):
    ended = process._explained(line)
    assert ended.status == status
    assert reason in str(ended)


def test_flops_by_loops():
    """The formula against a sum over layers, rows and keys, typed out."""
    model = {
        "vocabulary_size": 97,
        "num_layers": 3,
        "num_heads": 5,
        "hidden_dim": 14,
        "head_dim": 2,
        "intermediate_dim": 23,
    }
    B, T, M, P = 2, 11, 7, 3
    D, width = 14, 5 * 2
    total = 0
    for layer in range(3):
        rows = P if layer == 2 else T + P
        for _ in range(B):
            total += 2 * rows * D * width * 2  # queries, output
            total += 2 * (M + T) * D * width * 2  # keys, values
            total += 2 * rows * (M + T) * width * 3  # by pair
            total += 2 * rows * D * 23 * 2  # feed-forward
        total += 2 * (M + T + T) * D * width  # positions
    sizes = {"batch_size": B, "num_tokens": T, "memory_length": M}
    assert flops.forward_flops(model, **sizes, num_targets=P) == total
    total += 2 * B * P * D * 97
    of_constants = 2 * B * M * D * width * 2 + 2 * (M + T + T) * D * width
    step = flops.training_step_flops(model, **sizes, num_targets=P)
    assert step == 3 * total - 3 * of_constants


def test_batch_is_the_same_in_both_forms():
    for half in (0, 6):
        batch = batches.pretraining_batch(
            TINY, 3, 13, 5, first_half_length=half
        )
        rank, positions = batch["factorization_rank"], batch["target_positions"]
        is_target = batch["is_target"].astype(bool)
        for b, i, j in np.ndindex(3, 13, 13):
            hidden = rank[b, j] > rank[b, i]
            hidden |= is_target[b, j] and rank[b, j] == rank[b, i]
            assert batch["perm_mask"][b, i, j] == hidden
            if i < half <= j:
                assert hidden
        mapped = batch["target_mapping"].argmax(-1)
        np.testing.assert_array_equal(mapped, positions)
        np.testing.assert_array_equal(is_target.sum(1), [5] * 3)


def test_sentences_of_wikitext_and_of_books(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(
        " = Heading = \n \n It has 2 @,@ 500 words , as told . The <unk> ! So\n"
        "it ends ."
    )
    sentences = any_order.read_sentences(file)
    assert list(filter(None, sentences)) == [
        "It has 2,500 words, as told.",
        "So it ends.",
    ]


def test_text_of_ones_own(tmp_path):
    (tmp_path / "a.txt").write_text("Once upon a time. " * 50)
    texts.prepare(tmp_path / "work", 1e-4, str(tmp_path / "*.txt"), __file__)
    files = texts.files_in(tmp_path / "work")
    assert len(texts.read_lines(files["text"])[0]) == 100
    with pytest.raises(FileNotFoundError, match="no file of text matches"):
        texts.prepare(tmp_path, 1, "nowhere/*.txt")


def test_kernels_of_the_tpu_step_in_one_table():
    fused = {"attention_kernel": "fused", "bytes_moved": 38.8e9}
    plain = {"attention_kernel": "plain", "bytes_moved": 104e9}
    lines = tpu_step.table([fused | {"kernel_cycles": 26e6}, plain])
    assert lines == [
        "|  | fused | plain |",
        "| --- | ---: | ---: |",
        "| bytes, by the compiler's count, GB | 38.8 | 104 |",
        "| cycles of the kernels, million | 26 |  |",
    ]


def test_table_of_a_gpu():
    row = {
        "name": "xlnet_tf",
        "size": "large",
        "job": "inference",
        "batch_size": 32,
        "num_tokens": 512,
    }
    measured = {
        "device": "NVIDIA H100 80GB HBM3",
        "flops": 989e9,
        "seconds": [0.004, 0.002, 0.002],
        "peak_bytes": 2**31,
        "first_seconds": 3.0,
    }
    lines = gpu.table([row | measured, row | {"reason": "out of memory"}])
    what = "| large inference, 32 rows of 512 | xlnet_tf |"
    assert lines[2].startswith(
        f"{what} NVIDIA H100 80GB HBM3 | 2.00 ms (2.00 to 3.00) | 50.0% | "
        "2.0 GiB | 3.0 s |"
    )
    assert lines[3] == f"{what} out of memory |||||"


def test_a_contender_on_a_gpu_that_ends_costs_no_other_its_row():
    settings = gpu._parser().parse_args(["--tiny"])
    process = gpu._Process("xlnet_tf", "base", "training", settings)
    process._process.kill()
    process._process.wait()
    process.ask("round")
    process.ask("round")
    process.finish()
    assert process.row["reason"] == "no answer in 900 s, or out of memory"
    assert "seconds" not in process.row
