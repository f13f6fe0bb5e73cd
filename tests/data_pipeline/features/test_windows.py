"""Windows of questions and their labels, against plain loops."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.packing import unpack
from data_pipeline.features.window_labels import answer_pieces
from data_pipeline.features.window_labels import training_windows
from data_pipeline.features.window_labels import window_labels
from data_pipeline.features.windows import make_windows
from data_pipeline.features.windows import max_context
from data_pipeline.features.windows import window_places
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import random_texts
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

CLS, SEP = 3, 4


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


@pytest.fixture(scope="module")
def examples():
    """Contexts of all lengths, every other one asked about twice."""
    draw = np.random.default_rng(5)
    sentences, odd = list(tiny_sentences(60)), list(random_texts(30, seed=2))
    found = []
    for number in range(36):
        context = " ".join(draw.choice(sentences, int(draw.integers(1, 6))))
        context = odd[number % 30] + context
        question = str(draw.choice(sentences))[: number % 37]
        answers = []
        for _ in range(int(draw.integers(0, 4))):
            begin, end = sorted(draw.integers(0, len(context), 2))
            text = context[begin : min(end, begin + 4 * (number % 5 + 1))]
            answers.append(Answer(text, int(begin) + (number % 9 == 8)))
        for title in ("first", "second")[: 1 + number % 2]:
            found.append(
                QuestionExample(
                    f"{number}", context, question + title, tuple(answers)
                )
            )
    return [*found, QuestionExample("empty", " ", "")]


def strings(examples):
    return (
        tf.constant([one.question for one in examples]),
        tf.constant([one.context for one in examples]),
    )


def slow_windows(examples, tokenizer, sequence_length, stride, limit):
    """The windows by loops: one dict for each."""
    for number, one in enumerate(examples):
        question = tokenizer.encode(one.question)[:limit]
        ids, offsets = tokenizer.encode_with_offsets(one.context)
        spans = slow_spans(one, offsets)
        room = sequence_length - len(question) - 3
        starts = [0]
        while starts[-1] + room < len(ids):
            starts.append(starts[-1] + min(room, stride))
        bounds = [(s, min(s + room, len(ids))) for s in starts]
        for index, (begin, end) in enumerate(bounds):
            tokens = ids[begin:end] + [SEP] + question + [SEP, CLS]
            rest = len(question) + 1
            label = (-1, -1)
            for first, last in spans:
                if begin <= first and last < end:
                    label = (first - begin, last - begin)
                    break
            yield {
                "token_ids": tokens,
                "segment_ids": [0] * (end - begin + 1) + [1] * rest + [2],
                "answer_mask": [1] * (end - begin) + [0] * (rest + 1) + [1],
                "begins": [begin for begin, _ in offsets[begin:end]],
                "ends": [end for _, end in offsets[begin:end]],
                "is_max_context": [
                    slow_best(bounds, piece) == index
                    for piece in range(begin, end)
                ],
                "class_index": len(tokens) - 1,
                "window_row": number,
                "first_piece": begin,
                "num_pieces": end - begin,
                "label": label,
            }


def slow_spans(one, offsets):
    """First and last piece of each answer that is at its place."""
    found = []
    for answer in one.answers:
        end = answer.start + len(answer.text)
        if one.context[answer.start : end] != answer.text:
            continue
        inside = {
            place
            for place in range(answer.start, end)
            if not one.context[place].isspace()
        }
        pieces = [
            index
            for index, (begin, end) in enumerate(offsets)
            if inside & set(range(begin, end))
        ]
        if pieces:
            found.append((pieces[0], pieces[-1]))
    return found


def slow_best(bounds, piece):
    scores = [
        min(piece - begin, end - 1 - piece) + 0.01 * (end - begin)
        if begin <= piece < end
        else -1
        for begin, end in bounds
    ]
    return scores.index(max(scores))


def labels_of(windows, examples):
    answers = [
        (row, answer)
        for row, one in enumerate(examples)
        for answer in one.answers
    ]
    rows = np.array([row for row, _ in answers], np.int32)
    found = answer_pieces(
        windows,
        strings(examples)[1],
        tf.constant([answer.start for _, answer in answers]),
        tf.constant([answer.text for _, answer in answers]),
        rows,
    )
    start, end = window_labels(windows, rows, *found[:3])
    return list(zip(start.numpy().tolist(), end.numpy().tolist(), strict=True))


def test_windows_and_labels_by_loops(tokenizer, graph, examples):
    whole = []
    for settings in (
        (512, 128, 64),
        (64, 16, 20),
        (40, 7, 11),
        (24, 64, 20),
        (9, 1, 5),
    ):
        windows = make_windows(graph, *strings(examples), *settings)
        expected = list(slow_windows(examples, tokenizer, *settings))
        columns = {
            **windows._asdict(),
            **windows.features,
            **unpack(windows.features),
            "num_pieces": windows.num_pieces,
        }
        for name in expected[0].keys() - {"label"}:
            column = columns[name]
            values = (
                column.to_list()
                if isinstance(column, tf.RaggedTensor)
                else column.numpy().tolist()
            )
            rows = [row[name] for row in expected]
            assert values == rows, (settings, name)
        labels = [row["label"] for row in expected]
        assert labels_of(windows, examples) == labels
        whole.append(sum(start >= 0 for start, _ in labels))
    assert min(whole) > 2
    assert max(whole) > 20


def test_padding(graph, examples):
    settings = (40, 7, 11)
    eager = make_windows(graph, *strings(examples), *settings)
    for name, value in eager.features.items():
        assert value.dtype == tf.int32, name
    fillers = {"token_ids": 0, "segment_ids": 3, "answer_mask": 0}
    padding = eager.features["padding_mask"] == 0
    for name, filler in fillers.items():
        assert set(eager.features[name][padding].numpy()) == {filler}
    nothing = tf.zeros([0], tf.string)
    found = make_windows(graph, nothing, nothing, *settings)
    assert found.features["token_ids"].shape == (0, 40)


def test_a_long_window_counts_a_little_more():
    """Where the last window is more than 100 pieces shorter."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 900, 20)
    starts = np.cumsum(lengths) - lengths
    room = draw.integers(200, 400, 20)
    places, rows, first = window_places(
        *(tf.constant(x) for x in (lengths, starts, room)),
        tf.fill([20], tf.constant(170, tf.int64)),
    )
    expected = []
    for number in range(20):
        mine = rows.numpy() == number
        begins = first.numpy()[mine]
        ends = begins + places.row_lengths().numpy()[mine]
        bounds = [*zip(begins, ends, strict=True)]
        assert bounds[-1][1] == lengths[number]
        best = [slow_best(bounds, piece) for piece in range(lengths[number])]
        expected += [
            best[piece] == index
            for index, (begin, end) in enumerate(bounds)
            for piece in range(begin, end)
        ]
    assert max_context(places).numpy().tolist() == expected


