"""Reports, pictures and results of fine-tuning say what was counted."""

import ast
import io
import json
import pathlib
import sys

import matplotlib.image
import numpy as np
import pytest

from xlnet_tf.tasks import metric_functions
from xlnet_tf.tasks import metrics as finetuning_metrics
from xlnet_tf.training import finetuning_fonts
from xlnet_tf.training import finetuning_report
from xlnet_tf.training import results as finetuning_seeds

RANDOM = np.random.default_rng(11)
LABELS = ("World", "Sports", "Business", "Sci/Tech", "never seen")
TARGETS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3])
PREDICTIONS = np.array([0, 0, 1, 1, 1, 2, 2, 0, 3, 2, 2])


def counted(targets, predictions, place):
    """Scores of a class by a loop over the examples."""
    pairs = list(zip(targets, predictions, strict=True))
    right = sum(t == p == place for t, p in pairs)
    wanted = sum(t == place for t, _ in pairs)
    given = sum(p == place for _, p in pairs)
    return {
        "precision": right / given if given else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (wanted + given) if wanted + given else 0.0,
        "support": wanted,
    }


def test_classes_by_a_loop():
    report = finetuning_report.classification_report(
        TARGETS, PREDICTIONS, LABELS
    )
    assert list(report["classes"]) == list(LABELS)
    for place, label in enumerate(LABELS):
        assert report["classes"][label] == pytest.approx(
            counted(TARGETS, PREDICTIONS, place)
        )
    assert report["accuracy"] == pytest.approx(6 / 11)
    occurring = [counted(TARGETS, PREDICTIONS, place) for place in range(4)]
    assert report["macro_average"] == pytest.approx(
        {
            name: np.mean([row[name] for row in occurring])
            for name in ("precision", "recall", "f1")
        }
        | {"support": 11}
    )
    json.dumps(report)
    assert list(
        finetuning_report.classification_report(TARGETS, PREDICTIONS)["classes"]
    ) == ["0", "1", "2", "3"]


def test_text_is_aligned():
    report = finetuning_report.classification_report(
        TARGETS, PREDICTIONS, LABELS
    )
    text = finetuning_report.report_text(report)
    assert text.splitlines() == [
        "class          precision  recall     f1  support",
        "World              0.667   0.667  0.667        3",
        "Sports             0.667   1.000  0.800        2",
        "Business           0.500   0.500  0.500        4",
        "Sci/Tech           0.000   0.000  0.000        2",
        "never seen         0.000   0.000  0.000        0",
        "macro average      0.458   0.542  0.492       11",
        "accuracy           0.545",
    ]
    many = np.arange(150).repeat(9)
    text = finetuning_report.report_text(
        finetuning_report.classification_report(many, many)
    )
    assert len({len(line) for line in text.splitlines()[:-1]}) == 1


def test_entities_by_type():
    targets = [
        ["B-person", "I-person", "O", "B-group"],
        ["O", "B-person", "B-creative-work"],
    ]
    predictions = [
        ["B-person", "I-person", "O", "O"],
        ["B-person", "B-person", "B-creative-work"],
    ]
    report = finetuning_report.entity_report(targets, predictions)
    expected = {
        "creative-work": (1, 1, 1, 1),
        "group": (0, 0, 0, 1),
        "person": (2 / 3, 1, 0.8, 2),
    }
    assert list(report["classes"]) == list(expected)
    for name, row in expected.items():
        assert tuple(report["classes"][name].values()) == pytest.approx(row)
    # All: 3 right of 4 predicted, of 4 there are.
    micro = report["micro_average"]
    assert tuple(micro.values()) == pytest.approx((0.75, 0.75, 0.75, 4))
    assert report["macro_average"]["f1"] == pytest.approx((1 + 0 + 0.8) / 3)
    json.dumps(report)
    text = finetuning_report.report_text(report)
    assert "micro average      0.750   0.750  0.750        4" in text


