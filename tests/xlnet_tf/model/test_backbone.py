"""The backbone: what may depend on what, and what may not.

Tolerance: 1e-5 absolute on layer-normalised outputs, for float32 sums that run
in another order where shapes differ. What must be untouched is compared bit by
bit.
"""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.gradients import compared
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import literal
from tests.support.oracle import may_attend
from tests.support.oracle import small_backbone
from tests.support.oracle import small_config
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.model import backbone as backbone_module
from xlnet_tf.model.attention import attention_context
from xlnet_tf.model.block import XLNetBlock
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.kernels import distances

TOLERANCE = 1e-5
D, L = 38, 2


def rows_of(features, rows):
    return {
        name: tuple(x[rows] for x in value)
        if isinstance(value, tuple)
        else value[rows]
        for name, value in features.items()
    }


def test_outputs_have_the_shapes_of_the_contract():
    backbone = small_backbone(memory_length=M)
    outputs = backbone(small_features(memory_length=M))
    assert outputs["content"].shape == (B, T, D)
    assert outputs["query"].shape == (B, P, D)
    assert [x.shape for x in outputs["memories"]] == [(B, M, D)] * L
    assert outputs["memory_mask"].shape == (B, M)
    assert set(small_backbone()(np.arange(T)[None])) == {"content"}


def test_a_row_alone_equals_the_row_in_its_batch():
    for memory_length in (0, M):
        backbone = small_backbone(memory_length=memory_length)
        features = small_features(memory_length=memory_length)
        together = as_numpy(backbone(features))
        for row in range(B):
            alone = backbone(rows_of(features, slice(row, row + 1)))
            of_batch = rows_of(together, slice(row, row + 1))
            assert largest_difference(alone, of_batch) < TOLERANCE


def test_a_padded_row_equals_the_row_without_its_padding():
    backbone = small_backbone()
    features = small_features()
    together = as_numpy(backbone(features))
    for row in range(B):
        real = np.flatnonzero(features["padding_mask"][row])
        alone = rows_of(features, slice(row, row + 1))
        positions = alone.pop("target_positions") - real[0]
        alone = {
            name: value if name == "is_reversed" else value[:, real]
            for name, value in alone.items()
        }
        alone = as_numpy(backbone({**alone, "target_positions": positions}))
        assert 2 <= T - len(real)  # there was padding
        content = together["content"][row, real]
        assert largest_difference(alone["content"][0], content) < TOLERANCE
        query = together["query"][row]
        assert largest_difference(alone["query"][0], query) < TOLERANCE


def test_what_stands_in_the_padding_does_not_matter():
    backbone = small_backbone(memory_length=M)
    features = small_features(memory_length=M)
    before = as_numpy(backbone(features))
    real = features["padding_mask"].astype(bool)
    tokens = np.where(real, features["token_ids"], 89).astype("int32")
    hidden = ~features["memory_mask"][:, :, None]
    memories = tuple(np.where(hidden, 77.0, m) for m in features["memories"])
    after = backbone({**features, "token_ids": tokens, "memories": memories})
    after = as_numpy(after)
    assert (tokens != features["token_ids"]).sum() >= 6
    np.testing.assert_array_equal(after["query"], before["query"])
    np.testing.assert_array_equal(
        after["content"][real], before["content"][real]
    )


def test_a_row_depends_on_exactly_the_tokens_that_its_mask_shows():
    """By gradient, through both layers: the mask is its own closure."""
    backbone = small_backbone()
    features = small_features()
    for given in (features, literal(features)):
        check_dependence(backbone, features, given)


