"""Perplexity of running text: memory, a sliding window, words, characters."""

import json
import math
import re

import numpy as np
import pytest

from data_pipeline.base import command_line
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.samples import tiny_model
from xlnet_tf import XLNetPretrainer
from xlnet_tf import evaluate
from xlnet_tf.objectives import Causal
from xlnet_tf.training import perplexity

N = 23
TEXT = np.random.default_rng(0).integers(9, 97, N).astype("int32")


def causal(**overrides):
    backbone = small_backbone(
        attention_type="causal",
        **{"memory_length": 4, "reuse_length": 2, **overrides},
    )
    return randomize(XLNetPretrainer(backbone, objective=Causal()))


def losses(model, ids):
    batch = {"token_ids": ids[None, :-1], "target_ids": ids[None, 1:]}
    return as_numpy(model(batch)["token_loss"])[0]


def test_an_endless_memory_is_one_pass():
    """Whatever the segments, and the memory of the training."""
    model = causal()
    expected = losses(model, TEXT).sum()
    for segment in (5, N):
        nats, tokens, seconds = perplexity.evaluate_with_memory(
            model, TEXT, segment, memory_length=N
        )
        assert tokens == N - 1 and seconds > 0
        assert abs(nats - expected) < 1e-4
    assert model.config.memory_length == 4  # the model stays as it was


def test_text_is_read_forward_alone():
    """Also by a model that was trained in both directions."""
    model = causal()
    both = causal(reverse_half_batch=True)
    both.set_weights(model.get_weights())
    for rows in (1, 2):
        expected, found = (
            perplexity.evaluate_with_memory(
                x, TEXT, 6, memory_length=4, rows=rows
            )[0]
            for x in (model, both)
        )
        assert found == pytest.approx(expected, abs=1e-4)


def test_rows_and_segments_without_memory_stand_alone():
    model = causal()
    parts = [TEXT[0:7], TEXT[6:13], TEXT[12:19], TEXT[18:23]]
    alone = [losses(model, part).sum() for part in parts]
    for rows in (1, 2):
        nats, tokens, _ = perplexity.evaluate_with_memory(
            model, TEXT, 6, memory_length=0, rows=rows
        )
        assert tokens == N - 1
        assert abs(nats - sum(alone)) < 1e-4
    # Two rows of two segments each: the third begins without memory.
    nats, _, _ = perplexity.evaluate_with_memory(
        model, TEXT, 6, memory_length=N, rows=2
    )
    halves = losses(model, TEXT[:13]).sum() + losses(model, TEXT[12:]).sum()
    assert abs(nats - halves) < 1e-4
    assert abs(nats - sum(alone)) > 1e-2


def test_a_window_predicts_each_token_once():
    model = causal()
    for window, stride, rows in ((8, 1, 4), (8, 3, 1), (40, 5, 2)):
        expected, done = 0.0, 0
        for begin in range(0, N - 1, stride):
            found = losses(model, TEXT[begin : begin + window + 1])
            new = begin + len(found) - done
            if new > 0:
                expected += found[-new:].sum()
                done += new
        nats, tokens, _ = perplexity.evaluate_with_window(
            model, TEXT, window, stride, rows
        )
        assert tokens == N - 1 == done
        assert abs(nats - expected) < 1e-4, (window, stride, rows)


def test_what_is_refused():
    model = randomize(XLNetPretrainer(small_backbone()))
    for function, arguments, message in (
        (
            perplexity.evaluate_with_memory,
            (model, TEXT, 5, 5),
            "xlnet_tf.train --eval",
        ),
        (perplexity.evaluate_with_window, (model, TEXT, 5, 5), "objective cau"),
        (perplexity.evaluate_with_window, (causal(), TEXT, 5, 6), "`stride` m"),
        (perplexity.evaluate_with_memory, (causal(), TEXT, 5, 5, 99), "`rows`"),
    ):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_a_perplexity_beyond_numbers_is_none():
    """Of a text without blanks, which counts as a word a line."""
    found = perplexity.Perplexity(800.0, 200, 1, 400, 1.0).report()
    assert found["perplexity_per_word"] is None
    assert math.isclose(found["perplexity_per_token"], math.exp(4))