def test_no_entities(recwarn):
    report = finetuning_report.entity_report([["O", "O"]], [["O", "O"]])
    assert report["classes"] == {}
    assert tuple(report["micro_average"].values()) == (0, 0, 0, 0)
    assert finetuning_report.report_text(report).count("\n") == 2
    assert not recwarn


@pytest.mark.parametrize(
    ("targets", "predictions", "labels", "message"),
    [
        ([0, 1], [0, 2], ("a", "b"), "0 to 1 are expected.*from 0 to 2"),
        ([0, -1], [0, 1], None, "from -1 to 1"),
        ([0, 1], [0], None, "2 and 1"),
        ([], [], None, "0 and 0"),
    ],
)
def test_class_errors(targets, predictions, labels, message):
    with pytest.raises(ValueError, match=message):
        finetuning_report.classification_report(targets, predictions, labels)


def drawn(function, *arguments, **options):
    """The figure that would be written, and not the file."""
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            finetuning_report, "_save", lambda figure, _: figures.append(figure)
        )
        function("no file", *arguments, **options)
    return figures[0]


def test_matrix_shows_counts_and_shares():
    figure = drawn(
        finetuning_report.draw_confusion_matrix, TARGETS, PREDICTIONS, LABELS
    )
    axes = figure.axes[0]
    counts = np.zeros((5, 5), int)
    for target, prediction in zip(TARGETS, PREDICTIONS, strict=True):
        counts[target, prediction] += 1
    shown = {
        (round(text.get_position()[1]), round(text.get_position()[0])): int(
            text.get_text()
        )
        for text in axes.texts
    }
    assert shown == {
        (row, column): counts[row, column]
        for row, column in np.argwhere(counts).tolist()
    }
    shares = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(shares[2], [0.25, 0, 0.5, 0.25, 0])
    np.testing.assert_array_equal(shares[4], 0)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(LABELS)
    assert axes.get_xlabel() == "predicted class"
    assert axes.get_ylabel() == "true class"
    assert axes.get_title(loc="left") == "accuracy 0.545 of 11 examples"


@pytest.mark.parametrize(("num_classes", "numbered"), [(40, True), (41, False)])
def test_many_classes_have_no_numbers(num_classes, numbered):
    classes = np.arange(num_classes)
    figure = drawn(finetuning_report.draw_confusion_matrix, classes, classes)
    assert len(figure.axes[0].texts) == (num_classes if numbered else 0)


def test_many_classes_stay_legible(tmp_path):
    targets = RANDOM.integers(0, 42, 900)
    # Not a formula, and too long; the end still tells which it is.
    labels = [f"intent $x_{{$ of a very long name {i}" for i in range(150)]
    file = tmp_path / "confusion.png"
    finetuning_report.draw_confusion_matrix(
        file, targets, np.roll(targets, 1), labels[:42]
    )
    picture = matplotlib.image.imread(file)
    assert min(picture.shape[:2]) > 42 * 15 and picture.std() > 0.01
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    figure = drawn(
        finetuning_report.draw_confusion_matrix, targets, targets, labels
    )
    names = figure.axes[0].get_xticklabels()
    assert len({name.get_text() for name in names}) == 150
    assert max(len(name.get_text()) for name in names) <= 28
    # A row is higher than the letters beside it.
    assert min(figure.get_size_inches()) / 150 > names[0].get_size() / 72


FOREIGN = ("好", "スポーツ", "안녕", "World")


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
    return fonts


