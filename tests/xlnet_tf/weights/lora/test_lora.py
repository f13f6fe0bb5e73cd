"""LoRA: what is trained, its gradients, and what files and copies keep."""

import itertools

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_features
from tests.support.gradients import backbone_of
from tests.support.gradients import compared
from tests.support.gradients import features_of
from tests.support.gradients import step
from tests.support.oracle import SIZES
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf.optimizer import layer_factors
from xlnet_tf.weights.lora.layers import JOIN_HEADS
from xlnet_tf.weights.lora.layers import SPLIT_HEADS
from xlnet_tf.weights.lora.layers import AdaptableDense
from xlnet_tf.weights.lora.layers import AdaptableEinsumDense
from xlnet_tf.weights.lora.model import lora_layers

RANK, ALPHA = 3, 5.0
OF_XLNET = (
    *("query_projection", "key_projection", "value_projection"),
    *("position_projection", "output_projection"),
    *("intermediate", "output_dense"),
)


def adapted(model, seed=0):
    """A model with adapters that are not 0."""
    model.enable_lora(RANK, alpha=ALPHA)
    random = np.random.default_rng(seed)
    for layer in lora_layers(model).values():
        for weight in (layer.lora_kernel_a, layer.lora_kernel_b):
            weight.assign(random.normal(0, 0.2, weight.shape))
    return model


def classifier(num_classes=2, seed=0, labels=None, **overrides):
    backbone = small_backbone(seed, **overrides)
    arguments = {"dropout": 0.0} if "dropout" in overrides else {}
    model = xlnet_tf.XLNetTextClassifier(
        backbone, num_classes, labels=labels, **arguments
    )
    randomize(model.head)
    return model


def texts():
    names = ("token_ids", "segment_ids", "padding_mask")
    return {k: v for k, v in small_features().items() if k in names}


def difference(model, other):
    return largest_difference(model(texts()), other(texts()))


def test_outputs_stay_and_adapters_and_head_are_trained():
    for model, features, names in (
        (small_backbone(), small_features(), OF_XLNET),
        (bert_backbone(), bert_features(), set(OF_XLNET) - {OF_XLNET[3]}),
    ):
        expected = as_numpy(model(features))
        assert set(model.default_lora_layer_names()) == set(names)
        frozen = model.weights
        model.enable_lora(RANK)
        assert largest_difference(model(features), expected) == 0
        trained = {v.path for v in model.trainable_variables}
        assert trained == {
            weight.path.replace("/kernel", f"/lora_kernel_{part}")
            for weight in frozen
            for part in "ab"
            if weight.path.split("/")[-2:] in [[x, "kernel"] for x in names]
        }
        assert len(trained) == 2 * SIZES["num_layers"] * len(names)
    model = classifier()
    model.enable_lora(RANK, target_layer_names=["key_projection"])
    assert {v.path for v in model.trainable_variables} == {
        f"block_{index}/attention/key_projection/lora_kernel_{part}"
        for index in range(2)
        for part in "ab"
    } | {v.path for v in model.head.weights}
    # The learning rates of layers find them.
    factors = layer_factors(model.trainable_variables, 0.5)
    assert factors == (0.5, 0.5, 1, 1, 1, 1, 1, 1)


def test_gradients_are_those_of_a_change_of_the_kernels():
    """dA = s dW B' and dB = s A' dW, of the same model with merged kernels.

    With both streams, memory and dropout; and of distances without dropout,
    whose product is computed from half of them.
    """
    for model, features, training in (
        (backbone_of(), features_of(), True),
        (backbone_of(dropout=0.0), features_of(), True),
        (bert_backbone(), bert_features(), False),
    ):
        adapted(model)
        merged = model.without_lora()
        outputs, found = step(model, features, training=training)
        expected, of_kernels = step(merged, features, training=training)
        compared(expected, outputs, 1e-5)
        gradients = dict(
            zip(
                (v.path for v in merged.trainable_variables),
                of_kernels,
                strict=True,
            )
        )
        found = dict(
            zip((v.path for v in model.trainable_variables), found, strict=True)
        )
        assert len(found) == 2 * len(lora_layers(model))
        for layer in lora_layers(model).values():
            of_kernel = np.asarray(gradients[f"{layer.path}/kernel"])
            assert np.abs(of_kernel).max() > 1e-3
            scale = ALPHA / RANK
            a, b = as_numpy([layer.lora_kernel_a, layer.lora_kernel_b])
            of_a = scale * of_kernel @ b.T
            flat = of_kernel.reshape(-1, b.shape[1])
            of_b = scale * a.reshape(-1, RANK).T @ flat
            for name, value in (("a", of_a), ("b", of_b)):
                path = f"{layer.path}/lora_kernel_{name}"
                compared(value, found[path], 2e-5, path)


