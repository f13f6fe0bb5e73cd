"""The name and shape that every format has for every variable of ours."""

import keras
import numpy as np
import pytest

from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetRanker
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf.weights import model_garden
from xlnet_tf.weights import released
from xlnet_tf.weights.hugging_face import xlnet as hugging_face
from xlnet_tf.weights.table import table_head_weights
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.table import tensors
from xlnet_tf.weights.table import variables_by_path

# V, D, N, H, F and L of the models.
V, D, N, H, F, L = 97, 38, 2, 19, 23, 2
_INPUTS = {part: (D, N, H) for part in ("query", "key", "value", "position")}
# Ours: path in a layer -> shape.
LAYER = {
    **{f"attention/{p}_projection/kernel": s for p, s in _INPUTS.items()},
    "attention/output_projection/kernel": (D, N, H),
    "attention/biases/content_bias": (N, H),
    "attention/biases/position_bias": (N, H),
    "attention/biases/segment_bias": (N, H),
    "attention/segment_encoding": (2, N, H),
    "attention_norm/gamma": (D,),
    "attention_norm/beta": (D,),
    "intermediate/kernel": (D, F),
    "intermediate/bias": (F,),
    "output_dense/kernel": (F, D),
    "output_dense/bias": (D,),
    "output_norm/gamma": (D,),
    "output_norm/beta": (D,),
}
# Foreign names and shapes, in a layer in the order of LAYER.
HUGGING_FACE = """
rel_attn.q rel_attn.k rel_attn.v rel_attn.r rel_attn.o rel_attn.r_w_bias
rel_attn.r_r_bias rel_attn.r_s_bias rel_attn.seg_embed
rel_attn.layer_norm.weight rel_attn.layer_norm.bias
ff.layer_1.weight:23x38 ff.layer_1.bias ff.layer_2.weight:38x23
ff.layer_2.bias ff.layer_norm.weight ff.layer_norm.bias
"""
RELEASED = """
rel_attn/q/kernel rel_attn/k/kernel rel_attn/v/kernel rel_attn/r/kernel
rel_attn/o/kernel - - - - rel_attn/LayerNorm/gamma rel_attn/LayerNorm/beta
ff/layer_1/kernel ff/layer_1/bias ff/layer_2/kernel ff/layer_2/bias
ff/LayerNorm/gamma ff/LayerNorm/beta
"""
MODEL_GARDEN = """
_attention_layer/_query_dense/kernel _attention_layer/_key_dense/kernel
_attention_layer/_value_dense/kernel _attention_layer/_encoding_dense/kernel
_attention_layer/_output_dense/kernel:2x19x38 - - - -
_attention_layer_norm/gamma _attention_layer_norm/beta
_inner_dense/kernel _inner_dense/bias _output_dense/kernel _output_dense/bias
_output_layer_norm/gamma _output_layer_norm/beta
"""


def in_layers(prefix, text):
    """dict of foreign name to shape, of all layers."""
    found = {}
    for entry, shape in zip(text.split(), LAYER.values(), strict=True):
        name, _, other = entry.partition(":")
        if other:
            shape = tuple(map(int, other.split("x")))
        if name != "-":
            for layer in range(L):
                found[prefix.format(layer) + name] = shape
    return found


def stacked(names, layers=(L,)):
    """dict of foreign name to shape, of biases and segment encodings."""
    *biases, segments = names
    shapes = {name: (*layers, N, H) for name in biases}
    return {**shapes, segments: (L, 2, N, H)}


