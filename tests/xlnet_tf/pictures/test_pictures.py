"""Pictures: what is drawn, by the numbers in the figures."""

import json

import numpy as np
import pytest

from examples import demo
from examples import guesses
from tests.support.bert_models import bert_backbone
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import small_backbone
from xlnet_tf import pictures

PIECES_OF_FIGURE = ["x1", "x2", "x3", "x4"]
SIZES = dict(vocabulary_size=PIECES, num_layers=2)


def image(axes):
    return np.asarray(axes.images[0].get_array())


def labels(axis):
    return [x.get_text() for x in axis.get_ticklabels()]


def test_the_order_of_the_papers_figure():
    figure = pictures.draw_masks(PIECES_OF_FIGURE, [3, 2, 4, 1])
    content, query = figure.axes
    np.testing.assert_array_equal(
        image(content), [[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 1, 1]]
    )
    np.testing.assert_array_equal(image(query), image(content) - np.eye(4))
    assert labels(content.xaxis) == PIECES_OF_FIGURE
    assert labels(query.yaxis) == ["x1  4", "x2  2", "x3  1", "x4  3"]
    assert "3 → 2 → 4 → 1" in figure.get_suptitle()


def test_memory_stands_in_front_of_the_text():
    plain = pictures.draw_masks(PIECES_OF_FIGURE, [3, 2, 4, 1])
    figure = pictures.draw_masks(
        PIECES_OF_FIGURE, [3, 2, 4, 1], memory=["a", "b"]
    )
    for axes, without in zip(figure.axes, plain.axes, strict=True):
        assert image(axes)[:, :2].all()
        np.testing.assert_array_equal(image(axes)[:, 2:], image(without))
        assert labels(axes.xaxis) == ["a", "b", *PIECES_OF_FIGURE]


def test_no_picture_of_too_many_tokens():
    with pytest.raises(ValueError, match="at most 150 tokens. Received: 151"):
        pictures.draw_masks(["x"] * 151)


def test_orders():
    make = pictures.make_order
    assert make("forward", 3).tolist() == [0, 1, 2]
    assert make("backward", 3).tolist() == [2, 1, 0]
    assert sorted(make("random", 9, seed=1)) == list(range(9))
    assert make("random", 9, 1).tolist() != make("random", 9, 2).tolist()
    for order, message in (
        ("sideways", "`order` must be forward"),
        ([1, 2], "each position from 1 to 3 once"),
        ([0, 1, 2], "each position from 1 to 3 once"),
    ):
        with pytest.raises(ValueError, match=message):
            make(order, 3)


def test_pseudo_masks():
    figure = pictures.draw_pseudo_masks(["a", "b", "c"], [[3], [1]])
    (axes,) = figure.axes
    names = ["[M]", "b", "[M]", "[P] c", "c", "[P] a", "a"]
    assert labels(axes.xaxis) == labels(axes.yaxis) == names
    np.testing.assert_array_equal(
        image(axes),
        [
            *[[1, 1, 1, 0, 0, 0, 0]] * 3,
            [1, 1, 1, 1, 0, 0, 0],
            [1, 1, 1, 0, 1, 0, 0],
            [1, 1, 1, 0, 1, 1, 0],
            [1, 1, 1, 0, 1, 0, 1],
        ],
    )
    for blocks in ([], [[4]], [[1], [1]], [[0]]):
        with pytest.raises(ValueError, match="positions from 1 to 3"):
            pictures.draw_pseudo_masks(["a", "b", "c"], blocks)


def test_attention_over_a_text_and_what_was_before_it():
    tokenizer = tiny_tokenizer()
    backbone = small_backbone(0, **SIZES, memory_length=0)
    text, before = "ba co fi", "gu ha je"
    found = pictures.read_attention(backbone, tokenizer, text, before)
    ids = tokenizer.encode(before), [*tokenizer.encode(text), 4, 3]
    assert found.num_remembered == len(ids[0])
    assert found.keys == [tokenizer.id_to_piece(x) for x in (*ids[0], *ids[1])]
    memories = backbone({"token_ids": np.array([ids[0]])}, layer_inputs=True)
    expected = backbone(
        {"token_ids": np.array([ids[1]]), "memories": memories["layer_inputs"]},
        attention_weights=True,
    )["attention_weights"]
    expected = np.stack([as_numpy(x)[0] for x in expected])
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    (axes,) = pictures.draw_attention(found, layer=0, head=1).axes
    np.testing.assert_allclose(image(axes), found.weights[0, 1])
    assert labels(axes.yaxis) == found.rows and labels(axes.xaxis) == found.keys
    assert "layer 0, head 1" in axes.get_title("left")
    (axes,) = pictures.draw_attention(found).axes
    np.testing.assert_allclose(image(axes), found.weights[-1].mean(0))
    (axes,) = pictures.draw_distances(found).axes
    line = axes.lines[1]
    places, values = line.get_xdata(), line.get_ydata()
    assert places.tolist() == list(range(1 - len(ids[1]), len(found.keys)))
    # The farthest distance is that of the last row to the first key.
    assert values[-1] == pytest.approx(found.weights[1, :, -1, 0].mean())
    for arguments, message in (
        ({"layer": 2}, "`layer` must be from 0 to 1"),
        ({"head": 11}, "`head` must be from 0 to 10"),
    ):
        with pytest.raises(ValueError, match=message):
            pictures.draw_attention(found, **arguments)


