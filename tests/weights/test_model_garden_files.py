"""Model Garden's directories: found, described, read whole or refused."""

import json
import re

import pytest
import tensorflow as tf
from tests.support.model_garden_models import SIZES
from tests.support.model_garden_models import assert_equal
from tests.support.model_garden_models import classifier_inputs
from tests.support.model_garden_models import features
from tests.support.model_garden_models import models
from tests.support.model_garden_models import network
from tests.support.model_garden_models import randomize
from tests.support.model_garden_models import save
from tests.support.model_garden_models import theirs
from tests.support.model_garden_models import trainer_objects
from tests.support.model_garden_models import transformer_xl
from tests.support.model_garden_models import write_config

from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.weights.preset import detect
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.preset import read_config

train_utils = pytest.importorskip("official.core.train_utils")
encoders = pytest.importorskip("official.nlp.configs.encoders")
config_definitions = pytest.importorskip("official.core.config_definitions")
sentence_prediction = pytest.importorskip(
    "official.nlp.tasks.sentence_prediction"
)

NEVER_GIVEN = "ignore:.*given targets or segments:UserWarning"


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


@pytest.mark.filterwarnings(NEVER_GIVEN)
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


@pytest.mark.filterwarnings(NEVER_GIVEN)
def test_the_variables_of_a_saved_model_are_read(tmp_path):
    values = features()
    model = models.XLNetClassifier(network(), num_classes=3)
    model(classifier_inputs(values))
    expected = randomize(model)(classifier_inputs(values))
    tf.saved_model.save(model, str(tmp_path))
    write_config(tmp_path / "variables")
    ours = XLNetTextClassifier.from_preset(tmp_path / "variables")
    assert_equal(expected, ours(values))


def experiment(directory, **encoder):
    """`params.yaml`, as the trainer writes it; the parameters."""
    model = sentence_prediction.ModelConfig(
        num_classes=3,
        encoder=encoders.EncoderConfig(
            type="xlnet",
            xlnet=encoders.XLNetEncoderConfig(
                **{**SIZES, "embedding_width": SIZES["hidden_size"], **encoder}
            ),
        ),
    )
    task = sentence_prediction.SentencePredictionConfig(model=model)
    parameters = config_definitions.ExperimentConfig(task=task)
    train_utils.serialize_config(parameters, str(directory))
    return parameters


@pytest.mark.filterwarnings(NEVER_GIVEN)
def test_the_directory_of_a_training_run_is_read(tmp_path):
    parameters = experiment(
        tmp_path,
        inner_activation="relu",
        tie_attention_biases=True,
        clamp_length=4,
        bi_data=True,
    )
    task = sentence_prediction.SentencePredictionTask(parameters.task)
    model = task.build_model()
    values = features()
    model(classifier_inputs(values))
    expected = randomize(model)(classifier_inputs(values))
    save(tmp_path, **trainer_objects(model))
    save(tmp_path, **trainer_objects(model))
    assert detect(tmp_path) == "tensorflow"
    for path in (tmp_path, tmp_path / "ckpt-1"):
        ours = XLNetTextClassifier.from_preset(path)
        assert_equal(expected, ours(values))


def test_every_parameter_of_the_encoder_is_read(tmp_path):
    experiment(
        tmp_path,
        inner_activation="relu",
        dropout_rate=0.25,
        attention_dropout_rate=0.125,
        attention_type="uni",
        bi_data=True,
        tie_attention_biases=True,
        memory_length=11,
        clamp_length=7,
        reuse_length=5,
        initializer_range=0.5,
    )
    save(tmp_path, model=built_network())
    assert read_config(tmp_path).to_dict() == dict(
        vocabulary_size=97,
        num_layers=3,
        num_heads=5,
        hidden_dim=30,
        head_dim=6,
        intermediate_dim=23,
        activation="relu",
        gelu="erf",
        untie_biases=False,
        memory_length=11,
        reuse_length=5,
        clamp_length=7,
        same_length=False,
        attention_type="causal",
        reverse_half_batch=True,
        dropout=0.25,
        attention_dropout=0.125,
        initializer_range=0.5,
        layer_norm_epsilon=1e-12,
    )
    experiment(tmp_path)
    config = read_config(tmp_path)
    assert config.untie_biases and config.clamp_length == 0
    assert config.attention_type == "bidirectional"


def test_tuples_in_the_parameters_are_read(tmp_path):
    experiment(tmp_path)
    save(tmp_path, model=built_network())
    with (tmp_path / "params.yaml").open("a") as file:
        file.write("more: !!python/tuple [1, 2]\n")
    assert read_config(tmp_path).num_layers == SIZES["num_layers"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("task: {model: {encoder: {type: bert}}}", "type is 'bert', not 'xln"),
        ("task: 3", "its task.model.encoder.type is None, not 'xlnet'"),
        ("task: {model: [", "params.yaml is not a YAML file: .*line 1"),
        ("a: !!python/object:os.system {}", "params.yaml is not a YAML file"),
        (
            "task: {model: {encoder: {type: xlnet, xlnet: {num_layers: 2}}}}",
            "encoder.xlnet lacks vocab_size, num_attention_heads, hidden_size",
        ),
    ],
)
def test_parameters_of_something_else_are_named(tmp_path, text, message):
    save(tmp_path, model=built_network())
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        XLNetBackbone.from_preset(tmp_path)


