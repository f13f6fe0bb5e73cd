"""The official numbers, on answers whose scores are known by hand."""

import numpy as np
import pytest

from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tokenization.tokenizer import Tokenizer
from xlnet_tf.preprocessing.answers import decode
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.tasks.squad import NO_ANSWERS
from xlnet_tf.tasks.squad import answer_scores
from xlnet_tf.tasks.squad import scores_1
from xlnet_tf.tasks.squad import scores_2


def example(name, *answers):
    return QuestionExample(
        name,
        "The cat sat on a mat.",
        "What?",
        tuple(Answer(text, 0) for text in answers),
        is_impossible=not answers,
    )


ANSWERED = [example("a", "The cat", "cat"), example("b", "a mat")]
MIXED = [*ANSWERED, example("c"), example("d")]
RIGHT = {"a": "cat", "b": "the mat!", "c": "cat", "d": "sat"}


def test_version_1():
    perfect = scores_1(ANSWERED, RIGHT)
    assert perfect == {"exact_match": 100, "squad_f1": 100}
    # Half of the words of "b" are right: 2 * 1 * 1/2 / (1 + 1/2).
    half = scores_1(ANSWERED, {"a": "sat", "b": "mat sat"})
    assert half == {
        "exact_match": 0,
        "squad_f1": pytest.approx(100 * (2 / 3) / 2),
    }
    assert scores_1(ANSWERED, {"a": "", "b": ""}) == {
        "exact_match": 0,
        "squad_f1": 0,
    }


def test_version_2_perfect():
    odds = {"a": -2.0, "b": -0.5, "c": 0.5, "d": 3.0}
    result = scores_2(MIXED, RIGHT, odds)
    for name in ("exact", "f1", "best_exact", "best_f1"):
        assert result[name] == 100, name
    for part in ("HasAns", "NoAns"):
        assert result[f"{part}_exact"] == result[f"{part}_f1"] == 100
        assert result[f"{part}_total"] == 2
    assert result["best_f1_threshold"] == result["best_exact_threshold"] == -0.5


def test_version_2_empty():
    empty = dict.fromkeys(RIGHT, "")
    result = scores_2(MIXED, empty, dict.fromkeys(RIGHT, 0.0))
    assert result["exact"] == result["f1"] == 50
    assert result["HasAns_f1"] == 0
    assert result["NoAns_f1"] == 100


def test_version_2_thresholds():
    # Even odds are a bad threshold here: all seem to have an answer.
    odds = {"a": -9.0, "b": -7.0, "c": -6.0, "d": -5.5}
    result = scores_2(MIXED, RIGHT, odds)
    assert result["exact"] == result["HasAns_exact"] / 2 == 50
    assert result["NoAns_exact"] == 0
    assert (result["best_exact"], result["best_exact_threshold"]) == (100, -7)
    best = scores_2(MIXED, RIGHT, odds, result["best_exact_threshold"])
    assert best["exact"] == best["f1"] == 100
    lower = scores_2(MIXED, RIGHT, odds, -7.5)
    assert lower["exact"] == 75
    assert lower["best_exact"] == 100


def test_best_is_to_answer_nothing():
    wrong = dict.fromkeys(RIGHT, "sat")
    odds = {"a": -1.0, "b": -2.0, "c": -3.0, "d": -4.0}
    result = scores_2(MIXED, wrong, odds)
    assert result["best_f1_threshold"] == NO_ANSWERS
    assert result["best_f1"] == 50
    nothing = scores_2(MIXED, wrong, odds, NO_ANSWERS)
    assert nothing["f1"] == 50


def test_an_answer_without_text_is_none():
    odds = {"a": -2.0, "b": -0.5, "c": 0.5, "d": 3.0}
    for text in ("", " ", "\u200b"):
        empty = example("c", text)._replace(is_impossible=False)
        mixed = example("a", text, "cat")
        given = [mixed, *MIXED[1:2], empty, *MIXED[3:]]
        assert scores_2(given, RIGHT, odds) == scores_2(MIXED, RIGHT, odds)
        spec, found = find_task("squad-2.0"), decoded(odds)
        expected = answer_scores(spec, MIXED, found)
        assert answer_scores(spec, given, found) == expected
        with pytest.raises(ValueError, match="c: every question of SQuAD 1.1"):
            scores_1([empty], RIGHT)


def test_equals_the_official_script_on_random_answers():
    """All its numbers; it cannot take another threshold than 1."""
    for threshold in (1.0, 0.0, -1.3):
        compare_with_official(threshold)