EXPECTED = {
    "hugging face": {
        "transformer.word_embedding.weight": (V, D),
        "transformer.mask_emb": (1, 1, D),
        **in_layers("transformer.layer.{}.", HUGGING_FACE),
    },
    "released": {
        "model/transformer/word_embedding/lookup_table": (V, D),
        "model/transformer/mask_emb/mask_emb": (1, 1, D),
        **in_layers("model/transformer/layer_{}/", RELEASED),
        **stacked(
            f"model/transformer/{name}"
            for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed")
        ),
    },
    "model garden": {
        "_embedding_layer/embeddings": (V, D),
        "mask_emb.Smask_emb": (1, 1, D),
        **in_layers("_transformer_xl/transformer_xl_layers/{}/", MODEL_GARDEN),
        **stacked(
            [
                *(
                    f"_transformer_xl/{name}_attention_bias"
                    for name in ("content", "positional", "segment")
                ),
                "seg_embed",
            ]
        ),
    },
}
TABLES = {
    "hugging face": hugging_face.backbone_table("transformer."),
    "released": released.backbone_table(),
    "model garden": model_garden.BACKBONE_TABLE,
}


def test_the_paths_of_variables_do_not_change(models):
    """Tables, learning rates of layers and users' files depend on them."""
    expected = {"token_embedding/embeddings": (V, D), "mask_embedding": (D,)}
    for layer in range(L):
        expected |= {f"block_{layer}/{k}": s for k, s in LAYER.items()}
    found = variables_by_path(models(XLNetBackbone))
    assert {k: tuple(v.shape) for k, v in found.items()} == expected


def test_paths_depend_neither_on_names_nor_on_scopes(models):
    expected = variables_by_path(models(XLNetTextClassifier, num_classes=3))
    config = models(XLNetBackbone).config
    with keras.name_scope("outer"):
        backbone = XLNetBackbone(config, name="block_0")
        model = XLNetTextClassifier(backbone, num_classes=3, name="head")
    assert backbone.mask_embedding.path.startswith("outer/block_0/")
    assert variables_by_path(model).keys() == expected.keys()


@pytest.mark.parametrize("form", TABLES)
def test_every_variable_of_a_backbone_has_a_name_and_a_layout(models, form):
    backbone = models(XLNetBackbone)
    weights = table_weights(backbone, TABLES[form])
    expected = EXPECTED[form]
    assert {w.name: w.foreign_shape for w in weights} == expected
    assert {id(w.variable) for w in weights} == {
        id(v) for v in variables_by_path(backbone).values()
    }
    written = dict(tensors(weights))
    for name, tensor in written.items():
        assert tuple(tensor.shape) == expected[name], name
    for weight in weights:
        np.testing.assert_array_equal(
            weight.from_foreign(np.asarray(written[weight.name])),
            np.asarray(weight.variable.value),
            weight.name,
        )


@pytest.mark.parametrize("form", TABLES)
def test_tied_biases_have_no_axis_of_layers_or_stand_in_each(models, form):
    backbone = models(XLNetBackbone, config=dict(untie_biases=False))
    expected = dict(EXPECTED[form])
    weights = table_weights(backbone, TABLES[form])
    if form != "hugging face":
        for name in expected:
            if name.endswith("_bias"):
                expected[name] = (N, H)
    assert {w.name: w.foreign_shape for w in weights} == expected
    biases = [w for w in weights if w.name.endswith("_bias")]
    assert len({id(w.variable) for w in biases}) == 3
    assert len(biases) == 3 * (L if form == "hugging face" else 1)


def dense(name, rows, columns, transposed=False, bias=True):
    kernel = "weight" if transposed else "kernel"
    mark = "." if transposed else "/"
    shape = (columns, rows) if transposed else (rows, columns)
    found = {f"{name}{mark}{kernel}": shape}
    return {**found, f"{name}{mark}bias": (columns,)} if bias else found


def hf_dense(name, rows, columns, bias=True):
    return dense(name, rows, columns, True, bias)


def hf_sequence(classes):
    return {
        **hf_dense("logits_proj", D, classes),
        **hf_dense("sequence_summary.summary", D, D),
    }


def tf1_sequence(name, classes):
    return {
        **dense(name, D, classes),
        **dense("model/sequnece_summary/summary", D, D),
    }


