"""Directories of models: damage is found, and they are replaced whole."""

import json
import shutil

import numpy as np
import pytest

import xlnet_tf
from data_pipeline.base import directories
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.tokenization.hugging_face import read_tokenizer
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.weight_models import assert_same
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.loading import load_tokenizer
from xlnet_tf.weights import own
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.released import save_tf1

# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def read(path):
    return XLNetPretrainer.from_preset(path, preprocessor=None)


def pretrainer(seed=0):
    return ours(XLNetPretrainer, dict(vocabulary_size=300), seed)


@pytest.fixture(scope="module")
def classifier():
    """A classifier with a preprocessor; only read."""
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    return ours(
        XLNetTextClassifier,
        dict(vocabulary_size=tokenizer.vocabulary_size),
        num_classes=3,
        preprocessor=xlnet_tf.XLNetTextClassifierPreprocessor(tokenizer, 16),
    )


@pytest.fixture(scope="module")
def kept(classifier, tmp_path_factory):
    """The directory that `classifier` was written to; only read."""
    path = tmp_path_factory.mktemp("preset") / "kept"
    classifier.save_to_preset(path)
    return path


@pytest.fixture
def preset(kept, tmp_path):
    """A copy of the directory."""
    return shutil.copytree(kept, tmp_path / "preset")


def flip(file, bit):
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def files_below(path):
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }


def test_a_flipped_bit_in_any_file_is_found(preset, tmp_path):
    hugging_face = tmp_path / "hf"
    save_hugging_face(ours(XLNetTextClassifier, num_classes=3), hugging_face)
    random = np.random.default_rng(0)
    names = []
    for directory in (preset, hugging_face):
        for name, content in files_below(directory).items():
            names.append(name)
            for bit in random.integers(0, 8 * len(content), 6):
                flip(directory / name, bit)
                with pytest.raises((ValueError, FileNotFoundError)):
                    XLNetTextClassifier.from_preset(directory)
                (directory / name).write_bytes(content)
        XLNetTextClassifier.from_preset(directory)
    assert sorted(names) == [
        "SHA256SUMS",
        "SHA256SUMS",
        "assets/tokenizer/vocabulary.spm",
        "config.json",
        "config.json",
        "metadata.json",
        "model.safetensors",
        "model.weights.h5",
        "preprocessor.json",
        "task.json",
        "task.weights.h5",
        "tokenizer.json",
    ]


def test_what_is_read_without_the_model_is_checked_too(
    preset, tmp_path, classifier
):
    tokenizer = classifier.preprocessor.tokenizer
    write_tokenizer(tokenizer, tmp_path / "hf")
    save_tf1(classifier.backbone, tmp_path / "tf1", tokenizer)
    read_preprocessor = xlnet_tf.XLNetTextClassifierPreprocessor.from_preset
    of_a_preset = [own.VOCABULARY_FILE, own.TOKENIZER_FILE]
    for directory, names, readers in (
        (preset, of_a_preset, [read_tokenizer, load_tokenizer]),
        (preset, ["preprocessor.json", *of_a_preset], [read_preprocessor]),
        (tmp_path / "tf1", ["spiece.model"], [read_tokenizer]),
        (
            tmp_path / "hf",
            ["spiece.model", "tokenizer.json", "tokenizer_config.json"],
            [read_tokenizer, read_preprocessor],
        ),
    ):
        for name in names:
            content = (directory / name).read_bytes()
            flip(directory / name, 8 * len(content) - 15)
            for reader in readers:
                with pytest.raises(ValueError, match="is damaged, or was not"):
                    reader(directory)
            (directory / name).write_bytes(content)
        for reader in readers:
            reader(directory)
    settings = preset / "preprocessor.json"
    settings.write_text(settings.read_text().replace("16", "17"))
    model = XLNetTextClassifier.from_preset(preset, verify=False)
    assert model.preprocessor.sequence_length == 17
    assert read_preprocessor(preset, verify=False).sequence_length == 17


