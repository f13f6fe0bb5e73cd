"""Few heads and odd lengths, which other tests leave out.

With one head, the projected distances of all examples are a single matrix.
As a batch of products that broadcasts it, oneDNN in TensorFlow 2.20 writes out
of bounds on processors with AVX-512: wrong numbers that change from run to run,
or the end of the process. So no such product may be computed, on any
processor.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import bert_backbone
from tests.support.bert_models import pseudo_features
from tests.support.gradients import compared
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from tests.support.products import recorded_broadcasts
from tests.xlnet_tf.generation import test_decoders as test_decoder
from tests.xlnet_tf.tasks import test_task as test_tasks
from xlnet_tf import XLNetPretrainer
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain
from xlnet_tf.model.kernels.contract import AttentionInputs
from xlnet_tf.model.kernels.contract import AttentionRules

TOLERANCE = 1e-5
# B, T, M, P: also one example, no memory, and a whole number of blocks.
LENGTHS = ((3, 11, 1, 11), (1, 7, 3, 5), (4, 32, 0, 9))
HEAD_DIM = 3


def kernel_inputs(heads, batch_size, tokens, memory, targets, streams):
    """Inputs and AttentionRules of a kernel, with a mask and segments."""
    random = np.random.default_rng(heads)
    keys = memory + tokens
    rows = targets + (tokens if streams == "both" else 0)
    shapes = (
        (batch_size, heads, rows, HEAD_DIM),
        *[(heads, HEAD_DIM)] * 4,
        *[(batch_size, heads, keys, HEAD_DIM)] * 2,
        (1, heads, keys + tokens, HEAD_DIM),
    )
    inputs = [
        tf.constant(random.normal(size=shape), "float32") for shape in shapes
    ]
    positions = random.integers(0, tokens, (batch_size, targets))
    rules = AttentionRules(
        mask=tf.constant(random.random((batch_size, rows, keys)) < 0.7),
        other_segment=tf.constant(
            random.random((batch_size, rows, keys)) < 0.5
        ),
        is_reversed=None,
        target_positions=tf.constant(positions, "int32"),
        streams=streams,
    )
    return inputs, rules


@tf.autograph.experimental.do_not_convert
def with_gradients(kernel, inputs, rules):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = kernel(AttentionInputs(*inputs), rules)
        upstream = np.random.default_rng(2).normal(size=outputs.shape)
        loss = tf.reduce_sum(outputs * upstream.astype("float32"))
    return outputs, tape.gradient(loss, inputs)


@pytest.mark.parametrize("heads", [1, 2, 3, 4])
def test_few_heads_equal_the_plain_kernel(heads, monkeypatch):
    for lengths in LENGTHS:
        for streams in ("both", "query"):
            inputs, rules = kernel_inputs(heads, *lengths, streams)
            expected = with_gradients(plain.attend, inputs, rules)
            for group in (None, 1) if streams == "both" else (None,):
                monkeypatch.setattr(
                    memory_efficient,
                    "heads_at_a_time",
                    lambda *_, group=group: group,
                )
                found = with_gradients(memory_efficient.attend, inputs, rules)
                message = f"{heads} heads, {lengths}, {streams}, {group}"
                compared(expected, found, TOLERANCE, message)


def pretrainers():
    """(model, features) of each objective, with one head."""
    no_dropout = dict(dropout=0.0, attention_dropout=0.0)
    batch = with_targets(small_features())
    for objective, changes in (
        ("permutation", {}),
        ("causal", {"attention_type": "causal"}),
        ("masked", {}),
    ):
        backbone = small_backbone(num_heads=1, **no_dropout, **changes)
        model = XLNetPretrainer(backbone, objective=objective)
        # Keep what the objective reads.
        features = dict(batch)
        if objective != "permutation":
            features.pop("factorization_rank")
        if objective == "causal":
            features.pop("target_positions")
            shape = features["token_ids"].shape
            features["target_ids"] = features["token_ids"]
            features["target_weights"] = np.ones(shape, "float32")
        yield objective, randomize(model), features
    backbone = bert_backbone(num_heads=1, **no_dropout)
    model = XLNetPretrainer(backbone, objective="pseudo_masked")
    yield "pseudo_masked", randomize(model), pseudo_features()


def test_no_product_broadcasts_one_matrix():
    """Forwards and backwards: objectives, tasks, and steps of generation."""
    with recorded_broadcasts() as found:
        # The context sees what it looks for.
        tf.matmul(tf.ones([3, 1, 2, 5]), tf.ones([1, 1, 5, 2]))
        assert len(found) == 1
        found.clear()
        for name, model, features in pretrainers():
            with tf.GradientTape() as tape:
                outputs = model(features)
                tensors = [
                    outputs[x] for x in ("content", "query") if x in outputs
                ]
                loss = sum(tf.reduce_sum(x**3) for x in tensors)
            tape.gradient(loss, [x.value for x in model.trainable_weights])
            assert not found, name
        for name in ("choice", "questions"):
            model = test_tasks.make(name, num_heads=1)
            model(test_tasks.features_of(name))
            assert not found, name
        token_ids, mask = test_decoder.texts()
        features = {
            "token_ids": token_ids[:, : test_decoder.LONGEST],
            "padding_mask": mask,
        }
        for name in ("permutation", "causal", "relative_bias"):
            settings = test_decoder.MODELS[name]
            model = test_decoder.pretrainer(**settings, num_heads=1)
            test_decoder.cached(model, token_ids, features)
            assert not found, name