def check_dependence(backbone, features, given):
    embedding = backbone.token_embedding
    for b in range(B):
        positions = features["target_positions"][b]
        places = [*range(T), *positions]
        # A copy of the row for each output, so that one gradient has them all.
        rows = rows_of(given, [b] * len(places))
        content = tf.Variable(
            tf.gather(embedding.embeddings.value, rows["token_ids"])
        )
        original = embedding.call
        embedding.call = lambda token_ids, content=content: content.value()
        try:
            with tf.GradientTape() as tape:
                outputs = backbone(rows)
                streams = [outputs["content"][i, i] for i in range(T)]
                streams += [
                    outputs["query"][T + p, p] for p in range(len(positions))
                ]
                # Cubed, because a normalised row sums to a constant.
                value = tf.reduce_sum(tf.stack(streams) ** 3)
            gradient = tape.gradient(value, content).numpy()
        finally:
            embedding.call = original
        depends = np.abs(gradient).max(axis=-1) > 0
        expected = [
            [may_attend(features, b, i, j, n >= T) for j in range(T)]
            for n, i in enumerate(places)
        ]
        np.testing.assert_array_equal(depends, expected)
        for some in (expected[:T], expected[T:]):
            assert 0 < np.mean(some) < 1


def test_two_causal_segments_with_memory_equal_one_long_one():
    backbone = small_backbone(attention_type="causal", memory_length=T)
    random = np.random.default_rng(5)
    tokens = random.integers(0, 97, (B, 2 * T)).astype("int32")
    whole = as_numpy(backbone(tokens))
    first = backbone({"token_ids": tokens[:, :T]})
    second = backbone(
        {"token_ids": tokens[:, T:], "memories": first["memories"]}
    )
    difference = largest_difference(second["content"], whole["content"][:, T:])
    assert difference < TOLERANCE
    difference = largest_difference(second["memories"], whole["memories"])
    assert difference < TOLERANCE


def test_reversing_half_the_batch_equals_naming_those_rows():
    features = small_features(batch=4)
    named = {**features, "is_reversed": np.array([0, 0, 1, 1], bool)}
    del features["is_reversed"]
    plain = small_backbone()
    halved = small_backbone(reverse_half_batch=True)
    assert largest_difference(halved(features), plain(named)) == 0
    assert largest_difference(halved(features), plain(features)) > 1e-2


def test_the_feature_overrules_the_reversed_half():
    features = small_features(batch=4)
    with_feature = small_backbone(reverse_half_batch=True)(features)
    assert largest_difference(with_feature, small_backbone()(features)) == 0


def test_reversing_the_text_and_its_direction_changes_nothing():
    """Attention has no other sense of direction than R."""
    backbone = small_backbone()
    features = small_features()
    mirrored = {
        name: value if name == "is_reversed" else value[:, ::-1]
        for name, value in features.items()
    }
    mirrored["is_reversed"] = ~features["is_reversed"]
    mirrored["target_positions"] = T - 1 - features["target_positions"]
    outputs, mirrored = backbone(features), backbone(mirrored)
    difference = largest_difference(
        mirrored["content"][:, ::-1], outputs["content"]
    )
    assert difference < TOLERANCE
    difference = largest_difference(mirrored["query"], outputs["query"])
    assert difference < TOLERANCE


def test_only_segment_equality_counts():
    backbone = small_backbone()
    features = small_features()
    renamed = np.array([7, 5, 11], "int32")[features["segment_ids"]]
    other = backbone({**features, "segment_ids": renamed})
    assert largest_difference(other, backbone(features)) == 0
    one = np.zeros_like(features["segment_ids"])
    other = backbone({**features, "segment_ids": one})
    assert largest_difference(other, backbone(features)) > 1e-2


def test_only_the_rows_of_the_targets_are_computed(monkeypatch):
    shapes = []
    call = XLNetBlock.call

    @functools.wraps(call)
    def recording(self, rows, keys, *arguments, memory, **kwargs):
        shapes.append([tuple(x.shape) for x in (rows, keys, memory)])
        return call(self, rows, keys, *arguments, memory=memory, **kwargs)

    monkeypatch.setattr(XLNetBlock, "call", recording)
    backbone = small_backbone(memory_length=M)
    features = small_features(memory_length=M)
    backbone(features)
    both = [(B, T + P, D), (B, T, D), (B, M, D)]
    assert shapes == [both] * L
    del shapes[:]
    backbone(features, streams="query")
    assert shapes == [both] * (L - 1) + [[(B, P, D), *both[1:]]]


