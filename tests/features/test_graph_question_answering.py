"""Windows and answers in graph ops: as NumPy has them, and against loops."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.answers import answer_pieces
from data_pipeline.features.answers import best_spans
from data_pipeline.features.answers import training_windows
from data_pipeline.features.graph_question_answering import make_windows
from data_pipeline.features.question_answering import (
    make_windows as numpy_windows,
)
from data_pipeline.features.span_merging import merge_windows
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

LENGTH, STRIDE, QUESTION = 24, 6, 8
STARTS, ENDS = 5, 3


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


@pytest.fixture(scope="module")
def examples():
    sentences = list(tiny_sentences(40))
    # Repeated words give the same text more than once.
    texts = [
        s if i % 3 else "ba ba, co\u00e9 ba\u3000ba. " * (i % 5)
        for i, s in enumerate(sentences)
    ]
    questions = ["co?", "", sentences[3], "ba \u00bd"]
    examples = [
        QuestionExample(f"q{i}", "  " + text, questions[i % 4])
        for i, text in enumerate(texts)
    ]
    return [*examples, QuestionExample("empty", " ", "ba?")]


def strings(examples):
    return (
        tf.constant([one.question for one in examples], tf.string),
        tf.constant([one.context for one in examples], tf.string),
    )


@functools.cache
def compiled_windows(graph, length, stride, question, **options):
    return tf.function(
        lambda questions, contexts: make_windows(
            graph, questions, contexts, length, stride, question, **options
        ),
        input_signature=[tf.TensorSpec([None], tf.string)] * 2,
    )


@pytest.fixture(scope="module")
def windows(graph, examples):
    make = compiled_windows(graph, LENGTH, STRIDE, QUESTION)
    return make(*strings(examples))


def check_windows(found, expected):
    splits = expected.row_splits
    width = found.features["token_ids"].shape[1]
    assert len(expected) == found.window_row.shape[0]
    np.testing.assert_array_equal(found.window_row, expected.example_index)
    np.testing.assert_array_equal(found.first_piece, expected.first_piece)
    np.testing.assert_array_equal(found.num_pieces, expected.num_pieces)
    index = found.features["class_index"]
    np.testing.assert_array_equal(index, expected.class_index)
    padded = {"token_ids": 0, "segment_ids": 3, "answer_mask": 0}
    columns = {name: getattr(expected, name) for name in padded}
    columns |= {
        "padding_mask": np.ones_like(expected.token_ids),
        "is_max_context": expected.is_max_context,
    }
    for name, column in columns.items():
        value = np.full((len(expected), width), padded.get(name, 0))
        for row in range(len(expected)):
            part = column[splits[row] : splits[row + 1]]
            value[row, : len(part)] = part
        got = (
            found.is_max_context
            if name == "is_max_context"
            else found.features[name]
        )
        np.testing.assert_array_equal(got, value, err_msg=name)


def test_windows_equal_numpys(tokenizer, windows, examples):
    settings = (LENGTH, STRIDE, QUESTION)
    expected = numpy_windows(examples, tokenizer, *settings, training=False)
    check_windows(windows, expected)
    assert (np.bincount(windows.window_row) > 1).any()


@pytest.mark.parametrize("stride", [1, 100])
def test_strides_without_a_graph(tokenizer, graph, examples, stride):
    settings = (LENGTH, stride, QUESTION)
    expected = numpy_windows(examples, tokenizer, *settings, training=False)
    found = make_windows(graph, *strings(examples), *settings)
    check_windows(found, expected)


def test_windows_as_wide_as_the_longest(tokenizer, graph, examples):
    some = [one for one in examples if not one.context.strip()] + examples[3:5]
    make = functools.partial(
        make_windows, graph, max_question_length=QUESTION, pad_to_longest=True
    )
    found = make(*strings(some))
    expected = numpy_windows(some, tokenizer, 512, 128, QUESTION, False)
    check_windows(found, expected)
    width = found.features["token_ids"].shape[1]
    assert width == expected.class_index.max() + 1


def test_shapes_and_types(windows):
    for name, value in windows.features.items():
        assert value.dtype == tf.int32
        assert value.shape[1:].as_list() == (
            [] if name == "class_index" else [LENGTH]
        )


def test_no_questions(graph):
    make = compiled_windows(graph, LENGTH, STRIDE, QUESTION)
    nothing = tf.zeros([0], tf.string)
    found = make(nothing, nothing)
    assert found.features["token_ids"].shape == (0, LENGTH)
    answers = best_spans(random_outputs(found), found, nothing, n_best=2)
    assert answers["text"].shape == (0, 2)
    assert answers["null_score"].shape == (0,)


def random_outputs(windows, seed=0):
    """Outputs whose spans are sometimes possible."""
    draw = np.random.default_rng(seed)
    count = windows.window_row.shape[0]
    shape = (count, STARTS)
    starts = draw.integers(0, LENGTH, shape)
    ends = starts[..., None] + draw.integers(-4, 9, (*shape, ENDS))
    ends = np.clip(ends, 0, LENGTH - 1)
    # Few different scores: of equals the first counts.
    return {
        "start_top_scores": -draw.integers(1, 9, shape).astype(np.float32) / 3,
        "start_top_positions": starts.astype(np.int32),
        "end_top_scores": -draw.integers(1, 9, ends.shape).astype(np.float32)
        / 7,
        "end_top_positions": ends.astype(np.int32),
        "class_logits": draw.normal(size=count).astype(np.float32),
    }


@pytest.mark.parametrize("n_best", [1, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_answers_equal_numpys(tokenizer, windows, examples, n_best, seed):
    outputs = random_outputs(windows, seed)
    expected = merge_windows(
        examples,
        numpy_windows(examples, tokenizer, LENGTH, STRIDE, QUESTION, False),
        outputs,
        n_best_size=n_best,
        max_answer_length=5,
    )
    contexts = strings(examples)[1]
    found = best_spans(outputs, windows, contexts, n_best, max_answer_length=5)
    found = {name: value.numpy() for name, value in found.items()}
    counts = set()
    for row, one in enumerate(examples):
        answers = [a for a in expected.n_best[one.id] if a["text"]]
        counts.add(len(answers))
        texts = [text.decode() for text in found["text"][row]]
        assert texts == [a["text"] for a in answers] + [""] * (
            n_best - len(answers)
        )
        for place, answer in enumerate(answers):
            begin, end = found["begin"][row, place], found["end"][row, place]
            assert one.context[begin:end] == answer["text"]
            score = answer["start_log_prob"] + answer["end_log_prob"]
            np.testing.assert_allclose(found["score"][row, place], score)
        assert (found["begin"][row, len(answers) :] == -1).all()
        assert (found["end"][row, len(answers) :] == -1).all()
        assert (found["score"][row, len(answers) :] == -2e6).all()
        assert found["null_score"][row] == np.float32(
            expected.null_odds[one.id]
        )
    assert {0, n_best} <= counts


def test_answers_by_loops(windows, examples):
    outputs = random_outputs(windows, seed=5)
    contexts = strings(examples)[1]
    found = best_spans(outputs, windows, contexts, 100, max_answer_length=4)
    begins, ends = windows.begins.to_list(), windows.ends.to_list()
    windows = windows._replace(
        first_piece=windows.first_piece.numpy(),
        num_pieces=windows.num_pieces.numpy(),
    )
    for row, one in enumerate(examples):
        best = {}
        own = np.flatnonzero(windows.window_row.numpy() == row)
        for w in own:
            first, size = windows.first_piece[w], windows.num_pieces[w]
            for s in range(STARTS):
                start = outputs["start_top_positions"][w, s]
                for e in range(ENDS):
                    end = outputs["end_top_positions"][w, s, e]
                    if not start <= end < min(size, start + 4):
                        continue
                    if first + start != best_piece(windows, own, w, start):
                        continue
                    text = one.context[
                        begins[row][first + start] : ends[row][first + end]
                    ].strip()
                    score = float(outputs["start_top_scores"][w, s])
                    score += float(outputs["end_top_scores"][w, s, e])
                    if text and score > best.get(text, -np.inf):
                        best[text] = score
        texts = [t.decode() for t in found["text"][row].numpy() if t]
        assert set(texts) == set(best)
        np.testing.assert_allclose(
            found["score"][row, : len(texts)],
            sorted(best.values(), reverse=True),
            rtol=1e-6,
        )


def best_piece(windows, own, window, start):
    """The piece at `start` if this window has most context for it, or -1."""
    piece = windows.first_piece[window] + start
    scores = []
    for w in own:
        left = int(piece - windows.first_piece[w])
        right = int(windows.num_pieces[w]) - 1 - left
        is_in = left >= 0 and right >= 0
        length = int(windows.num_pieces[w])
        scores.append(min(left, right) + 0.01 * length if is_in else -1)
    return piece if own[int(np.argmax(scores))] == window else -1


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


def answer_examples(tokenizer):
    """Spans of random pieces and characters, and what is no answer."""
    draw = np.random.default_rng(3)
    examples = []
    for number, text in enumerate(tiny_sentences(60)):
        context = f" {text}  caf\u00e9\u0301 ``{text}''"
        begin = int(draw.integers(len(context)))
        size = int(draw.integers(1, 30))
        if number % 6 == 0:
            begin, size = len(context) - 3, 9  # the text ends before
        text = context[begin : begin + size] + "x" * (number % 7 == 0)
        examples.append(
            QuestionExample(
                f"q{number}", context, "co ba?", (Answer(text, begin),)
            )
        )
    return examples


def test_answers_become_pieces(tokenizer, graph):
    examples = answer_examples(tokenizer)
    questions, contexts = strings(examples)
    windows = compiled_windows(graph, LENGTH, STRIDE, QUESTION)(
        questions, contexts
    )
    starts = tf.constant([one.answers[0].start for one in examples])
    texts = tf.constant([one.answers[0].text for one in examples])
    first, last, is_found = answer_pieces(windows, contexts, starts, texts)
    from data_pipeline.features.answer_pieces import encode_contexts
    from data_pipeline.features.answer_pieces import find_answers

    expected = find_answers(examples, encode_contexts(examples, tokenizer))
    assert np.flatnonzero(is_found).tolist() == expected.example.tolist()
    assert 20 < len(expected.example) < len(examples)
    np.testing.assert_array_equal(first[is_found], expected.first)
    np.testing.assert_array_equal(last[is_found], expected.last)


def test_training_windows(tokenizer, graph):
    examples = answer_examples(tokenizer)
    starts = [one.answers[0].start for one in examples]
    starts[3::5] = [-1] * len(starts[3::5])
    examples = [
        one._replace(
            answers=one.answers if start >= 0 else (),
            is_impossible=start < 0,
        )
        for one, start in zip(examples, starts, strict=True)
    ]
    texts = [one.answers[0].text if one.answers else "" for one in examples]
    questions, contexts = strings(examples)
    make = compiled_windows(graph, LENGTH, STRIDE, QUESTION)
    features, labels, weights = training_windows(
        make(questions, contexts), contexts, tf.constant(starts), texts
    )
    expected = numpy_windows(examples, tokenizer, LENGTH, STRIDE, QUESTION)
    kept = set(expected.example_index.tolist())
    assert np.flatnonzero(weights).tolist() == sorted(kept)
    assert features["token_ids"].shape == (len(examples), LENGTH)
    assert features["start_positions"] is labels["start_positions"]
    with_answer = 0
    for row in kept:
        own = np.flatnonzero(expected.example_index == row)
        holding = own[expected.is_impossible[own] == 0]
        assert labels["is_impossible"][row] == float(not len(holding))
        index = features["class_index"][row]
        if not len(holding):
            chosen = own[0]
            assert labels["start_positions"][row] == index
            assert labels["end_positions"][row] == index
        else:
            with_answer += 1
            around = np.minimum(
                expected.start_position[holding],
                expected.num_pieces[holding]
                - 1
                - expected.end_position[holding],
            )
            chosen = holding[np.argmax(around)]
            for edge in ("start", "end"):
                assert (
                    labels[f"{edge}_positions"][row]
                    == getattr(expected, f"{edge}_position")[chosen]
                )
        begin, end = expected.row_splits[chosen : chosen + 2]
        np.testing.assert_array_equal(
            features["token_ids"][row, : end - begin],
            expected.token_ids[begin:end],
        )
    assert 10 < with_answer < len(kept) - 10


def test_equal_on_real_questions(shared):
    file = shared / "data" / "squad" / "dev-v2.0.partA.json"
    model = shared / "data" / "spiece" / "spiece.model"
    if not file.is_file() or not model.is_file():
        pytest.skip("there are no SQuAD files beside the project")
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    examples = [
        QuestionExample(
            question["id"], paragraph["context"], question["question"]
        )
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ][::20][:120]
    assert len(examples) == 120
    tokenizer = Tokenizer(model)
    graph = GraphTokenizer(tokenizer)
    settings = (160, 40, 24)
    found = make_windows(graph, *strings(examples), *settings)
    expected = numpy_windows(examples, tokenizer, *settings, training=False)
    check_windows(found, expected)


def test_saved(graph, windows, examples, tmp_path):
    module = tf.Module()
    module.graph = graph

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def answer(questions, contexts):
        windows = make_windows(graph, questions, contexts, LENGTH, STRIDE, 8)
        shape = tf.shape(windows.window_row)[0]
        places = tf.tile(tf.range(5)[None], [shape, 1])
        outputs = {
            "start_top_scores": -tf.cast(places, tf.float32),
            "start_top_positions": places,
            "end_top_scores": tf.zeros([shape, 5, 1]),
            "end_top_positions": places[:, :, None] + 1,
            "class_logits": tf.cast(windows.num_pieces, tf.float32),
        }
        return best_spans(outputs, windows, contexts, n_best=2)

    module.answer = answer
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path).answer(*strings(examples))
    for name, value in answer(*strings(examples)).items():
        np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((24, 0, 8), "`stride` must be at least 1"),
        ((24, 6, -1), "`max_question_length` must not be negative"),
        ((11, 6, 8), "expected at least 12"),
    ],
)
def test_settings_are_checked(graph, settings, message):
    with pytest.raises(ValueError, match=message):
        make_windows(graph, ["a"], ["b"], *settings)


@pytest.mark.parametrize("settings", [(0, 5), (5, 0)])
def test_numbers_of_answers_are_checked(windows, examples, settings):
    with pytest.raises(ValueError, match="must be at least 1"):
        best_spans({}, windows, strings(examples)[1], *settings)