def test_files_of_two_models_are_found_unless_that_is_wanted(preset, tmp_path):
    pretrainer(3).save_to_preset(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.weights.h5", preset)
    message = "weights.h5 is damaged, or was not saved .*without SHA256SUMS"
    for load in (XLNetTextClassifier.from_preset, xlnet_tf.load):
        with pytest.raises(ValueError, match=message):
            load(preset)
        assert load(preset, verify=False).num_classes == 3
    # Directories that were written before have none.
    (preset / "SHA256SUMS").unlink()
    assert xlnet_tf.load(preset).num_classes == 3


def test_a_preset_that_is_replaced_while_it_is_read_is_refused(preset):
    with (
        pytest.raises(ValueError, match="replaced while it was read. Load"),
        open_source(preset).checked(),
    ):
        pretrainer().save_to_preset(preset)


def test_a_preprocessor_that_is_saved_beside_a_model_is_listed(
    preset, classifier
):
    tokenizer = classifier.preprocessor.tokenizer
    xlnet_tf.XLNetTextClassifierPreprocessor(tokenizer, 9).save_to_preset(
        preset
    )
    again = XLNetTextClassifier.from_preset(preset)
    assert again.preprocessor.sequence_length == 9


def test_a_stopped_save_leaves_the_old_model(preset, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    before = files_below(preset)
    for module, name in ((own, "write_json"), (directories, "write_checksums")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, name, stop)
            pretrainer().save_to_preset(preset)
        assert files_below(preset.parent) == {
            f"preset/{name}": content for name, content in before.items()
        }


def test_of_two_saves_at_once_one_wins_whole(preset, monkeypatch):
    models = [pretrainer(seed) for seed in (4, 5)]
    write_checksums = directories.write_checksums

    def meanwhile(path):
        monkeypatch.setattr(directories, "write_checksums", write_checksums)
        models[1].save_to_preset(preset)
        write_checksums(path)

    monkeypatch.setattr(directories, "write_checksums", meanwhile)
    models[0].save_to_preset(preset)
    assert_same(models[0], read(preset))
    assert [f.name for f in preset.parent.iterdir()] == ["preset"]


def test_files_of_others_stay(preset, tmp_path):
    """Links too, and through none of them anything is written."""
    tokenizer = (preset / own.VOCABULARY_FILE).read_bytes()
    (preset / "README.md").write_text("mine")
    (preset / "assets" / "notes.txt").write_text("mine too")
    (preset / "link").symlink_to("README.md")
    XLNetTextClassifier.from_preset(preset)
    model = pretrainer()
    model.save_to_preset(preset)
    found = files_below(preset)
    assert found["README.md"] == found["link"] == b"mine"
    assert (preset / "link").is_symlink()
    assert found["assets/notes.txt"] == b"mine too"
    # As before, a model without a tokenizer leaves the one that is there.
    assert found[own.VOCABULARY_FILE] == tokenizer
    assert "preprocessor.json" not in found
    assert_same(model, read(preset))
    outside = tmp_path / "outside"
    shutil.move(preset / "assets", outside)
    before = files_below(outside)
    (preset / "assets").symlink_to(outside)
    model.save_to_preset(
        preset, tokenizer=Tokenizer.from_model_proto(tiny_model())
    )
    assert files_below(outside) == before
    assert not (preset / "assets").is_symlink()
    shutil.rmtree(preset / "assets")
    (outside / "tokenizer" / "vocabulary.spm").write_bytes(b"mine")
    (preset / "assets").symlink_to(outside)
    xlnet_tf.XLNetTextClassifierPreprocessor(
        Tokenizer.from_model_proto(tiny_model()), 9
    ).save_to_preset(preset)
    assert files_below(outside)["tokenizer/vocabulary.spm"] == b"mine"
    assert not (preset / "assets").is_symlink()
    # A link to the directory itself stays one.
    (tmp_path / "again").symlink_to(preset)
    model.backbone.save_to_preset(tmp_path / "again")
    assert (tmp_path / "again").is_symlink()
    assert "task.json" not in files_below(preset)


def test_nothing_is_written_through_links(kept, classifier, tmp_path):
    """Of whole directories that are replaced, written in place, or in part."""
    saved = {
        "renamed": classifier.save_to_preset,
        "in place": classifier.save_to_preset,
        "in part": classifier.preprocessor.save_to_preset,
    }
    for how, save in saved.items():
        for name in ("assets", "assets/tokenizer", own.VOCABULARY_FILE):
            path = shutil.copytree(kept, tmp_path / how / name / "preset")
            outside = tmp_path / how / name / "outside"
            shutil.move(path / name, outside)
            (path / name).symlink_to(outside)
            file = next(
                x for x in (outside, *outside.rglob("*.spm")) if x.is_file()
            )
            file.write_bytes(b"precious")
            if how == "in place":
                (path / "runs").mkdir()
            save(path)
            assert file.read_bytes() == b"precious", (how, name)
            XLNetTextClassifier.from_preset(path)
    path = tmp_path / "listed"
    shutil.copytree(kept, path)
    (path / "runs").mkdir()
    (path / "SHA256SUMS").rename(tmp_path / "sums")
    (path / "SHA256SUMS").symlink_to(tmp_path / "sums")
    (tmp_path / "sums").write_text("precious")
    pretrainer().save_to_preset(path)
    assert (tmp_path / "sums").read_text() == "precious"


def test_a_directory_that_cannot_be_renamed_is_written_in_place(
    preset, monkeypatch
):
    (preset / "runs").mkdir()
    (preset / "runs" / "log").write_text("mine")
    inode = preset.stat().st_ino
    model = pretrainer()
    model.save_to_preset(preset)
    assert_same(model, read(preset))
    assert not (preset / "preprocessor.json").exists()
    assert (preset / "runs" / "log").read_text() == "mine"
    shutil.rmtree(preset / "runs")
    monkeypatch.chdir(preset)
    model.save_to_preset(".")
    assert_same(model, read("."))
    # Where it was stopped, the next reader hears of it.
    copy_tree = directories.copy_tree

    def stop_after_the_checksums(source, target):
        copy_tree(source, target)
        if target == preset / "SHA256SUMS":
            raise KeyboardInterrupt

    monkeypatch.setattr(directories, "copy_tree", stop_after_the_checksums)
    with pytest.raises(KeyboardInterrupt):
        pretrainer(6).save_to_preset(preset)
    assert preset.stat().st_ino == inode
    with pytest.raises((ValueError, FileNotFoundError)):
        XLNetPretrainer.from_preset(preset)


def test_directories_in_buckets(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ours(XLNetTextClassifier, num_classes=3)
    path = f"{bucket}/own"
    pretrainer().save_to_preset(path)
    model.save_to_preset(path)
    assert_same(model, xlnet_tf.load(path))
    model.backbone.save_to_preset(path)
    assert_same(model.backbone, XLNetBackbone.from_preset(path))
    assert not open_source(path).heads()
    for save in (save_hugging_face, save_tf1):
        path = f"{bucket}/{save.__name__}"
        save(model, path)
        assert_same(model, XLNetTextClassifier.from_preset(path))
        verify_checksums(path)
    model.config.to_json(f"{bucket}/config.json")
    assert model.config == model.config.from_json(f"{bucket}/config.json")
    model.save(tmp_path / "model.keras")
    own.copy_tree(tmp_path / "model.keras", f"{bucket}/run/model.keras")
    assert_same(model, xlnet_tf.load(f"{bucket}/run"))
    assert [f.name for f in tmp_path.iterdir()] == ["model.keras"]


def test_what_a_config_must_hold(preset):
    for name in ("config.json", "task.json"):
        content = (preset / name).read_text()
        for change in (
            lambda x: x.pop("config"),
            lambda x: x.update(config=[]),
        ):
            values = json.loads(content)
            change(values)
            (preset / name).write_text(json.dumps(values))
            with pytest.raises(ValueError, match=f"{name} is damaged: it lac"):
                xlnet_tf.load(preset, verify=False)
        (preset / name).write_text(content)
    text = (preset / "config.json").read_text()
    (preset / "config.json").write_text(text.replace(": 2,", ': "two",', 1))
    with pytest.raises(TypeError, match="config.json: `.*` must be a positive"):
        xlnet_tf.load(preset, verify=False)
