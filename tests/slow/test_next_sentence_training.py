"""Next-sentence prediction in training runs, on replicas and by the command."""

import keras
import numpy as np
import pytest

from data_pipeline.base.files import read_json_lines
from tests.support.equality import assert_equal
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.replicas import two_replicas
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.xlnet_tf.objectives.test_next_sentence import WEIGHT
from tests.xlnet_tf.objectives.test_next_sentence import dataset
from tests.xlnet_tf.objectives.test_next_sentence import labelled
from tests.xlnet_tf.objectives.test_next_sentence import pretrainer
from xlnet_tf import XLNetPretrainer


def test_it_learns_which_rows_go_on():
    model, features = pretrainer(), labelled()
    model.compile(keras.optimizers.AdamW(3e-3), jit_compile=False)
    model.fit(dataset(features).repeat(60), epochs=1, verbose=0)
    # Guessing costs log(2) = 0.69 nats.
    assert float(np.max(as_numpy(model(features)["next_sentence_loss"]))) < 0.1


def test_replicas_and_parts_take_the_same_steps():
    weight = {"next_sentence_weight": WEIGHT}
    one = Trained(one_device(), **weight)
    other = Trained(two_replicas(), gradient_accumulation_steps=2, **weight)
    for name in ("loss", "accuracy", "next_sentence_accuracy"):
        np.testing.assert_allclose(
            one.scalars[name], other.scalars[name], rtol=1e-5
        )
    # float32 sums in another order, over five steps of Adam
    assert_equal(one.weights, other.weights, atol=1e-5)
    # It moves what the tokens alone move elsewhere.
    alone = Trained(one_device())
    embeddings = [
        trained.model.backbone.token_embedding.embeddings
        for trained in (one, alone)
    ]
    assert largest_difference(*embeddings) > 1e-4


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("records"))


def test_the_command_trains_it_and_goes_on(records, tmp_path, capfd):
    configs = write_configs(tmp_path, next_sentence_weight=WEIGHT)
    argv = arguments(records, tmp_path / "run", *configs, steps=4)
    assert run_train(*argv) == 0
    assert "  next sentence " in capfd.readouterr().err
    for line in read_json_lines(tmp_path / "run/metrics.jsonl"):
        assert 0 <= line["next_sentence_accuracy"] <= 1
    model = XLNetPretrainer.from_preset(tmp_path / "run/preset")
    assert model.next_sentence_weight == WEIGHT
    assert run_train(*argv) == 0  # nothing is left to do
    # Its head is a part of what goes on.
    configs = write_configs(tmp_path)
    argv = arguments(records, tmp_path / "run", *configs, steps=6)
    capfd.readouterr()
    assert run_train(*argv) == 1
    assert "next_sentence_weight: 0.7 there, 0.0 now" in capfd.readouterr().err


def test_training_goes_on_from_a_preset_without_its_head(records, tmp_path):
    configs = write_configs(tmp_path)
    assert run_train(*arguments(records, tmp_path / "plain", *configs)) == 0
    configs = write_configs(tmp_path, next_sentence_weight=WEIGHT)
    start = ("--preset", tmp_path / "plain/preset", "--learning-rate", "1e-12")
    argv = arguments(records, tmp_path / "run", *configs[2:], *start)
    assert run_train(*argv) == 0
    before = XLNetPretrainer.from_preset(tmp_path / "plain/preset")
    after = XLNetPretrainer.from_preset(tmp_path / "run/preset")
    assert after.next_sentence_head is not None
    assert_equal(before.backbone.weights, after.backbone.weights, atol=1e-6)
    assert_equal(before.head.weights, after.head.weights, atol=1e-6)