def write_font(file, name, letters):
    """A font whose glyphs are squares."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 500), (500, 500), (500, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", *(f"glyph{i}" for i in range(len(letters)))]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(
        dict(zip(map(ord, letters), names[1:], strict=True))
    )
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(file)


def test_names_without_a_font_are_numbers(only_own_fonts, tmp_path):
    file = tmp_path / "matrix.png"
    classes = np.arange(4)
    with pytest.warns(UserWarning) as warned:
        figure = drawn(
            finetuning_report.draw_confusion_matrix, classes, classes, FOREIGN
        )
        assert not finetuning_report.draw_confusion_matrix(
            file, classes, classes, FOREIGN
        )
    # Matplotlib warns of each glyph that it has no font for.
    assert len(warned) == 2
    assert "matrix.png shows their numbers" in str(warned[1].message)
    for ticks in (
        figure.axes[0].get_xticklabels,
        figure.axes[0].get_yticklabels,
    ):
        assert [text.get_text() for text in ticks()] == list("0123")
    assert file.stat().st_size > 1000
    report = finetuning_report.classification_report(classes, classes, FOREIGN)
    rows = finetuning_report.report_text(report, numbered=True).splitlines()
    assert [row.split()[:2] for row in rows[1:5]] == [
        [str(i), name] for i, name in enumerate(FOREIGN)
    ]


def test_names_are_drawn_by_a_font_that_has_them(
    only_own_fonts, tmp_path, recwarn
):
    from matplotlib import font_manager

    letters = sorted(set("".join(FOREIGN[:2])))
    write_font(tmp_path / "a.ttf", "Noto Sans CJK JP", letters)
    write_font(tmp_path / "b.ttf", "Some Hangul", FOREIGN[2])
    for name in ("a.ttf", "b.ttf"):
        font_manager.fontManager.addfont(tmp_path / name)
    file = tmp_path / "matrix.png"
    classes = np.arange(4)
    assert finetuning_report.draw_confusion_matrix(
        file, classes, classes, FOREIGN
    )
    figure = drawn(
        finetuning_report.draw_confusion_matrix, classes, classes, FOREIGN
    )
    (name, *_) = figure.axes[0].get_xticklabels()
    assert name.get_text() == "好"
    assert name.get_fontfamily() == [
        "DejaVu Sans",
        "Noto Sans CJK JP",
        "Some Hangul",
    ]
    assert not recwarn
    assert finetuning_fonts.families_for("größer …") == ["DejaVu Sans"]


def test_regression_shows_every_example(tmp_path):
    targets = np.linspace(0, 5, 23)
    predictions = 5 - targets**2
    figure = drawn(finetuning_report.draw_regression, targets, predictions)
    axes = figure.axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_allclose(points, np.stack([targets, predictions], 1))
    pearson = np.corrcoef(targets, predictions)[0, 1]
    assert axes.get_title(loc="left") == (
        f"pearson {pearson:.3f}, spearman -1.000, 23 examples"
    )
    assert axes.get_xlabel() and axes.get_ylabel()
    file = tmp_path / "regression.png"
    finetuning_report.draw_regression(file, targets, predictions)
    assert matplotlib.image.imread(file).ndim == 3


def test_a_picture_is_whole_or_not_there(tmp_path, monkeypatch):
    file = tmp_path / "confusion.png"
    finetuning_report.draw_confusion_matrix(file, TARGETS, PREDICTIONS)
    before = file.read_bytes()

    def full_disk(*names):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        finetuning_report.draw_confusion_matrix(file, PREDICTIONS, TARGETS)
    assert file.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_pictures_leave_pyplot_alone(tmp_path, monkeypatch):
    # None in the place of a module: importing it fails.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    finetuning_report.draw_regression(tmp_path / "a.png", [0, 1], [0, 1])
    finetuning_report.draw_confusion_matrix(tmp_path / "b.png", [0, 1], [0, 1])


@pytest.mark.parametrize(
    "module",
    [
        finetuning_metrics,
        finetuning_report,
        finetuning_seeds,
        metric_functions,
    ],
)
def test_libraries_are_imported_when_they_are_needed(module):
    body = ast.parse(pathlib.Path(module.__file__).read_text()).body
    early = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    roots = {name.split(".")[0] for name in early}
    assert not roots & {"matplotlib", "scipy", "seqeval", "sklearn"}


def test_pictures_are_the_same_every_time(tmp_path):
    pictures = []
    for _ in range(2):
        finetuning_report.draw_regression(
            tmp_path / "a.png", [1, 2, 3], [1, 2, 4]
        )
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0] == pictures[1]
    assert io.BytesIO(pictures[0]).read(4) == b"\x89PNG"