def test_a_parameter_that_we_lack_is_named(tmp_path):
    experiment(tmp_path, inner_activation="swish")
    save(tmp_path, model=built_network())
    with pytest.raises(ValueError, match="params.yaml: .*activation.*'swish'"):
        XLNetBackbone.from_preset(tmp_path)


def test_segments_the_other_way_round_are_named(tmp_path):
    experiment(tmp_path, use_cls_mask=True)
    save(tmp_path, model=built_network(two_stream=True))
    with pytest.warns(UserWarning, match="trained with `use_cls_mask`"):
        XLNetBackbone.from_preset(tmp_path)


def test_a_directory_without_any_config_is_named(tmp_path):
    save(tmp_path, model=built_network())
    with pytest.raises(FileNotFoundError, match="without its .*params.yaml"):
        XLNetBackbone.from_preset(tmp_path)


def test_what_was_never_given_is_absent(tmp_path):
    values = features()
    del values["segment_ids"]
    model = network()
    model(**theirs(values))
    expected, _ = randomize(model)(**theirs(values))
    save(tmp_path, model=model)
    write_config(tmp_path)
    message = "no model/mask_emb.Smask_emb and no model/seg_embed"
    with pytest.warns(UserWarning, match=message):
        ours = XLNetBackbone.from_preset(tmp_path)
    assert_equal(expected, ours(values)["content"])


@pytest.mark.parametrize("make", [built_network, transformer_xl])
def test_the_source_says_what_decided_the_form_of_gelu(tmp_path, make):
    model = make()
    if make is transformer_xl:
        ids = tf.zeros((3, 2), tf.int32)
        model(ids, ids)
    save(tmp_path, model=model)
    write_config(tmp_path)
    name, form = (
        ("TransformerXLModel", "tanh")
        if make is transformer_xl
        else ("XLNetBase", "erf")
    )
    source = open_source(tmp_path)
    assert source.gelu == f"Model Garden's {name} computes the {form} form"
    assert source.config().gelu == form


def saved_without(directory, name):
    """A checkpoint that lacks one tensor, though its graph names it."""
    save(directory, model=built_network(two_stream=True))
    write_config(directory)
    prefix = str(directory / "ckpt-1")
    reader = tf.train.load_checkpoint(prefix)
    names = [n for n in reader.get_variable_to_shape_map() if name not in n]
    tensors = [reader.get_tensor(n) for n in names]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=tensors,
    )


LAYER = "model/_transformer_xl/transformer_xl_layers/1"


def test_a_missing_tensor_is_named(tmp_path):
    saved_without(tmp_path, "layers/1/_inner_dense/bias")
    message = re.escape(f"missing: {LAYER}/_inner_dense/bias. Check")
    with pytest.raises(ValueError, match=message):
        XLNetBackbone.from_preset(tmp_path)
    with pytest.warns(UserWarning, match="was read in part: missing"):
        XLNetBackbone.from_preset(tmp_path, strict=False)


def test_tensors_of_other_shapes_and_others_are_named(tmp_path):
    save(tmp_path, model=built_network(two_stream=True))
    write_config(tmp_path, d_inner=19, n_layer=2, d_head=7)
    with pytest.raises(ValueError) as error:
        XLNetBackbone.from_preset(tmp_path)
    message = str(error.value)
    assert f"{LAYER}/_inner_dense/kernel has (30, 23), not (30, 19)" in message
    kernel = f"{LAYER}/_attention_layer/_output_dense/kernel"
    assert f"{kernel} has (5, 6, 30), not (5, 7, 30)" in message
    assert "model/seg_embed has (3, 2, 5, 6), not (2, 2, 5, 7)" in message
    assert (
        "unexpected: model/_transformer_xl/transformer_xl_layers/2" in message
    )
    for leftover in ("save_counter", "OBJECT_GRAPH"):
        assert leftover not in message


def test_another_model_is_not_taken_for_an_xlnet(tmp_path):
    save(tmp_path, kernel=tf.Variable(1.0))
    write_config(tmp_path)
    with pytest.raises(ValueError, match="not the checkpoint of one XLNet.*0"):
        XLNetBackbone.from_preset(tmp_path)


def test_two_networks_are_too_many(tmp_path):
    save(tmp_path, one=built_network(), two=built_network())
    write_config(tmp_path)
    with pytest.raises(ValueError, match="expected one object.*found 2"):
        XLNetBackbone.from_preset(tmp_path)


@pytest.mark.filterwarnings(NEVER_GIVEN)
def test_a_head_of_another_kind_is_left_out(tmp_path):
    model = models.XLNetClassifier(network(), num_classes=3)
    model(classifier_inputs(features()))
    save(tmp_path, **trainer_objects(randomize(model)))
    write_config(tmp_path)
    assert XLNetPretrainer.from_preset(tmp_path).head.has_transform is False
    other = XLNetTextClassifier.from_preset(tmp_path, num_classes=4)
    assert other.head.logits_dense.kernel.shape == (30, 4)
    (head,) = open_source(tmp_path).heads()
    assert json.loads(json.dumps(head.arguments))["num_classes"] == 3
