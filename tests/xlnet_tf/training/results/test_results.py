"""Results of runs, their summary over seeds, reports and pictures."""

import contextlib
import errno
import json
import pathlib
import types

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from data_pipeline.base.models import read_results
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from xlnet_tf.training.results import outcome
from xlnet_tf.training.results import predictions
from xlnet_tf.training.results import summary
from xlnet_tf.training.results.outcome import finetuning_ending

FILES = ("report.html", "results.json", "best")  # told at the end
RUN = {
    "task": "mrpc",
    "metrics": {"f1": np.float32(0.75), "accuracy": 0.5},
    "seed": np.int64(3),
    "steps": 800,
    "examples": 3668,
    "preset": "presets/xlnet_base",
    "started_from": "pretrained",
}


def test_results_round_trip(tmp_path):
    written = summary.make_results(**RUN, details={"learning_rate": 2e-5})
    summary.write_results(tmp_path, written)
    read = read_results(tmp_path)
    assert read == written
    found = read.pop("versions")
    assert {"python", "xlnet_tf", "keras", "numpy", "seqeval"} <= set(found)
    assert found["numpy"] == np.__version__
    assert read == RUN | {
        "metric": "f1",
        "value": 0.75,
        "metrics": {"f1": 0.75, "accuracy": 0.5},
        "seed": 3,
        "details": {"learning_rate": 2e-5},
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "SHA256SUMS",
        "results.json",
    ]
    file = tmp_path / "results.json"
    file.write_text(file.read_text().replace("0.75", "0.76"))
    with pytest.raises(ValueError, match="results.json is damaged, or was"):
        read_results(tmp_path)


def test_results_are_written_last(tmp_path, monkeypatch):
    """A run that is stopped in its page is not done."""
    for name in ("write_predictions", "prediction_rows", "write_report"):
        monkeypatch.setattr(outcome, name, lambda *_: None)
    for name in ("analyse", "draw_losses"):
        monkeypatch.setattr(outcome, name, lambda *_: None)

    def stop(*_):
        raise KeyboardInterrupt

    task = types.SimpleNamespace(name="mrpc")
    data = types.SimpleNamespace(task=task, labels=None, train=[], columns="")
    model = types.SimpleNamespace(details=lambda _: None)
    of_run = {x: RUN[x] for x in RUN if x not in ("task", "examples")}
    for write_page, is_done in ((stop, False), (lambda *_: None, True)):
        monkeypatch.setattr(outcome, "write_page", write_page)
        with contextlib.suppress(KeyboardInterrupt):
            outcome.write_all(tmp_path, data, model, [], [], None, **of_run)
        assert (tmp_path / "results.json").is_file() == is_done


def test_results_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results.json.*Received"):
        read_results(tmp_path)
    with pytest.raises(ValueError, match="f1=nan"):
        summary.make_results(**RUN | {"metrics": {"f1": float("nan")}})
    with pytest.raises(ValueError, match="at least one metric"):
        summary.make_results(**RUN | {"metrics": {}})
    file = tmp_path / "results.json"
    file.write_text('{"task": "mrpc", "metric": "f1"}')
    with pytest.raises(ValueError, match="has no value, metrics, seed"):
        read_results(tmp_path)
    file.write_text("[]")
    with pytest.raises(ValueError, match="has no task"):
        read_results(tmp_path)
    file.write_text('{"task": ')
    with pytest.raises(ValueError, match="is not a JSON file"):
        read_results(tmp_path)


def test_summary_of_seeds():
    found = summary.seeds_summary([0.5, 0.25, 0.75, 0.875])
    assert found == {
        "median": 0.625,
        "min": 0.25,
        "max": 0.875,
        "all": [0.5, 0.25, 0.75, 0.875],
    }
    with pytest.raises(ValueError, match="values=\\[\\]"):
        summary.seeds_summary([])


def test_summary_has_what_every_seed_has(tmp_path):
    found = [
        {"metrics": {"f1": 0.5, "only_here": 1.0}},
        {"metrics": {"f1": 0.75}},
    ]
    said = []
    summary.write_summary(tmp_path, found, said.append)
    assert said == ["f1: median 0.625 of 2 seeds, 0.5 to 0.75"]
    found = json.loads((tmp_path / "seeds.json").read_text())
    assert found == {"f1": summary.seeds_summary([0.5, 0.75])}


