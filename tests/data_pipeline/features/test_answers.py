"""The best spans of all windows: against loops, and at the edges."""

import math

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.answers import best_spans
from data_pipeline.features.answers import n_best_answers
from data_pipeline.features.windows import make_windows
from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from tests.support.tensor_sizes import recorded_sizes

LENGTH, STRIDE, QUESTION = 24, 6, 8
STARTS, ENDS = 5, 3
QUESTIONS = ["co?", "", "ba \u00bd"]
# Repeated words give the same text more than once.
CONTEXTS = [
    "  " + (s if i % 3 else "ba ba, co\u00e9 ba\u3000ba. " * (i % 5))
    for i, s in enumerate(tiny_sentences(40))
] + [" "]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


@pytest.fixture(scope="module")
def windows(graph):
    questions = [QUESTIONS[i % 3] for i in range(len(CONTEXTS))]
    return make_windows(graph, questions, CONTEXTS, LENGTH, STRIDE, QUESTION)


def random_outputs(windows, seed=0):
    """Outputs whose spans are sometimes possible."""
    draw = np.random.default_rng(seed)
    count = windows.window_row.shape[0]
    shape = (count, STARTS)
    starts = draw.integers(0, LENGTH, shape)
    ends = starts[..., None] + draw.integers(-4, 9, (*shape, ENDS))
    ends = np.clip(ends, 0, LENGTH - 1)
    # Few different scores, so that there are ties.
    return {
        "start_top_scores": -draw.integers(1, 9, shape).astype(np.float32) / 3,
        "start_top_positions": starts.astype(np.int32),
        "end_top_scores": -draw.integers(1, 9, ends.shape).astype(np.float32)
        / 7,
        "end_top_positions": ends.astype(np.int32),
        "class_logits": draw.normal(size=count).astype(np.float32),
    }


def slow_merge(windows, outputs, tokenizer, n_best, longest):
    """The answers as the released code finds them."""
    is_best = windows.is_max_context.to_list()
    first = windows.first_piece.numpy()
    for row, context in enumerate(CONTEXTS):
        offsets = tokenizer.encode_with_offsets(context)[1]
        mine = np.flatnonzero(windows.window_row.numpy() == row)
        found = []
        for w in mine:
            for i in range(STARTS):
                for j in range(ENDS):
                    start = outputs["start_top_positions"][w, i]
                    end = outputs["end_top_positions"][w, i, j]
                    if not start <= end < len(is_best[w]):
                        continue
                    if not is_best[w][start] or end - start + 1 > longest:
                        continue
                    begin = offsets[first[w] + start][0]
                    stop = offsets[first[w] + end][1]
                    scores = (
                        float(outputs["start_top_scores"][w, i]),
                        float(outputs["end_top_scores"][w, i, j]),
                    )
                    found.append((*scores, context[begin:stop].strip()))
        found.sort(key=lambda span: span[0] + span[1], reverse=True)
        best = []
        for start, end, text in found:
            if text and text not in [entry[2] for entry in best]:
                best.append((start, end, text))
        best = best[:n_best] or [(-1e6, -1e6, "")]
        top = best[0][0] + best[0][1]
        odds = [math.exp(start + end - top) for start, end, _ in best]
        null = min(outputs["class_logits"][w] for w in mine)
        yield (
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


def test_the_best_spans_by_loops(windows, tokenizer):
    sizes = set()
    for n_best, longest in ((5, 64), (20, 3), (1, 1)):
        outputs = random_outputs(windows, seed=n_best)
        spans = best_spans(outputs, windows, CONTEXTS, n_best, longest)
        merged = n_best_answers(spans, CONTEXTS)
        expected = slow_merge(windows, outputs, tokenizer, n_best, longest)
        for row, (null, best) in enumerate(expected):
            sizes.add((n_best, sum(bool(one["text"]) for one in best)))
            assert spans["null_score"][row] == null
            assert merged[row] == best
            for place, one in enumerate(best):
                begin, end = (
                    spans["begin"][row, place],
                    spans["end"][row, place],
                )
                if not one["text"]:
                    assert (begin, end) == (-1, -1)
                    assert spans["score"][row, place] == -2e6
                    continue
                assert CONTEXTS[row][begin:end] == one["text"]
                assert spans["text"][row, place].numpy().decode() == one["text"]
                score = one["start_log_prob"] + one["end_log_prob"]
                assert spans["score"][row, place] == np.float32(score)
            assert not any(spans["text"][row, len(best) :].numpy())
    assert {(5, 0), (5, 5), (1, 1)} <= sizes


def test_bytes_that_are_not_utf8(tokenizer, graph):
    context = b"ba \xff\xfe co \xe2\x82 ba caf\xc3\xa9 ba"
    text = context.decode(errors="replace")
    windows = make_windows(graph, ["ba"], [context], 32, 6, 4)
    places = np.arange(int(windows.num_pieces[0]), dtype=np.int32)
    outputs = {
        "start_top_scores": np.zeros((1, len(places)), np.float32),
        "start_top_positions": places[None],
        "end_top_scores": np.zeros((1, len(places), 1), np.float32),
        "end_top_positions": places[None, :, None],
        "class_logits": np.zeros(1, np.float32),
    }
    found = best_spans(outputs, windows, [context], n_best=len(places))
    _, offsets = tokenizer.encode_with_offsets(text)
    expected = list(dict.fromkeys(text[b:e] for b, e in offsets if b < e))
    texts = [t.decode() for t in found["text"][0].numpy() if t]
    assert texts == expected
    for answer, begin, end in zip(
        texts, found["begin"][0], found["end"][0], strict=False
    ):
        assert text[begin:end] == answer


def test_memory_grows_with_the_context_and_not_with_its_square(graph):
    context = " ".join(CONTEXTS)
    context *= 40_000 // len(context) + 1
    windows = make_windows(graph, ["ba"], [context], LENGTH, STRIDE, QUESTION)
    outputs = random_outputs(windows)
    with recorded_sizes() as sizes:
        found = best_spans(outputs, windows, [context], n_best=9)
    assert max(sizes) < 40 * len(context)
    assert len({*found["text"][0].numpy()} - {b""}) == 9


def test_no_questions_and_wrong_numbers(windows, graph):
    nothing = tf.zeros([0], tf.string)
    empty = make_windows(graph, nothing, nothing, LENGTH, STRIDE, QUESTION)
    answers = best_spans(random_outputs(empty), empty, nothing, n_best=2)
    assert answers["text"].shape == (0, 2)
    assert answers["null_score"].shape == (0,)
    for settings in ((0, 5), (5, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            best_spans({}, windows, CONTEXTS, *settings)
