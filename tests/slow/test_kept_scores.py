"""How much attention keeps for its gradient, by what XLA sets aside."""

import re

import numpy as np

from tests.support.commands import python

# Scores are far larger than all else that such a layer holds.
HEADS, TOKENS, LAYERS = 4, 768, (1, 3)
SCORES = 4 * HEADS * TOKENS**2  # bytes of one tensor

PROGRAM = """
import sys
import tensorflow as tf
import xlnet_tf

heads, tokens, *layers = map(int, sys.argv[1:])

def compute(num_layers, rematerialize, name):
    model = xlnet_tf.XLNetBackbone(
        xlnet_tf.XLNetConfig(
            vocabulary_size=11, num_layers=num_layers, num_heads=heads,
            hidden_dim=8, head_dim=4, intermediate_dim=8, memory_length=0,
        ),
        rematerialize=rematerialize,
    )
    features = {
        "token_ids": tf.ones([1, tokens], tf.int32),
        "dropout_seed": tf.constant([3, 5]),
    }

    def gradients():
        variables = [v.value for v in model.trainable_variables]
        with tf.GradientTape() as tape:
            content = model(features, training=True)["content"]
            loss = tf.reduce_sum(content**2)
        return [g for g in tape.gradient(loss, variables) if g is not None]

    gradients.__name__ = name  # a part of the files' names
    tf.function(gradients, jit_compile=True)()

for num_layers in layers:
    compute(num_layers, False, "gradients_of_kept")
    compute(num_layers, True, "gradients_of_recomputed")
"""


def test_a_layer_keeps_one_tensor_of_scores(tmp_path):
    """XLA once kept two: those to be computed again, merged with the first."""
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    python("-c", PROGRAM, HEADS, TOKENS, *LAYERS, XLA_FLAGS=flags)
    for name, kept in (("kept", 1), ("recomputed", 0)):
        sizes = []
        for file in tmp_path.glob(f"*gradients_of_{name}*assignment.txt"):
            found = re.search(r"Total bytes used: (\d+)", file.read_text())
            sizes.append(int(found[1]))
        assert len(sizes) == len(LAYERS)
        of_a_layer = np.ptp(sizes) / np.ptp(LAYERS) / SCORES
        assert kept - 0.1 < of_a_layer < kept + 0.5, (name, of_a_layer)