def test_without_content_all_else_is_the_same():
    for reverse in (False, True):
        backbone = small_backbone(memory_length=M, reverse_half_batch=reverse)
        features = small_features(batch=4, memory_length=M)
        del features["is_reversed"]

        def found(backbone=backbone, features=features, **kwargs):
            with tf.GradientTape() as tape:
                outputs = backbone(features, **kwargs)
                loss = tf.reduce_sum(outputs["query"] ** 3)
            variables = [v.value for v in backbone.trainable_variables]
            gradients = tape.gradient(loss, variables)
            return outputs, [tf.convert_to_tensor(x) for x in gradients]

        expected, of_expected = found()
        assert expected.pop("content") is not None
        outputs, of_outputs = found(streams="query")
        assert set(outputs) == {"query", "memories", "memory_mask"}
        assert largest_difference(outputs, expected) < TOLERANCE
        compared(of_expected, of_outputs, TOLERANCE)


def test_the_query_stream_leaves_the_content_stream_alone():
    backbone = small_backbone()
    features = small_features()
    both = backbone(features)
    del features["target_positions"]
    content = backbone(features)["content"]
    assert largest_difference(content, both["content"]) < TOLERANCE


def test_equal_dropout_seeds_drop_equal_values():
    backbone = small_backbone(dropout=0.25, attention_dropout=0.25)
    features = small_features()

    def run(*seed):
        seeded = {**features, "dropout_seed": np.array(seed, "int32")}
        return as_numpy(backbone(seeded, training=True))

    assert largest_difference(run(3, 5), run(3, 5)) == 0
    assert largest_difference(run(3, 5), run(3, 7)) > 1e-2
    assert largest_difference(run(3, 5), run(2, 5)) > 1e-2


def test_without_a_seed_each_call_drops_other_values():
    backbone = small_backbone(dropout=0.25)
    features = small_features()
    first, second = (as_numpy(backbone(features, training=True)) for _ in "12")
    assert largest_difference(first, second) > 1e-2


def test_output_dropout_zeroes_its_share():
    backbone = small_backbone(dropout=0.3, attention_dropout=0.0)
    features = small_features(batch=11)
    seeded = {**features, "dropout_seed": np.array([3, 5], "int32")}
    content = as_numpy(backbone(seeded, training=True)["content"])
    # 5,434 values: four standard deviations of the share are 0.025
    assert abs(np.mean(content == 0) - 0.3) <= 0.025


def test_each_draw_from_a_seed_is_its_own_and_scales_what_it_keeps():
    ones = np.ones((101, 103), "float32")
    seed = np.array([3, 5], "int32")
    draws = [
        as_numpy(dropout(ones, 0.3, fold_in(seed, n))) for n in (-1, 0, 1, 4)
    ]
    for draw in draws:
        np.testing.assert_allclose(draw[draw > 0], 1 / 0.7, rtol=1e-6)
    for one, other in itertools.combinations(draws, 2):
        # By chance 0.7**2 + 0.3**2 = 0.58 agree, give or take 0.005.
        assert abs(np.mean(one == other) - 0.58) < 0.02


def test_each_rate_acts_in_training_only():
    features, rates = small_features(), ("dropout", "attention_dropout")
    without = small_backbone(**dict.fromkeys(rates, 0.0))
    expected = without(features)
    assert largest_difference(without(features, training=True), expected) == 0
    for name in rates:
        backbone = small_backbone(**{**dict.fromkeys(rates, 0.0), name: 0.3})
        assert largest_difference(backbone(features), expected) == 0
        trained = backbone(features, training=True)
        assert largest_difference(trained, expected) > 1e-2


