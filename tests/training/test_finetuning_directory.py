"""Which run a directory holds: what may change, and what may not."""

import dataclasses
import json

import pytest

import xlnet_tf
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.reading import TaskData
from xlnet_tf.files import digest_of_weights
from xlnet_tf.training.finetuning_config import FinetuningConfig
from xlnet_tf.training.finetuning_directory import RUN_FILE
from xlnet_tf.training.finetuning_directory import enter

LABELS = ("no", "yes")
EXAMPLES = [TextExample(str(i), f"text {i}", None, "no") for i in range(4)]
DATA = TaskData(
    find_task("classification"), LABELS, EXAMPLES[:3], {"dev": EXAMPLES[3:]}
)
CONFIG = FinetuningConfig(steps=4)


@pytest.fixture
def preset(tmp_path):
    directory = tmp_path / "preset"
    directory.mkdir()
    (directory / "model.weights.h5").write_bytes(b"1")
    (directory / "metadata.json").write_text("{}")
    return directory


@pytest.fixture
def run(tmp_path, preset):
    """Enters a directory of a run with something to lose."""
    directory = tmp_path / "run"

    def enter_again(data=DATA, config=CONFIG, random_start=False):
        enter(directory, data, config, preset, random_start, True)
        checkpoints = directory / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        (checkpoints / "ckpt-2.index").touch()
        return directory

    enter_again()
    return enter_again


def test_the_same_run_goes_on(run, preset):
    (preset / "metadata.json").write_text('{"date_saved": "later"}')
    moved = [x._replace(where="elsewhere.tsv, row 9") for x in DATA.train]
    run(
        data=dataclasses.replace(DATA, train=moved),
        config=dataclasses.replace(CONFIG, patience=3),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": EXAMPLES[1:]}, "other training examples"),
        ({"evaluation": {"dev": EXAMPLES[2:]}}, "other examples to evaluate"),
        ({"evaluation": {"test": EXAMPLES[3:]}}, "other examples to evaluate"),
        ({"labels": ("no", "so")}, r"labels: \['no', 'yes'\] there"),
    ],
)
def test_other_examples_are_another_run(run, change, message):
    with pytest.raises(ValueError, match=f"holds another run.*{message}"):
        run(data=dataclasses.replace(DATA, **change))


def test_other_settings_are_another_run(run):
    with pytest.raises(ValueError, match="steps: 4 there, 5 now"):
        run(config=FinetuningConfig(steps=5))


def test_other_weights_at_the_same_place_are_another_run(run, preset):
    (preset / "model.weights.h5").write_bytes(b"2")
    with pytest.raises(ValueError, match="other weights in the preset"):
        run()


def test_weights_do_not_matter_to_a_random_start(tmp_path, preset):
    for weights in (b"1", b"2"):
        (preset / "model.weights.h5").write_bytes(weights)
        enter(tmp_path / "random", DATA, CONFIG, preset, True, True)
        (tmp_path / "random" / "results.json").write_text("{}")


def test_a_run_without_a_step_may_change(run):
    directory = run()
    (directory / "checkpoints" / "ckpt-2.index").rename(
        directory / "checkpoints" / "ckpt-0.index"
    )
    run(config=FinetuningConfig(steps=5))
    written = json.loads((directory / RUN_FILE).read_text())
    assert written["training"]["steps"] == 5
    with pytest.raises(ValueError, match="steps: 5 there, 4 now"):
        run()


def test_a_run_of_an_older_version_goes_on(run):
    file = run() / RUN_FILE
    values = json.loads(file.read_text())
    for name in ("training_examples", "held_out_examples", "preset_weights"):
        del values[name]
    del values["training"]["scan_layers"]
    file.write_text(json.dumps(values))
    run()
    assert json.loads(file.read_text())["training_examples"]


def test_weights_are_known_by_their_values(tmp_path):
    config = xlnet_tf.XLNetConfig(
        vocabulary_size=40,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=8,
    )
    model = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config))
    digests = []
    for name in ("one", "two"):
        model.save_to_preset(tmp_path / name)
        digests.append(digest_of_weights(tmp_path / name))
        # Names and hours differ, and so do the files.
        model = xlnet_tf.XLNetPretrainer.from_preset(tmp_path / name)
    assert digests[0] == digests[1]
    for changed in (model.backbone.weights[-1], model.head.bias):
        changed.assign_add(changed + 1)
        model.save_to_preset(tmp_path / "three")
        digests.append(digest_of_weights(tmp_path / "three"))
    assert len(set(digests)) == 3