def test_the_window_to_train_on_has_the_most_context(
    tokenizer, graph, examples
):
    settings = (40, 7, 11)
    examples = [one._replace(answers=one.answers[:1]) for one in examples]
    starts = [one.answers[0].start if one.answers else -1 for one in examples]
    texts = [one.answers[0].text if one.answers else "" for one in examples]
    questions, contexts = strings(examples)
    windows = make_windows(graph, questions, contexts, *settings)
    features, labels, weights = training_windows(
        windows, contexts, tf.constant(starts), tf.constant(texts)
    )
    assert features["start_positions"] is labels["start_positions"]
    expected = list(slow_windows(examples, tokenizer, *settings))
    ids = unpack(features)["token_ids"].to_list()
    whole = 0
    for row, one in enumerate(examples):
        own = [x for x in expected if x["window_row"] == row]
        holding = [x for x in own if x["label"][0] >= 0]
        best = own[0]
        label = (best["class_index"],) * 2
        if holding:
            whole += 1
            around = [
                min(x["label"][0], x["num_pieces"] - 1 - x["label"][1])
                for x in holding
            ]
            best = holding[int(np.argmax(around))]
            label = best["label"]
        assert ids[row] == best["token_ids"]
        assert (
            labels["start_positions"][row],
            labels["end_positions"][row],
        ) == label
        assert labels["is_impossible"][row] == float(not holding)
        spans = slow_spans(one, tokenizer.encode_with_offsets(one.context)[1])
        assert weights[row] == float(bool(spans) or not one.true_answers)
    assert 3 < whole < len(examples) - 3


def test_settings_are_checked(graph):
    for settings, message in (
        ((24, 0, 8), "`stride` must be at least 1"),
        ((24, 6, -1), "`max_question_length` must not be negative"),
        ((11, 6, 8), "expected at least 12"),
    ):
        with pytest.raises(ValueError, match=message):
            make_windows(graph, ["a"], ["b"], *settings)