def test_the_exact_and_the_tanh_gelu_differ_slightly():
    features = small_features()
    tanh, erf = small_backbone()(features), small_backbone(gelu="erf")(features)
    assert 1e-6 < largest_difference(tanh, erf) < 1e-1


def test_a_backbone_is_rebuilt_from_its_config():
    backbone = XLNetBackbone(
        small_config(memory_length=M), seed=3, dtype="mixed_bfloat16", name="x"
    )
    again = XLNetBackbone.from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()
    assert again.config == backbone.config
    assert again.compute_dtype == "bfloat16"


def test_features_that_do_not_fit_are_named():
    backbone, tokens = small_backbone(), np.arange(T)[None]
    memory = np.ones((3, 5, 38), "float32")
    for features, streams, message in (
        ({"segment_ids": tokens}, "both", "need `token_ids`.*: segment_ids"),
        ({}, "both", "Received: none"),
        (np.arange(13), "both", r"shape \[B, T\], .* shape=\(13,\)"),
        (
            {"token_ids": np.ones((3, 13), int), "memories": (memory,)},
            "both",
            "one tensor a layer, 2 in all. Received: 1",
        ),
        (
            {"token_ids": tokens, "attention_mask": tokens},
            "both",
            "no feature `attention_mask`; did you mean `padding_mask`",
        ),
        (
            {"token_ids": tokens, "padding_msk": tokens},
            "both",
            "did you mean `padding_mask`",
        ),
        (
            {"token_ids": tokens, "target_position": tokens},
            "both",
            "did you mean `target_positions`",
        ),
        (
            {
                "token_ids": tokens,
                "perm_mask": tokens[:, None] * 0,
                "factorization_rank": tokens,
            },
            "both",
            "`factorization_rank` and `perm_mask` are two forms of the same",
        ),
        (
            {
                "token_ids": tokens,
                "target_mapping": tokens[:, None] * 0,
                "target_positions": tokens,
            },
            "both",
            "`target_positions` and `target_mapping` are two forms",
        ),
        (tokens, "query", "without content.*`target_positions` or"),
        (tokens, "content", "`streams` must be .* Received: streams='content'"),
    ):
        with pytest.raises(ValueError, match=message):
            backbone(features, streams=streams)


def test_arguments_of_other_libraries_are_named():
    ids = np.array([[17, 21, 4, 3]])
    backbone = small_backbone()
    for model in (backbone, XLNetTextClassifier(backbone, 2)):
        for name, message in (
            ("output_attentions", "mean `attention_weights=True`"),
            ("output_hidden_states", "mean `layer_inputs=True`"),
            ("attention_mask", "in one dict, here with `padding_mask`"),
            ("segment_ids", "in one dict, here with `segment_ids`"),
        ):
            with pytest.raises(TypeError, match=message):
                model({"token_ids": ids}, **{name: True})


def test_labels_pass_through_the_backbone_unread():
    backbone = small_backbone()
    features = small_features()
    labels = dict.fromkeys(("start_positions", "is_next", "label"), np.ones(B))
    labelled = backbone({**with_targets(features), **labels})
    assert largest_difference(labelled, backbone(features)) == 0


@pytest.mark.usefixtures("frozen_heap")
def test_the_symmetry_of_sinusoids_is_used_where_it_holds(monkeypatch):
    """Half of R, unless a value is dropped, narrow or quantized."""
    half, whole = (M + T, D), (2, M + T + T, D)
    features, shapes = small_features(memory_length=M), []

    def spied(*args, **kwargs):
        context = attention_context(*args, **kwargs)
        shapes.append(tuple(context.distances.encoding.shape))
        return context

    monkeypatch.setattr(backbone_module, "attention_context", spied)
    backbone = small_backbone(memory_length=M, dropout=0.5)
    expected = as_numpy(backbone(features))
    backbone(features, training=True)
    small_backbone(memory_length=M, dtype="mixed_bfloat16")(features)
    backbone.quantize("int8")
    quantized = as_numpy(backbone(features))
    assert shapes == [half, whole, whole, whole]
    # Eight bits a weight are right to a few per cent.
    assert largest_difference(quantized["content"], expected["content"]) < 0.2
    again = small_backbone(memory_length=M)
    monkeypatch.setattr(distances, "can_mirror_distances", lambda *_: False)
    outputs = again(features)
    assert shapes[-1] == whole
    assert largest_difference(outputs, expected) < TOLERANCE


