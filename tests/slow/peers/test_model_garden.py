"""Model Garden's models and ours: the same weights, the same numbers.

Every weight of theirs is random, zeros included, and saved as their code does.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow.peers.model_garden_models import SIZES
from tests.slow.peers.model_garden_models import B
from tests.slow.peers.model_garden_models import T
from tests.slow.peers.model_garden_models import assert_equal
from tests.slow.peers.model_garden_models import classifier_inputs
from tests.slow.peers.model_garden_models import features
from tests.slow.peers.model_garden_models import models
from tests.slow.peers.model_garden_models import network
from tests.slow.peers.model_garden_models import randomize
from tests.slow.peers.model_garden_models import save
from tests.slow.peers.model_garden_models import theirs
from tests.slow.peers.model_garden_models import trainer_objects
from tests.slow.peers.model_garden_models import write_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.tasks.text_classifier import XLNetTextClassifier
from xlnet_tf.tasks.text_regressor import XLNetTextRegressor

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*given targets or segm:UserWarning"
)


NETWORKS = {
    "untied gelu": ({}, {}),
    "relu": (dict(inner_activation="relu"), dict(ff_activation="relu")),
    "tied": (dict(tie_attention_biases=True), dict(untie_r=False)),
    "clamped": (dict(clamp_length=3), dict(clamp_length=3)),
    "both directions": (dict(bi_data=True), dict(reverse_half_batch=True)),
    "causal": (dict(attention_type="uni"), dict(attention_type="causal")),
    "all but causal": (
        dict(tie_attention_biases=True, clamp_length=4, bi_data=True),
        dict(untie_r=False, clamp_length=4, reverse_half_batch=True),
    ),
}
# Left out is what their code computes otherwise than it says: `attention_type`
# "uni" is not causal unless a mask is given, `use_cls_mask` swaps equal and
# different segments, and `memory_length` without `reuse_length` fails.
CASES = [pytest.param(*case, id=name) for name, case in NETWORKS.items()]


@pytest.mark.parametrize("their_overrides, overrides", CASES)
def test_a_network_of_one_stream_agrees(tmp_path, their_overrides, overrides):
    values = features(with_memory=True)
    model = network(**their_overrides)
    model(**theirs(values))
    expected, _ = randomize(model)(**theirs(values))
    save(tmp_path, model=model)
    write_config(tmp_path, **overrides)
    ours = XLNetBackbone.from_preset(tmp_path)
    assert ours.config.gelu == "erf"
    assert_equal(expected, ours(values)["content"])


@pytest.mark.parametrize("their_overrides, overrides", CASES)
def test_a_network_of_two_streams_agrees(tmp_path, their_overrides, overrides):
    values = features(with_targets=True, with_memory=True)
    model = network(
        two_stream=True, memory_length=7, reuse_length=4, **their_overrides
    )
    model(**theirs(values))
    expected, state = randomize(model)(**theirs(values))
    save(tmp_path, encoder=model)
    write_config(tmp_path, memory_length=7, reuse_length=4, **overrides)
    outputs = XLNetBackbone.from_preset(tmp_path)(values)
    assert_equal(expected, outputs["query"])
    assert_equal(tuple(state), outputs["memories"])


def test_a_pretrainer_agrees(tmp_path):
    values = features(with_targets=True, with_memory=True)
    del values["padding_mask"]  # theirs has no place for it
    inputs = theirs({**values, "padding_mask": np.ones((B, T))})
    inputs["input_word_ids"] = inputs.pop("input_ids")
    inputs["input_type_ids"] = inputs.pop("segment_ids")
    # With no `memory_length` the state is read and none is written.
    model = models.XLNetPretrainer(network(two_stream=True))
    model(inputs)
    logits, _ = randomize(model)(inputs)
    save(tmp_path, **trainer_objects(model))
    write_config(tmp_path)
    ours = XLNetPretrainer.from_preset(tmp_path)
    assert ours.head.has_transform and ours.head.transform_gelu == "erf"
    assert_equal(logits, ours.logits(ours(values)["query"]))


@pytest.mark.parametrize("how", ["trainer", "save_weights"])
@pytest.mark.parametrize("summary", ["last", "first"])
def test_a_classifier_agrees(tmp_path, how, summary):
    values = features()
    model = models.XLNetClassifier(
        network(), num_classes=3, summary_type=summary
    )
    model(classifier_inputs(values))
    expected = randomize(model)(classifier_inputs(values))
    if how == "trainer":
        save(tmp_path, **trainer_objects(model))
    else:
        model.save_weights(str(tmp_path / "weights"))
    write_config(tmp_path)
    given = {} if summary == "last" else {"summary": summary}
    ours = XLNetTextClassifier.from_preset(tmp_path, **given)
    assert_equal(expected, ours(values))


def test_a_regressor_agrees(tmp_path):
    values = features()
    model = models.XLNetClassifier(network(), num_classes=1)
    model(classifier_inputs(values))
    expected = randomize(model)(classifier_inputs(values))
    save(tmp_path, **trainer_objects(model))
    write_config(tmp_path)
    ours = XLNetTextRegressor.from_preset(tmp_path)
    assert_equal(expected[:, 0], ours(values))


def span_features(values):
    """What both need beyond the encoder's features."""
    mask = np.ones((B, T), "int32")
    mask[:, :3] = 0
    return {
        **values,
        "answer_mask": mask,
        "class_index": np.arange(B, dtype="int32") + 5,
        "start_positions": np.arange(B, dtype="int32") + 4,
    }