def test_thresholds_that_answer_nothing_are_told_in_words(tmp_path):
    metrics = {"squad_f1": 50.0, "null_threshold": -3.4028234663852886e38}
    text = "squad_f1 50, null_threshold never answers"
    assert summary.written(metrics) == text
    metrics["null_threshold"] = -1.25
    assert summary.written(metrics, "  ") == "squad_f1 50  null_threshold -1.25"
    metrics["null_threshold"] = -3.4028234663852886e38
    said = []
    summary.write_summary(tmp_path, [{"metrics": metrics}], said.append)
    assert said == ["squad_f1: median 50 of 1 seeds, 50 to 50"]


LABELS = ("World", "Sports", "Business", "Sci/Tech", "never seen")
TARGETS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3])
PREDICTIONS = np.array([0, 0, 1, 1, 1, 2, 2, 0, 3, 2, 2])


def rows_of(text):
    """The cells of each line of a table, by its name."""
    lines = (line.rsplit(maxsplit=4) for line in text.splitlines())
    rows = [line for line in lines if len(line) > 1]
    return {line[0].strip(): line[1:] for line in rows}


def test_a_table_of_classes():
    found = rows_of(predictions.classes_text(TARGETS, PREDICTIONS, LABELS))
    assert found["World"] == ["0.667", "0.667", "0.667", "3"]
    assert found["Sports"] == ["0.667", "1.000", "0.800", "2"]
    assert found["Business"] == ["0.500", "0.500", "0.500", "4"]
    assert found["Sci/Tech"] == ["0.000", "0.000", "0.000", "2"]
    # The mean over the four classes that occur, as the metric `macro_f1`.
    assert found["macro avg"] == ["0.458", "0.542", "0.492", "11"]
    assert found["accuracy"] == ["0.545", "11"]
    assert "never seen" not in found


def test_a_table_of_entities(recwarn):
    targets = [
        ["B-person", "I-person", "O", "B-group"],
        ["O", "B-person", "B-creative-work"],
    ]
    predicted = [
        ["B-person", "I-person", "O", "O"],
        ["B-person", "B-person", "B-creative-work"],
    ]
    found = rows_of(predictions.entities_text(targets, predicted))
    assert found["creative-work"] == ["1.000", "1.000", "1.000", "1"]
    assert found["group"] == ["0.000", "0.000", "0.000", "1"]
    assert found["person"] == ["0.667", "1.000", "0.800", "2"]
    # All: 3 right of 4 predicted, of 4 there are.
    assert found["micro avg"] == ["0.750", "0.750", "0.750", "4"]
    assert found["macro avg"][2] == "0.600"
    text = predictions.entities_text([["O", "O"]], [["O", "O"]])
    assert "no entities" in text
    assert not recwarn
    with pytest.raises(ValueError, match="targets with 'NOUN'"):
        predictions.entities_text([["NOUN"]], [["O"]])


def figures_of(monkeypatch):
    """list to which each figure is added that is drawn."""
    figures = []
    png = predictions.png
    monkeypatch.setattr(
        predictions,
        "png",
        lambda figure: (figures.append(figure), png(figure))[1],
    )
    return figures


def test_a_confusion_matrix(monkeypatch, tmp_path):
    figures = figures_of(monkeypatch)
    file = tmp_path / "matrix.png"
    assert predictions.draw_confusion(
        file, TARGETS, PREDICTIONS, LABELS, "mine $x_{$"
    )
    axes = figures[0].axes[0]
    counts = np.zeros((5, 5), int)
    np.add.at(counts, (TARGETS, PREDICTIONS), 1)
    shown = {
        (round(text.get_position()[1]), round(text.get_position()[0])): int(
            text.get_text()
        )
        for text in axes.texts
    }
    assert shown == dict(np.ndenumerate(counts))
    # Dark is a large share of a class, however rare it is.
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    assert axes.images[0].get_clim() == (0, 1)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(LABELS)
    assert axes.get_xlabel() == "Predicted label"
    assert axes.get_ylabel() == "True label"
    assert axes.get_title(loc="left") == "mine $x_{$"
    assert matplotlib.image.imread(file).std() > 0.01