@pytest.mark.usefixtures("frozen_heap")
def test_distances_of_no_use_are_cut_off_after_dropout(monkeypatch):
    """Of both directions, and the rest has the values that it has uncut."""
    encodings = []

    def spied(*args, **kwargs):
        context = attention_context(*args, **kwargs)
        encodings.append(as_numpy(context.distances.encoding))
        return context

    monkeypatch.setattr(backbone_module, "attention_context", spied)
    features = {**small_features(), "dropout_seed": np.array([3, 5], "int32")}
    backbone = small_backbone(dropout=0.5)
    for half in (0, 1, T - 2):
        backbone(features, training=True, first_half_length=half)
    whole, *others = encodings
    for half, encoding in zip((1, 2), others, strict=True):
        np.testing.assert_array_equal(encoding, whole[:, :-half])


def test_weights_have_the_paths_that_files_and_optimizers_know():
    """Formats of weights, layer-wise decay and users' files depend on them."""
    blocks = """attention_norm/gamma attention_norm/beta intermediate/kernel
        intermediate/bias output_dense/kernel output_dense/bias
        output_norm/gamma output_norm/beta attention/segment_encoding
        attention/query_projection/kernel attention/key_projection/kernel
        attention/value_projection/kernel attention/position_projection/kernel
        attention/output_projection/kernel""".split()
    biases = ["content_bias", "position_bias", "segment_bias"]
    for untie_biases in (True, False):
        paths = {"mask_embedding", "token_embedding/embeddings"}
        for layer in range(L):
            paths |= {f"block_{layer}/{path}" for path in blocks}
            if untie_biases:
                owner = f"block_{layer}/attention/biases"
                paths |= {f"{owner}/{name}" for name in biases}
        if not untie_biases:
            owner = "block_0/attention/shared_biases"
            paths |= {f"{owner}/{name}" for name in biases}
        backbone = XLNetBackbone(small_config(untie_biases=untie_biases))
        found = [weight.path for weight in backbone.trainable_weights]
        assert {x.removeprefix(f"{backbone.name}/") for x in found} == paths
        assert len(found) == len(paths)


def test_fields_of_the_config_by_name():
    config = small_config()
    model = XLNetBackbone(**config.to_dict(), seed=3, name="mine")
    assert (model.config, model.seed, model.name) == (config, 3, "mine")
    for arguments, message in (
        ({"config": config, "num_layers": 2}, "XLNetConfig, num_layers"),
        ({}, "NoneType, no fields"),
        ({"config": "tiny"}, "Received: str, no fields"),
    ):
        with pytest.raises(TypeError, match=message):
            XLNetBackbone(**arguments)


def test_summary_shows_shapes():
    lines = []
    config = small_config()
    model = XLNetTextClassifier(XLNetBackbone(config), num_classes=3)
    model.summary(print_fn=lines.append)
    model.backbone.summary(print_fn=lines.append)
    text = "\n".join(lines)
    assert "?" not in text
    assert text.count(f"(None, None, {config.hidden_dim})") == 2 + L
    assert "(None, 3)" in text
    del lines[:]
    backbone = XLNetBackbone(config)
    XLNetPretrainer(backbone, next_sentence_weight=1).summary(
        print_fn=lines.append
    )
    assert "(None, 2)" in "".join(lines) and "?" not in "".join(lines)
    # Files do not keep shapes.
    assert "build_config" not in keras.saving.serialize_keras_object(
        model.backbone
    )