def span_outputs(ours, values):
    """Outputs without labels, and with them, in their order and shapes."""
    given = ours(values)
    free = ours({k: v for k, v in values.items() if k != "start_positions"})
    ends = (free["end_top_scores"], free["end_top_positions"])
    return (
        (free["start_top_scores"], free["start_top_positions"]),
        tuple(keras.ops.reshape(x, (B, -1)) for x in ends),
        given["class_logits"],
    ), (given["start_scores"], given["end_scores"])


def test_a_span_labeler_agrees(tmp_path):
    values = span_features(features())
    inputs = dict(
        **classifier_inputs(values),
        class_index=values["class_index"],
        paragraph_mask=values["answer_mask"],
        start_positions=values["start_positions"],
    )
    model = models.XLNetSpanLabeler(network(), 3, 2, dropout_rate=0.0)
    model(inputs)
    free = randomize(model)(inputs)
    given = model(inputs, training=True)
    save(tmp_path, **trainer_objects(model))
    write_config(tmp_path)
    ours = XLNetQuestionAnswering.from_preset(
        tmp_path, num_starts=3, num_ends=2
    )
    assert ours.inner_dim == SIZES["inner_size"] != ours.config.hidden_dim
    of_free, of_given = span_outputs(ours, values)
    assert_equal(
        (
            (free["start_top_predictions"], free["start_top_index"]),
            (free["end_top_predictions"], free["end_top_index"]),
            free["class_logits"],
        ),
        of_free,
    )
    shown = values["answer_mask"] > 0
    for name, scores in zip(("start", "end"), of_given, strict=True):
        assert_equal(
            given[f"{name}_predictions"][shown],
            keras.ops.convert_to_numpy(scores)[shown],
        )


def built_network(**overrides):
    values = features()
    if overrides.get("two_stream"):
        values = features(with_targets=True)
    model = network(**overrides)
    model(**theirs(values))
    return randomize(model)


class Holder(tf.train.Checkpoint):
    """Somebody's own class around a network."""


WAYS = {
    "model": lambda path, model: save(path, model=model),
    "deep inside": lambda path, model: save(
        path, a=Holder(b=Holder(my_encoder=model))
    ),
    "under two names": lambda path, model: save(
        path, zebra=model, step=tf.Variable(1), a=Holder(b=Holder(c=model))
    ),
    "no name": lambda path, model: tf.train.Checkpoint(model).write(
        str(path / "ckpt")
    ),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_the_network_is_found_under_any_name(tmp_path, how):
    model = built_network()
    how(tmp_path, model)
    write_config(tmp_path)
    values = features()
    expected, _ = model(**theirs(values))
    assert_equal(
        expected, XLNetBackbone.from_preset(tmp_path)(values)["content"]
    )


def test_what_was_never_given_is_absent(tmp_path):
    values = features()
    del values["segment_ids"]
    model = network()
    model(**theirs(values))
    expected, _ = randomize(model)(**theirs(values))
    save(tmp_path, model=model)
    write_config(tmp_path)
    message = "no model/seg_embed, because the model"
    with pytest.warns(UserWarning, match=message):
        ours = XLNetBackbone.from_preset(tmp_path)
    assert_equal(expected, ours(values)["content"])


def test_layers_that_the_config_lacks_are_named(tmp_path):
    save(tmp_path, model=built_network(two_stream=True))
    write_config(tmp_path, n_layer=2)
    message = "unexpected: model/_transformer_xl/transformer_xl_layers/2"
    with pytest.raises(ValueError, match=message):
        XLNetBackbone.from_preset(tmp_path)


def test_two_networks_are_too_many(tmp_path):
    save(tmp_path, one=built_network(), two=built_network())
    write_config(tmp_path)
    with pytest.raises(ValueError, match="expected one object.*found 2"):
        XLNetBackbone.from_preset(tmp_path)