def test_a_matrix_of_one_class_warns_of_nothing(recwarn, tmp_path):
    nothing = np.zeros(3, int)
    file = tmp_path / "matrix.png"
    assert predictions.draw_confusion(file, nothing, nothing, ["a"], "mine")
    assert not recwarn


def test_official_files_are_written_all_or_none(monkeypatch, tmp_path):
    spec = find_task("squad-2.0")
    decoded = [{"id": "a", "answer": "x", "n_best": [], "no_answer_odds": 0.5}]
    examples = [QuestionExample("a", "x", "q")]
    predictions.write_report(tmp_path, spec, examples, decoded)
    # An answer may be cut within a character of two surrogates.
    cut = [{**decoded[0], "answer": "x\ud83d"}]
    predictions.write_report(tmp_path, spec, examples, cut)
    texts = [
        (tmp_path / x).read_text() for x in predictions.OFFICIAL_FILES.values()
    ]
    assert any(r"x\ud83d" in text for text in texts)
    predictions.write_report(tmp_path, spec, examples, decoded)
    before = {x.name: x.read_bytes() for x in tmp_path.iterdir()}
    assert set(before) == {*predictions.OFFICIAL_FILES.values(), "answers.png"}
    damaged = [{"id": "a", "answer": "y", "n_best": []}]
    with pytest.raises(KeyError):
        predictions.write_report(tmp_path, spec, examples, damaged)
    assert {x.name: x.read_bytes() for x in tmp_path.iterdir()} == before


def test_many_classes_stay_legible(monkeypatch, tmp_path):
    figures = figures_of(monkeypatch)
    file = tmp_path / "matrix.png"
    # Not a formula, and too long; the end still tells which it is.
    labels = [f"intent $x_{{$ of a very long name {i}" for i in range(60)]
    for count in (9, 60):
        classes = np.arange(count)
        predictions.draw_confusion(file, classes, classes, labels[:count], "")
    assert len(figures[0].axes[0].texts) == 9 * 9
    assert len(figures[1].axes[0].texts) == 0
    names = figures[1].axes[0].get_xticklabels()
    assert len({name.get_text() for name in names}) == 60
    assert max(len(name.get_text()) for name in names) <= 28
    # A row is higher than the letters beside it.
    assert min(figures[1].get_size_inches()) / 60 > names[0].get_size() / 72


@pytest.fixture
def only_own_fonts(monkeypatch):
    """A machine with no fonts but Matplotlib's own."""
    from matplotlib import font_manager

    own = pathlib.Path(matplotlib.get_data_path())
    fonts = [
        font
        for font in font_manager.fontManager.ttflist
        if own in pathlib.Path(font.fname).parents
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)


def test_names_without_a_font_are_numbers(
    only_own_fonts, monkeypatch, tmp_path, capsys
):
    figures = figures_of(monkeypatch)
    labels = ("好", "スポーツ", "안녕", "World")
    examples = [TextExample(x, "", None, x) for x in labels]
    decoded = [{"id": x, "label": x} for x in labels]
    spec = find_task("classification")
    predictions.write_report(tmp_path, spec, examples, decoded, labels)
    axes = figures[-1].axes[0]
    for ticks in (axes.get_xticklabels, axes.get_yticklabels):
        assert [text.get_text() for text in ticks()] == list("0123")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "so confusion_matrix.png shows their numbers" in said
    # The report is the key to the numbers.
    found = rows_of((tmp_path / "report.txt").read_text("utf-8"))
    assert [f"{i} {x}" for i, x in enumerate(labels)] == list(found)[1:5]