def test_the_command_counts_words_and_characters(tmp_path, capsys, told):
    (tmp_path / "text.txt").write_text(" = Head = \n\n a b c . \n d\n")
    (tmp_path / "spiece.model").write_bytes(tiny_model())
    model = causal(vocabulary_size=300)
    model.save(tmp_path / "model.keras")
    command = ["--model", str(tmp_path / "model.keras"), "--text"]
    command += [str(tmp_path / "text.txt"), "--text-format", "running"]
    command += ["--output", str(tmp_path / "found.json"), "--segment-length=4"]
    assert evaluate.main(command) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["words"] == 3 + 4 + 1  # ends of lines are not predicted
    assert found["characters"] == len(" = Head =  a b c .  d")
    assert found["unknown_tokens"] > 0  # "=", and its blank
    nats = found["loss"] * found["tokens"]
    for name, value in (
        ("perplexity_per_token", math.exp(nats / found["tokens"])),
        ("perplexity_per_word", math.exp(nats / found["words"])),
        ("bits_per_character", nats / math.log(2) / found["characters"]),
    ):
        assert math.isclose(found[name], value)
    out = capsys.readouterr().out
    assert "8 words, 21 characters" in out and "memory 4" in out
    assert " per token, " in out and " per word\n" in out
    assert " per character\n" in out
    windows = [*command[:-1], "--window", "4"]
    for argv in (command, windows):
        assert re.search("text: .* 100%", told(evaluate.main, *argv))
        assert told(evaluate.main, *argv, "--quiet") == ""
    task = [*command[:2], "--task", "classification", "--data", "a.csv"]
    for argv, message in (
        ([*command, "--stride", "2"], "--stride needs --window"),
        ([*windows, "--memory-length", "4"], "reads without memory"),
        ([*windows, "--segment-length", "4"], "leave --segment-length out"),
        ([*task, "--segment-length", "4"], "--segment-length needs --text"),
        ([*task, "--encoding", "utf-8"], "--encoding needs --text"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate.main(argv)


def test_the_command_lower_cases_as_the_model_does(tmp_path, capsys):
    model = causal(vocabulary_size=300)
    own = Tokenizer.from_model_proto(tiny_model(), lowercase=True)
    model.save_to_preset(tmp_path / "model", tokenizer=own)
    (tmp_path / "text.txt").write_text("A B C d.")
    command = ["--model", str(tmp_path / "model"), "--segment-length=4"]
    command += ["--text", str(tmp_path / "text.txt")]
    for name, size in (("same", 300), ("smaller", 290), ("larger", 310)):
        (tmp_path / name).write_bytes(tiny_model(vocab_size=size))
    assert evaluate.main(command) == 0
    expected = capsys.readouterr().out
    given = [*command, "--tokenizer", str(tmp_path / "same")]
    assert evaluate.main(given) == 0

    def tokens(text):
        return re.search(".*perplexity  [^\n]*", text, re.DOTALL)[0]

    assert tokens(capsys.readouterr().out) == tokens(expected)
    for name in ("smaller", "larger"):
        given[-1] = str(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name} has .*the model.s 300"):
            evaluate.main(given)


def test_the_command_reads_text_as_build_records_does(tmp_path, capsys):
    (tmp_path / "spiece.model").write_bytes(tiny_model())
    causal(vocabulary_size=300).save(tmp_path / "model.keras")
    command = ["--model", str(tmp_path / "model.keras"), "--segment-length=4"]
    table, bad = tmp_path / "text.csv", tmp_path / "bad.txt"
    table.write_text("text,other\na b c,x y\nd,z\n")
    bad.write_bytes(b"a b c\n\xff\nd\n")
    options = ["--text", str(bad), "--on-bad-text"]
    assert evaluate.main([*command, "--text", str(table)]) == 0
    assert evaluate.main([*command, *options, "skip"]) == 0
    output = capsys.readouterr()
    assert output.out.count("4 words, ") == 2
    assert "1 skipped line(s)" in output.err
    assert command_line.run(evaluate.main, [*command, *options, "refuse"]) == 1