def test_a_bert_and_bad_texts():
    tokenizer, backbone = tiny_tokenizer(), bert_backbone(0, **SIZES)
    found = pictures.read_attention(backbone, tokenizer, "ba co")
    assert found.keys[0] == "<cls>" and found.keys[-1] == "<sep>"
    with pytest.raises(ValueError, match="a BERT has no memory"):
        pictures.read_attention(backbone, tokenizer, "ba", "co")
    with pytest.raises(ValueError, match="the text has no tokens"):
        pictures.read_attention(backbone, tokenizer, " ")


def test_curves_of_runs(tmp_path):
    for name, losses in (("one", [3.0, 2.0]), ("two", [4.0])):
        (tmp_path / name).mkdir()
        lines = [
            {"kind": kind, "step": step, "loss": loss, "set": "a"}
            for step, loss in enumerate(losses, 1)
            for kind in ("train", "eval")
        ]
        text = "\n".join(map(json.dumps, lines))
        (tmp_path / name / "metrics.jsonl").write_text(text)
    runs = [tmp_path / "one", tmp_path / "two"]
    (axes,) = pictures.draw_curves(runs).axes
    assert axes.get_title(loc="left") == "one, two"
    names = ["one", "one, held out", "two", "two, held out"]
    assert [x.get_label() for x in axes.lines] == names
    assert axes.lines[0].get_ydata().tolist() == [3.0, 2.0]
    for name in ("f1", "kind", "set"):
        with pytest.raises(ValueError, match=f"'{name}' in its .*, but loss."):
            pictures.draw_curves(runs, name)
    with pytest.raises(FileNotFoundError, match="no metrics.jsonl"):
        pictures.draw_curves([tmp_path])


def test_the_title_and_the_last_value_of_a_run(tmp_path):
    run = tmp_path / "mine"
    run.mkdir()
    lines = [{"kind": "eval", "step": 1, "loss": x} for x in (2.0, 3.0)]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    figure = pictures.draw_curves([run])
    name = f"{tmp_path.name}/mine"
    assert figure.axes[0].get_title(loc="left") == name
    facts = {
        "format_version": 1,
        "model": {"num_layers": 2, "hidden_dim": 16},
        "records": {"records": 1200, "sequence_length": 32},
    }
    (run / "run.json").write_text(json.dumps(facts))
    figure = pictures.draw_curves([run])
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == (
        f"{name}: 2 layers of 16, 1,200 records of 32 tokens"
    )
    # The highest value stands below the frame, not on it.
    figure.canvas.draw()
    (label,) = axes.texts
    assert label.get_window_extent().y1 < axes.get_window_extent().y1


def test_the_report_of_the_demo(tmp_path, monkeypatch, capsys):
    (tmp_path / "model").mkdir()
    line = {"kind": "eval", "step": 1, "loss": 2.0}  # 2.89 bits
    (tmp_path / "model/metrics.jsonl").write_text(json.dumps(line))
    sentences = [("A <mask>.", "cat")]
    answer = {
        "candidates": [["\u2581dog", "\u2581cat"]],
        "log_probabilities": [[-0.5, -1.5]],
    }
    answers = [json.dumps(answer)] * 5
    held_out = [("The <mask>.", "cat"), ("It is <mask>.", "red")] * 2
    (tmp_path / "model/loss.png").touch()
    monkeypatch.setattr(demo, "unigram_bits", lambda *arguments: 4.0)
    demo.report(tmp_path, sentences, answers, "permutation", held_out)
    printed = capsys.readouterr().out
    assert printed.startswith("\nheld out: 2.89 bits per token, perplexity 7;")
    assert "A <mask>.\n    was: cat   guesses: dog, cat\n" in printed
    assert "of 4 blanks in held-out text, 2 (50%) have the word" in printed
    for name in ("loss.png", "model/loss.png", "guesses.png"):
        assert f"  {tmp_path / name}\n" in printed
    assert (tmp_path / "guesses.png").read_bytes()[1:4] == b"PNG"
    assert "next: fine-tune it on a table" in printed
    assert f"--preset {tmp_path / 'model'} --output DIR" in printed
    monkeypatch.setattr(demo, "unigram_bits", lambda *arguments: 1.0)
    with pytest.raises(SystemExit, match="^All was made and exported, but"):
        demo.report(tmp_path, sentences, answers[:1], "permutation")


def test_blanks_of_held_out_text(records):
    """A word of the text each, which is a single piece of the vocabulary."""
    blanks = guesses.held_out_blanks(records, 5)
    assert 0 < len(blanks) <= 5
    for text, word in blanks:
        assert text.count("<mask>") == 1 and len(text.split()) > 3
        assert word.isalpha() and len(word) > 2
