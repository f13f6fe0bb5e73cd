"""Texts read segment by segment, in compiled functions."""

import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.xlnet_tf.tasks.test_long_documents import BATCH
from tests.xlnet_tf.tasks.test_long_documents import CLASSES
from tests.xlnet_tf.tasks.test_long_documents import SEGMENT
from tests.xlnet_tf.tasks.test_long_documents import by_hand
from tests.xlnet_tf.tasks.test_long_documents import draw
from tests.xlnet_tf.tasks.test_long_documents import make_config
from tests.xlnet_tf.tasks.test_long_documents import make_model


def test_segments_in_turn_under_xla():
    model, features = make_model(), draw(16)
    call = tf.function(model, jit_compile=True)
    np.testing.assert_allclose(
        call(features), by_hand(model, features), atol=1e-5
    )


def test_a_length_that_is_not_known_beforehand():
    model = make_model()
    spec = {
        name: tf.TensorSpec([None, None], tf.int32)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    call = tf.function(model, input_signature=[spec])
    for length in (28, 16):
        features = draw(length)
        np.testing.assert_allclose(
            call(features), by_hand(model, features), atol=1e-5
        )


def temporary_bytes(function, *arguments):
    """What XLA sets aside for everything between arguments and results."""
    hlo_pb2 = pytest.importorskip("tensorflow.compiler.xla.service.hlo_pb2")
    compiled = function.experimental_get_compiler_ir(*arguments)
    program = hlo_pb2.HloProto.FromString(
        compiled(stage="optimized_hlo_proto_serialized")
    )
    return sum(
        allocation.size
        for allocation in program.buffer_assignment.buffer_allocations
        if not (
            allocation.is_entry_computation_parameter
            or allocation.maybe_live_out
            or allocation.is_constant
            or allocation.is_thread_local
        )
    )


def test_memory_of_a_training_step_is_that_of_a_segment():
    """Nothing of earlier segments is kept for the gradient."""
    model = xlnet_tf.XLNetTextClassifier(
        xlnet_tf.XLNetBackbone(make_config().replace(num_layers=1), seed=1),
        num_classes=CLASSES,
        segment_length=SEGMENT,
    )
    variables = [v.value for v in model.trainable_variables]

    @tf.function(jit_compile=True)
    def step(token_ids, seed):
        features = {"token_ids": token_ids, "dropout_seed": seed}
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(features, training=True))
        return tape.gradient(loss, variables)

    seed = tf.constant([3, 5])
    few, many = (
        temporary_bytes(step, tf.ones([BATCH, SEGMENT * n], tf.int32), seed)
        for n in (4, 16)
    )
    # At most the mask of the tokens, far less than their states.
    assert 0 <= many - few <= 4 * BATCH * SEGMENT * (16 - 4)
    assert few > 10_000