# Class, its arguments, names of Hugging Face, released ones; None = no head.
HEADS = [
    (XLNetPretrainer, {}, {"lm_loss.bias": (V,)}, {"model/lm_loss/bias": (V,)}),
    (XLNetPretrainer, dict(has_transform=True), None, None),
    (
        XLNetTextClassifier,
        dict(num_classes=3),
        hf_sequence(3),
        tf1_sequence("model/classification_me/logit", 3),
    ),
    (
        XLNetTextClassifier,
        dict(num_classes=2, projection=False, activation=None),
        hf_dense("logits_proj", D, 2),
        dense("model/classification_me/logit", D, 2),
    ),
    (
        XLNetTextRegressor,
        {},
        hf_sequence(1),
        tf1_sequence("model/regression_me/logit", 1),
    ),
    (XLNetMultipleChoice, {}, hf_sequence(1), tf1_sequence("logits/dense", 1)),
    (XLNetRanker, {}, hf_sequence(1), tf1_sequence("logits/dense", 1)),
    (
        XLNetTokenClassifier,
        dict(num_classes=3),
        hf_dense("classifier", D, 3),
        None,
    ),
    (XLNetSpanClassifier, {}, hf_dense("qa_outputs", D, 2), None),
    (
        XLNetQuestionAnswering,
        {},
        {
            **hf_dense("start_logits.dense", D, 1),
            **hf_dense("end_logits.dense_0", 2 * D, D),
            "end_logits.LayerNorm.weight": (D,),
            "end_logits.LayerNorm.bias": (D,),
            **hf_dense("end_logits.dense_1", D, 1),
            **hf_dense("answer_class.dense_0", 2 * D, D),
            **hf_dense("answer_class.dense_1", D, 1, bias=False),
        },
        {
            **dense("start_logits/dense", D, 1),
            **dense("end_logits/dense_0", 2 * D, D),
            "end_logits/LayerNorm/gamma": (D,),
            "end_logits/LayerNorm/beta": (D,),
            **dense("end_logits/dense_1", D, 1),
            **dense("answer_class/dense_0", 2 * D, D),
            **dense("answer_class/dense_1", D, 1, bias=False),
        },
    ),
]


def test_every_variable_of_a_head_has_a_name(models):
    for cls, arguments, theirs, tf1 in HEADS:
        model = models(cls, **arguments)
        for expected, names in (
            (theirs, lambda m: hugging_face.head_weights(m)),
            (tf1, lambda m: released.head_weights(m, "me")),
        ):
            if expected is None:
                with pytest.raises(ValueError, match=f"that of {cls.__name__}"):
                    names(model)
                continue
            found = {w.name: w.foreign_shape for w in names(model)}
            assert found == expected, (cls, arguments)


def test_every_variable_of_model_gardens_heads_has_a_name(models):
    span = "span_labeling/"
    cases = [
        (
            XLNetPretrainer,
            dict(has_transform=True),
            {
                "_masked_lm/output_bias.Sbias": (V,),
                **dense("_masked_lm/dense", D, D),
                "_masked_lm/layer_norm/gamma": (D,),
                "_masked_lm/layer_norm/beta": (D,),
            },
        ),
        (
            XLNetTextClassifier,
            dict(num_classes=3),
            {
                **dense("classifier/dense", D, D),
                **dense("classifier/out_proj", D, 3),
            },
        ),
        (
            XLNetQuestionAnswering,
            dict(inner_dim=26),
            {
                **dense(span + "start_logits_dense", D, 1),
                **dense(span + "end_logits_inner_dense", 2 * D, 26),
                span + "end_logits_layer_norm/gamma": (26,),
                span + "end_logits_layer_norm/beta": (26,),
                **dense(span + "end_logits_output_dense", 26, 1),
                **dense(span + "answer_logits_inner", 2 * D, 26),
                **dense(span + "answer_logits_output", 26, 1, bias=False),
            },
        ),
    ]
    for cls, arguments, expected in cases:
        table = model_garden.HEAD_TABLES[cls.__name__]
        weights = table_head_weights(models(cls, **arguments), table)
        found = {w.name: w.foreign_shape for w in weights}
        assert found == expected, cls
