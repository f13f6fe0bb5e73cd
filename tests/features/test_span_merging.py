"""Spans of all windows -> answers: against loops; files; errors."""

import json
import math
import os

import numpy as np
import pytest

from data_pipeline.features.question_answering import make_windows
from data_pipeline.features.span_merging import merge_windows
from data_pipeline.features.span_merging import write_predictions
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

STARTS, ENDS = 5, 3
HIDDEN = np.float32(-1e30)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


@pytest.fixture(scope="module")
def examples():
    sentences = list(tiny_sentences(40))
    # Repeated words give the same text more than once.
    texts = [
        s if i % 3 else "ba ba, co\u00e9 ba ba. " * 4
        for i, s in enumerate(sentences)
    ]
    return [
        QuestionExample(f"q{i}", "  " + text, "co?")
        for i, text in enumerate(texts)
    ] + [QuestionExample("empty", " ", "ba?")]


@pytest.fixture(scope="module")
def windows(examples, tokenizer):
    return make_windows(examples, tokenizer, 24, 6, training=False)


def random_outputs(windows, seed=0):
    """Outputs whose spans are sometimes possible."""
    draw = np.random.default_rng(seed)
    shape = (len(windows), STARTS)
    length = int(windows.class_index.max()) + 4  # also <sep>, <cls>, padding
    starts = draw.integers(0, length, shape)
    ends = starts[..., None] + draw.integers(-4, 9, (*shape, ENDS))
    return {
        "start_top_scores": -draw.gamma(2, 2, shape).astype(np.float32),
        "start_top_positions": starts.astype(np.int32),
        "end_top_scores": -draw.gamma(2, 2, ends.shape).astype(np.float32),
        "end_top_positions": np.clip(ends, 0, None).astype(np.int32),
        "class_logits": draw.normal(size=shape[0]).astype(np.float32),
    }


def slow_merge(examples, windows, outputs, tokenizer, n_best_size, longest):
    """As the released code goes about it."""
    for number, one in enumerate(examples):
        offsets = tokenizer.encode_with_offsets(one.context)[1]
        mine = np.flatnonzero(windows.example_index == number)
        null = min(float(outputs["class_logits"][w]) for w in mine)
        found = []
        for w in mine:
            row = slice(*windows.row_splits[w : w + 2])
            is_best = windows.is_max_context[row]
            for i in range(STARTS):
                for j in range(ENDS):
                    start = outputs["start_top_positions"][w, i]
                    end = outputs["end_top_positions"][w, i, j]
                    if not 0 <= start <= end < windows.num_pieces[w]:
                        continue
                    if not is_best[start] or end - start + 1 > longest:
                        continue
                    begin = offsets[windows.first_piece[w] + start][0]
                    stop = offsets[windows.first_piece[w] + end][1]
                    scores = (
                        float(outputs["start_top_scores"][w, i]),
                        float(outputs["end_top_scores"][w, i, j]),
                    )
                    found.append((*scores, one.context[begin:stop].strip()))
        found.sort(key=lambda span: span[0] + span[1], reverse=True)
        best = []
        for start, end, text in found:
            if text and text not in [entry[2] for entry in best]:
                best.append((start, end, text))
        best = best[:n_best_size] or [(-1e6, -1e6, "")]
        top = best[0][0] + best[0][1]
        odds = [math.exp(start + end - top) for start, end, _ in best]
        yield (
            one.id,
            null,
            [
                {
                    "text": text,
                    "probability": pytest.approx(odd / sum(odds), rel=1e-12),
                    "start_log_prob": start,
                    "end_log_prob": end,
                }
                for (start, end, text), odd in zip(best, odds, strict=True)
            ],
        )


@pytest.mark.parametrize(("n_best_size", "longest"), [(5, 64), (20, 3), (1, 1)])
def test_merging_equals_the_plain_writing(
    examples, windows, tokenizer, n_best_size, longest
):
    assert len(windows) > 3 * len(examples)
    outputs = random_outputs(windows, seed=n_best_size)
    merged = merge_windows(examples, windows, outputs, n_best_size, longest)
    expected = list(
        slow_merge(examples, windows, outputs, tokenizer, n_best_size, longest)
    )
    assert list(merged.texts) == [name for name, _, _ in expected]
    for name, null, best in expected:
        assert merged.n_best[name] == best
        assert merged.texts[name] == best[0]["text"]
        assert merged.null_odds[name] == null
    sizes = [len(best) for _, _, best in expected]
    assert max(sizes) == n_best_size or n_best_size == 20
    assert merged.texts["empty"] == ""