def test_files_of_each_kind_of_task(tmp_path):
    texts = [TextExample(str(i), "", None, i / 2) for i in range(3)]
    words = TokensExample("0", ("a", "b"), ("B-x", "O"))
    for name, examples, decoded, expected in (
        (
            "sts-b",
            texts,
            [{"id": x.id, "score": x.label} for x in texts],
            {"scores.png"},
        ),
        ("ner", [words], [{"id": "0", "tags": ["B-x", "O"]}], {"report.txt"}),
        (
            "squad-2.0",
            [QuestionExample("q1", "größer", "q")],
            [{"id": "q1", "answer": "ö", "no_answer_odds": 1.5, "n_best": []}],
            {*predictions.OFFICIAL_FILES.values(), "answers.png"},
        ),
        ("ranking", [RankingExample("q", "", "d", "")], [{}], set()),
    ):
        directory = tmp_path / name
        directory.mkdir()
        predictions.write_report(directory, find_task(name), examples, decoded)
        assert {x.name for x in directory.iterdir()} == expected, name
    text = (tmp_path / "squad-2.0" / "predictions.json").read_text("utf-8")
    assert text == '{\n    "q1": "ö"\n}\n'
    odds = (tmp_path / "squad-2.0" / "null_odds.json").read_text()
    assert json.loads(odds) == {"q1": 1.5}


def test_predictions_are_json_lines(tmp_path):
    file = tmp_path / "predictions.jsonl"
    predictions.write_predictions(file, [{"id": "ö\u2028"}, {"id": "b"}])
    lines = file.read_text("utf-8").split("\n")
    assert [json.loads(x) for x in lines[:2]] == [
        {"id": "ö\u2028"},
        {"id": "b"},
    ]
    assert lines[0].startswith('{"id": "ö')


def test_a_picture_of_numbers(monkeypatch, tmp_path):
    figures = figures_of(monkeypatch)
    targets = np.linspace(0, 5, 23)
    predicted = 5 - targets**2
    file = tmp_path / "scores.png"
    predictions.draw_regression(file, targets, predicted, "mine")
    axes = figures[0].axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_allclose(points, np.stack([targets, predicted], 1))
    assert axes.get_title(loc="left") == "mine"
    assert axes.get_xlabel() == "true value"
    before = file.read_bytes()

    def full_disk(*names):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        predictions.draw_regression(file, predicted, targets, "")
    assert file.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == [file.name]


def test_a_picture_of_answers(monkeypatch, tmp_path):
    """F1 by the official script: 2 of 3 words, none where there is none."""
    figures = figures_of(monkeypatch)
    context = "a b c d e f g h i j"
    examples = [
        QuestionExample(str(i), context, "q", (Answer(text, 0),))
        for i, text in enumerate(("b", "b c d", "b c d e", context))
    ]
    examples.append(QuestionExample("none", context, "q", (), True))
    answers = ("c", "b c", "b c d e", context, "b")
    decoded = [
        {"id": x.id, "answer": text}
        for x, text in zip(examples, answers, strict=True)
    ]
    found = predictions.answers_by_length(examples, decoded)
    assert found == {
        "none": (1, 0.0),
        "1": (1, 0.0),
        "3 to 4": (2, pytest.approx(90.0)),
        "9 or more": (1, 100.0),
    }
    predictions.draw_answers(tmp_path / "answers.png", found, "mine")
    axes = figures[0].axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [f1 for _, f1 in found.values()]
    assert [x.get_text() for x in axes.texts] == ["1", "1", "2", "1"]
    assert axes.get_title(loc="left") == "mine"


def test_a_run_ends_with_its_files_and_what_can_follow(finetuned):
    output = finetuned["classification"]
    results = read_results(output)
    metrics = f"classification: {summary.written(results['metrics'])}"
    wrote = f"wrote {', '.join(f'{output}/{x}' for x in FILES)}"
    following = [
        "next:",
        f"  xlnet export --model {output} --output saved_models/NAME",
        f"  xlnet evaluate --model {output} --task classification --data PATH",
    ]
    said = finetuning_ending(output, results)
    assert said[0] == metrics and said[-4:] == [wrote, *following]
    said = finetuning_ending(
        output, results, ("new.csv", "a/b", {"accuracy": 0.5})
    )
    predicted = ["new.csv: accuracy 0.5", "wrote a/b"]
    assert said[-6:] == [wrote, *predicted, *following]
    # Of several seeds, and of a run that was finished before.
    assert finetuning_ending(output, results, is_one=False)[-1] == wrote
    assert wrote not in finetuning_ending(output, results, is_new=False)