def test_a_step_changes_adapters_and_head_alone():
    model = adapted(classifier())
    before = {v.path: as_numpy(v.value) for v in model.weights}
    trained = {v.path for v in model.trainable_variables}
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, model.default_loss(), run_eagerly=True)
    model.fit(texts(), np.array([0, 1, 1]), verbose=0)
    changed = {
        v.path
        for v in model.weights
        if (before[v.path] != v.value).numpy().any()
    }
    assert changed == trained
    # Slots for these alone, and two counters.
    assert len(model.optimizer.variables) == len(trained) + 2
    # The kernel stays frozen whatever is said of its layer.
    model.trainable = False
    model.trainable = True
    kernels = [x._kernel for x in lora_layers(model).values()]
    assert not any(kernel.trainable for kernel in kernels)


def test_the_gradient_of_a_bias_sums_every_row_once():
    """Short and long rows, of any number, at each multiple of the window."""
    for width, policy, rtol in (
        (3, "float32", 1e-6),
        (1024, "float32", 1e-6),
        (3, "mixed_bfloat16", 2**-8),
    ):
        layer = AdaptableDense(width, dtype=policy)
        layer.build((None, 2))
        for shape in ([5], [2, 3], [1, 32], [2, 33], [2, 64], [2, 2, 65]):
            draw = np.random.default_rng(0)
            # Numbers that bfloat16 has exactly; only the sum is rounded.
            upstream = draw.integers(-8, 9, size=[*shape, width])
            with tf.GradientTape() as tape:
                outputs = layer(tf.ones([*shape, 2]))
                outputs *= tf.cast(upstream, outputs.dtype)
            found = tape.gradient(outputs, layer.bias.value)
            expected = upstream.reshape([-1, width]).sum(axis=0)
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)


def test_every_way_of_computing_gives_the_same_numbers():
    backbone, features = adapted(backbone_of()), features_of()
    expected = step(backbone, features)
    backbone.rematerialize = True
    for kernel in ("auto", "plain"):
        backbone.attention_kernel = kernel
        compared(expected, step(backbone, features), 1e-5, kernel)


def test_bfloat16_is_near():
    """And what is merged is not rounded to it."""
    model = adapted(classifier(dtype="mixed_bfloat16"))
    exact = classifier()
    exact.set_weights(model.without_lora().get_weights())
    assert 0 < difference(model, exact) < 0.1
    layer = model.backbone.block_0.intermediate
    a, b = as_numpy([layer.lora_kernel_a, layer.lora_kernel_b])
    np.testing.assert_allclose(
        exact.backbone.block_0.intermediate.kernel,
        as_numpy(layer._kernel.value) + ALPHA / RANK * a @ b,
        rtol=1e-5,
        atol=1e-6,
    )


def test_models_in_half_precision_throughout():
    """Whose weights are not float32; adapters are."""
    features = texts()
    for dtype in ("bfloat16", "float16"):
        model = classifier(dtype=dtype)
        before = as_numpy(model(features)).astype("float32")
        model.enable_lora(RANK)
        after = as_numpy(model(features)).astype("float32")
        np.testing.assert_array_equal(after, before)  # b is 0
        for layer in lora_layers(model.backbone).values():
            layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
        changed = as_numpy(model(features)).astype("float32")
        assert np.isfinite(changed).all() and np.abs(changed - before).max() > 0