def test_the_true_span_comes_back(examples, windows):
    """A model that is sure of one span, in whichever window."""
    outputs = random_outputs(windows)
    outputs["start_top_scores"][:] = HIDDEN
    outputs["end_top_scores"][:] = HIDDEN
    wanted = {}
    for number, one in enumerate(examples[:-1]):
        mine = np.flatnonzero(windows.example_index == number)
        w = mine[number % len(mine)]
        row = slice(*windows.row_splits[w : w + 2])
        start = int(np.flatnonzero(windows.is_max_context[row])[0])
        end = min(start + number % 3, int(windows.num_pieces[w]) - 1)
        place = number % STARTS
        outputs["start_top_positions"][w, place] = start
        outputs["end_top_positions"][w, place, 1] = end
        outputs["start_top_scores"][w, place] = -0.1
        outputs["end_top_scores"][w, place, 1] = -0.1
        (begin,), (stop,) = windows.characters([w], [start], [end])
        wanted[one.id] = one.context[begin:stop].strip()
    merged = merge_windows(examples, windows, outputs)
    wanted = {name: text for name, text in wanted.items() if text}
    assert len(wanted) > 0.7 * len(examples)
    assert {name: merged.texts[name] for name in wanted} == wanted
    assert merged.n_best["q1"][0]["probability"] == pytest.approx(1)


def test_threshold_for_no_answer(examples, windows):
    outputs = random_outputs(windows)
    always = merge_windows(examples, windows, outputs)
    middle = float(np.median(list(always.null_odds.values())))
    some = merge_windows(examples, windows, outputs, null_threshold=middle)
    assert some.null_odds == always.null_odds
    assert some.n_best == always.n_best
    for name, text in always.texts.items():
        is_null = always.null_odds[name] > middle
        assert some.texts[name] == ("" if is_null else text)
    assert 0 < sum(map(bool, some.texts.values())) < len(examples) - 5


def test_files(tmp_path, examples, windows):
    merged = merge_windows(examples, windows, random_outputs(windows))
    write_predictions(tmp_path / "new", merged)
    assert sorted(os.listdir(tmp_path / "new")) == [
        "nbest_predictions.json",
        "null_odds.json",
        "predictions.json",
    ]
    for name, value in zip(
        ("predictions", "nbest_predictions", "null_odds"), merged, strict=True
    ):
        file = tmp_path / "new" / f"{name}.json"
        assert json.loads(file.read_text(encoding="utf-8")) == value
        assert file.stat().st_mode & 0o777 == 0o644


def test_files_are_written_all_or_none(tmp_path, examples, windows):
    merged = merge_windows(examples, windows, random_outputs(windows))
    write_predictions(tmp_path, merged)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    broken = merged._replace(texts={"q": "new"}, null_odds={"q": object()})
    with pytest.raises(TypeError):
        write_predictions(tmp_path, broken)
    assert {f: f.read_bytes() for f in tmp_path.iterdir()} == before


def wrong_outputs(windows):
    outputs = random_outputs(windows)
    lacking = dict(outputs)
    del lacking["end_top_scores"]
    yield lacking, "lacks end_top_scores"
    short = {name: value[1:] for name, value in outputs.items()}
    yield short, f"each of the {len(windows)} windows"
    flat = {**outputs, "end_top_scores": outputs["end_top_scores"][:, :, 0]}
    yield flat, r"\[W, S, E\]. Received: start_top|end_top"
    column = {**outputs, "class_logits": outputs["class_logits"][:, None]}
    yield column, "class_logits of shape"
    for name in ("class_logits", "start_top_scores", "end_top_scores"):
        bad = {**outputs, name: outputs[name].copy()}
        bad[name][3] = np.nan
        yield bad, f"NaN in {name}"


def test_wrong_outputs(examples, windows):
    for outputs, match in wrong_outputs(windows):
        with pytest.raises(ValueError, match=match):
            merge_windows(examples, windows, outputs)


def test_wrong_arguments(examples, windows, tokenizer):
    outputs = random_outputs(windows)
    with pytest.raises(ValueError, match="`n_best_size` must be at least 1"):
        merge_windows(examples, windows, outputs, n_best_size=0)
    double = [examples[1]._replace(where="dev.json, row 2"), *examples[1:]]
    with pytest.raises(ValueError, match="Received: id='q1' twice"):
        merge_windows(double, windows, outputs)
    more = [*examples, examples[0]._replace(id="more")]
    with pytest.raises(ValueError, match="none for 'more'.*training=False"):
        merge_windows(more, windows, outputs)


def test_arrays_of_the_model_on_jax_or_tensorflow(examples, windows):
    import tensorflow as tf

    outputs = random_outputs(windows)
    tensors = {name: tf.constant(value) for name, value in outputs.items()}
    assert merge_windows(examples, windows, tensors) == merge_windows(
        examples, windows, outputs
    )