def compare_with_official(threshold):
    from official.nlp.tools import squad_evaluate_v2_0 as official

    draw = np.random.default_rng(3)
    examples = [
        example(f"q{i}", *["cat sat"][: int(draw.integers(0, 2))])
        for i in range(200)
    ]
    texts = draw.choice(["cat", "", *["the cat sat"] * 4], 200)
    # Rounded, so that many are equal; positive, because the script begins its
    # search at 0, as for probabilities.
    odds = draw.normal(size=200) + [9 - 2 * len(x.answers) for x in examples]
    odds = odds.round(1)
    threshold = threshold + 9
    predictions = {f"q{i}": str(text) for i, text in enumerate(texts)}
    odds = {f"q{i}": float(x) for i, x in enumerate(odds)}
    dataset = [
        {
            "paragraphs": [
                {
                    "qas": [
                        {
                            "id": one.id,
                            "answers": [{"text": a.text} for a in one.answers],
                        }
                    ]
                }
            ]
        }
        for one in examples
    ]
    expected = official.evaluate(
        dataset, predictions, {k: v / threshold for k, v in odds.items()}
    )
    result = scores_2(examples, predictions, odds, threshold)
    for name in ("exact", "f1", "HasAns_f1", "NoAns_exact", "pr_f1_ap"):
        assert result[name] == expected[name]
    assert result["best_f1"] == expected["final_f1"]
    for new, old in (("exact", "exact_thresh"), ("f1", "f1_thresh")):
        assert result[f"best_{new}_threshold"] == pytest.approx(
            expected[f"final_{old}"] * threshold
        )
    assert 5 < result["best_f1_threshold"] < 12


def decoded(odds):
    """Answers as `TaskKind.decode` gives them."""
    return [
        {"no_answer_odds": odds[name], "n_best": [{"text": text}]}
        for name, text in RIGHT.items()
    ]


def test_scores_of_answers():
    spec = find_task("squad-1.1")
    odds = {"a": -9.0, "b": -7.0, "c": -6.0, "d": -5.5}
    found = answer_scores(spec, ANSWERED, decoded(odds)[:2])
    assert found == {"squad_f1": 100, "exact_match": 100}
    assert list(found) == list(spec.metrics)
    assert answer_scores(find_task("squad-2.0"), MIXED, decoded(odds)) == {
        "squad_f1": 100,
        "exact_match": 100,
        "null_threshold": -6.5,
        "squad_f1_at_even_odds": 50,
        "exact_match_at_even_odds": 50,
        "squad_f1_if_answerable": 100,
    }
    # No question has an answer: there are no spans to judge.
    found = answer_scores(find_task("squad-2.0"), MIXED[2:], decoded(odds)[2:])
    assert "squad_f1_if_answerable" not in found


def test_rounding_changes_no_answer():
    """The threshold of a run lies between the logits, not on one of them."""
    spec = find_task("squad-2.0")
    odds = {"a": -9.0, "b": -7.0, "c": -6.0, "d": -5.5}
    for count in (4, 2):  # with and without a higher logit than -7
        examples = MIXED[:count]
        assert scores_2(examples, RIGHT, odds)["best_f1_threshold"] == -7
        scores = answer_scores(spec, examples, decoded(odds)[:count])
        rounded = {name: x + 1e-6 for name, x in odds.items()}
        assert scores_2(examples, RIGHT, rounded, -7)["f1"] < 100
        for changed in (odds, rounded):
            found = scores_2(examples, RIGHT, changed, scores["null_threshold"])
            assert found["f1"] == scores["squad_f1"] == 100
    nothing = decoded({"a": -1.0, "b": -2.0, "c": -3.0, "d": -4.0})
    for one in nothing:
        one["n_best"][0]["text"] = "sat"
    scores = answer_scores(spec, MIXED, nothing)
    assert scores["null_threshold"] == NO_ANSWERS


def test_errors():
    with pytest.raises(ValueError, match="none for 1 of 2, such as 'b'"):
        scores_1(ANSWERED, {"a": "cat"})
    with pytest.raises(ValueError, match="`null_odds` must have an entry"):
        scores_2(MIXED, RIGHT, {})
    with pytest.raises(ValueError, match="c: every question of SQuAD 1.1"):
        scores_1(MIXED, RIGHT)
    with pytest.raises(ValueError, match="no examples to evaluate"):
        scores_2([], {}, {})


def test_a_model_that_knows_the_answers(shared):
    """Windows, merging and the official script, one after the other."""
    files = shared / "data" / "squad" / "dev-v1.1.partA.json"
    model = shared / "data" / "spiece" / "spiece.model"
    if not (files.is_file() and model.is_file()):
        pytest.skip(f"there is no {files.name}")
    examples = read_examples("squad-1.1", files, "dev")[:1000]
    preprocessor = XLNetQuestionAnsweringPreprocessor(Tokenizer(model), 256, 64)
    labelled = preprocessor.encode(examples, training=True).dense
    windows = len(labelled["class_index"])
    outputs = {
        "start_top_positions": labelled["start_position"][:, None],
        "end_top_positions": labelled["end_position"][:, None, None],
        "start_top_scores": np.zeros((windows, 1), np.float32),
        "end_top_scores": np.zeros((windows, 1, 1), np.float32),
        "class_logits": labelled["is_impossible"],
    }
    decoded = decode(outputs, preprocessor.encode(examples), examples)
    # 98.5: the file has "gold" as an answer in "golden", "5" in "50".
    found = answer_scores(find_task("squad-1.1"), examples, decoded)
    assert found["exact_match"] > 98
    assert found["squad_f1"] > 98