def test_a_file_keeps_adapters_and_optimizer(tmp_path):
    model = adapted(classifier(dropout=0.0, attention_dropout=0.0))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    labels = np.array([0, 1, 1])
    model.compile(optimizer, model.default_loss(), run_eagerly=True)
    model.fit(texts(), labels, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert difference(model, again) == 0
    for layer, other in zip(
        lora_layers(model).values(), lora_layers(again).values(), strict=True
    ):
        assert (other.lora_rank, other.lora_alpha) == (RANK, ALPHA)
        assert largest_difference(layer.weights, other.weights) == 0
    names = [[v.path for v in x.trainable_variables] for x in (model, again)]
    assert len(names[0]) == len(names[1]) == 4 + 2 * 14
    # Both go on alike.
    again.run_eagerly = True
    for x in (model, again):
        x.fit(texts(), labels, shuffle=False, verbose=0)
    assert largest_difference(model.weights, again.weights) == 0
    # A copy, and the weights alone.
    copy = keras.models.clone_model(model)
    model.save_weights(tmp_path / "x.weights.h5")
    copy.load_weights(tmp_path / "x.weights.h5")
    assert difference(model, copy) == 0
    plain = classifier()
    plain.load_weights(tmp_path / "x.weights.h5")
    assert not lora_layers(plain)
    assert 0 < difference(model, plain) < 1e-5
    plain.save_weights(tmp_path / "plain.weights.h5")
    copy.load_weights(tmp_path / "plain.weights.h5")  # b is 0, a is not
    assert difference(copy, plain) == 0
    assert np.abs(copy.backbone.block_0.intermediate.lora_kernel_a).max() > 0


def test_a_layer_alone_is_kept(tmp_path):
    model = classifier()
    model.backbone.block_1.intermediate.enable_lora(2)
    model.backbone.block_1.intermediate.lora_kernel_b.assign_add(
        np.ones((2, SIZES["intermediate_dim"]))
    )
    count = len(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert list(lora_layers(again)) == ["backbone/block_1/intermediate"]
    assert len(again.trainable_variables) == count
    assert difference(model, again) == 0


def test_a_preset_is_merged(tmp_path):
    model = adapted(classifier(num_classes=5))
    model.head.logits_dense.trainable = False
    model.save_to_preset(tmp_path / "preset")
    again = type(model).from_preset(tmp_path / "preset")
    assert not lora_layers(again)
    assert difference(model, again) < 1e-5
    assert difference(model.without_lora(), again) == 0
    plain = classifier()
    assert [w.shape for w in again.backbone.trainable_variables] == [
        w.shape for w in plain.backbone.trainable_variables
    ]
    assert not again.head.logits_dense.trainable
    for cls in (xlnet_tf.XLNetBackbone, xlnet_tf.XLNetTextRegressor):
        assert not lora_layers(cls.from_preset(tmp_path / "preset"))
    # The next model leaves nothing of it.
    assert (tmp_path / "preset" / "adapters.lora.h5").is_file()
    plain.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset" / "adapters.lora.h5").exists()


def test_adapters_alone(tmp_path):
    model = adapted(classifier(num_classes=5))
    file = tmp_path / "task.lora.h5"
    model.save_lora_weights(file)
    base = small_backbone()
    for dtype in (None, "mixed_bfloat16"):
        other = xlnet_tf.XLNetTextClassifier(small_backbone(dtype=dtype), 5)
        other.load_lora_weights(file)
        if dtype is None:
            assert difference(model, other) == 0
            other.load_lora_weights(file)  # over those that it has
    base.load_lora_weights(file)  # without the head
    assert difference(model.backbone, base) == 0
    base.save_lora_weights(tmp_path / "backbone.lora.h5")
    other = classifier()
    head = as_numpy([w.value for w in other.head.weights])
    other.load_lora_weights(tmp_path / "backbone.lora.h5")
    assert difference(model.backbone, other.backbone) == 0
    assert largest_difference(head, other.head.weights) == 0
    # Stored in 16 bits it is the same base.
    small_backbone().save_to_preset(tmp_path / "half", dtype="float16")
    half = xlnet_tf.XLNetBackbone.from_preset(tmp_path / "half")
    half.load_lora_weights(file)
    assert len(lora_layers(half)) == 14


def test_labels_of_the_head_of_adapters(tmp_path):
    """Weights in another order would name other classes."""
    file = tmp_path / "task.lora.h5"
    adapted(classifier(2, labels=["neg", "pos"])).save_lora_weights(file)
    for labels in (["neg", "pos"], None):
        classifier(2, labels=labels).load_lora_weights(file)
    with pytest.raises(ValueError, match="of the labels neg, pos, in this ord"):
        classifier(2, labels=["pos", "neg"]).load_lora_weights(file)


def test_adapters_that_do_not_fit_are_refused(tmp_path):
    model = adapted(classifier(num_classes=5))
    file = tmp_path / "task.lora.h5"
    model.save_lora_weights(file)
    model.save_to_preset(tmp_path / "preset")
    with_others = classifier(5)
    with_others.enable_lora(2)
    (tmp_path / "empty.lora.h5").write_bytes(b"")
    with h5py.File(tmp_path / "other.lora.h5", "w") as other:
        other["x"] = np.ones(3)
    merged = type(model).from_preset(tmp_path / "preset")
    for target, path, message in (
        (classifier(5), tmp_path / "none.lora.h5", "there is no file of adap"),
        (classifier(5), tmp_path / "empty.lora.h5", "damaged or not a file of"),
        (classifier(5), tmp_path / "other.lora.h5", "damaged or not a file of"),
        (classifier(5, num_layers=1), file, "saved with num_layers=2. Receiv"),
        (classifier(5, activation="relu"), file, "activation=gelu. Received: "),
        (classifier(5, seed=1), file, "was trained on other weights than the"),
        (merged, file, "has the adapters in its weights already"),
        (merged, tmp_path / "preset/adapters.lora.h5", "trained on other weig"),
        (classifier(4), file, "the head of a XLNetTextClassifier, which does "),
        (with_others, file, "layers of rank 3, alpha 5 there, 14 layers of ra"),
        (bert_backbone(), file, "does not fit a model with a BertConfig"),
    ):
        count = len(lora_layers(target))
        with pytest.raises((ValueError, FileNotFoundError), match=message) as e:
            target.load_lora_weights(path)
        assert "\n" not in str(e.value)
        assert len(lora_layers(target)) == count, message  # as it was
    for call, message in (
        (lambda: model.enable_lora(2), "has adapters .LoRA. already"),
        (lambda: model.save_lora_weights("x.h5"), "end in .lora.h5. Receiv"),
        (lambda: classifier().save_lora_weights("x.lora.h5"), "no adapters to"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for arguments, message in (
        ((0,), "`rank` must be an integer from 1 to .*rank=0"),
        ((True,), "rank=True"),
        ((2.0,), "rank=2.0"),
        ((10**9,), "rank=1000000000"),
        ((2, ["query"]), "must be a list of names .* Received: .*'query'"),
        ((2, []), "must be a list of names"),
        ((2, "intermediate"), "must be a list of names"),
        ((2, None, 0), "`alpha` must be a number above 0"),
        ((2, None, "8"), "`alpha` must be a number above 0"),
    ):
        target = classifier()
        with pytest.raises(ValueError, match=message):
            target.enable_lora(*arguments)
        assert len(target.trainable_variables) > 30, arguments  # as it was


def test_a_config_with_a_wild_rank_is_refused(tmp_path):
    model = classifier()
    model.enable_lora(2)
    config = model.get_config()
    config["backbone"]["config"]["lora_layers"][0]["rank"] = 10**9
    with pytest.raises(ValueError, match="`rank` must be an integer from 1"):
        type(model).from_config(config)


@pytest.mark.usefixtures("frozen_heap")
def test_adapters_of_a_quantized_model(tmp_path):
    """Files keep them; a preset has them merged and rounded once more."""
    for first, second in itertools.permutations(("quantize", "adapt")):
        model = classifier(num_layers=1)
        for act in (first, second):
            model.quantize("int8") if act == "quantize" else adapted(model)
        path = tmp_path / first
        path.mkdir()
        model.save(path / "model.keras")
        again = keras.models.load_model(path / "model.keras")
        assert difference(model, again) == 0, second
        assert len(lora_layers(again)) == 7
        model.save_to_preset(path / "preset")
        merged = type(model).from_preset(path / "preset")
        assert not lora_layers(merged)
        dense = merged.backbone.block_0.intermediate
        assert dense.quantization_mode == "int8"
        assert 0 < difference(model, merged) < 0.2
        model.save_lora_weights(path / "x.lora.h5")
        base = classifier(num_layers=1)
        base.quantize("int8")
        base.load_lora_weights(path / "x.lora.h5")
        assert difference(model, base) == 0


def test_both_streams_of_a_pretrainer(tmp_path):
    model = randomize(xlnet_tf.XLNetPretrainer(small_backbone()))
    adapted(model)
    features = with_targets(small_features())
    merged = model.without_lora()
    assert largest_difference(merged(features), model(features)) < 1e-4
    trained = [v.name for v in model.trainable_variables]
    assert set(trained) == {"lora_kernel_a", "lora_kernel_b", "bias"}
    with tf.GradientTape() as tape:
        loss = model(features)["loss"]
    gradients = tape.gradient(
        loss, [v.value for v in model.trainable_variables]
    )
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_heads_on_jax_are_those_of_the_einsum(monkeypatch):
    """On JAX a layer multiplies matrices. All sizes differ."""
    random = np.random.default_rng(0)
    kernel = random.normal(size=(7, 3, 4)).astype("float32")
    shapes = {SPLIT_HEADS: (2, 5, 7), JOIN_HEADS: (2, 3, 5, 4)}
    for equation, shape in shapes.items():
        inputs = random.normal(size=shape).astype("float32")
        expected = np.einsum(equation, inputs, kernel)
        layer = AdaptableEinsumDense(equation, expected.shape[1:])
        for backend in ("tensorflow", "jax"):
            monkeypatch.setattr("keras.backend.backend", lambda x=backend: x)
            found = as_numpy(layer.product(inputs, kernel))
            assert largest_difference(found, expected) < 1e-5
