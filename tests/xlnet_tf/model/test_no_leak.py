"""No target of a batch of the pipeline sees itself or what comes after it."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from tests.support.oracle import randomize
from tests.support.record_fixtures import TOKENS
from tests.support.record_fixtures import VOCABULARY
from tests.support.record_fixtures import write_set
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone

ROWS = 3


@pytest.mark.parametrize("form", ["compact", "frozen"])
def test_gradients_follow_the_factorization_order(tmp_path, form):
    """d query[p] / d embedding[j] is zero exactly where rank j >= rank p."""
    write_set(tmp_path / "set", form=form)
    data = PretrainingData(tmp_path / "set", ROWS, seed=5)
    batch = next(iter(data.dataset()))
    backbone = randomize(
        XLNetBackbone(tiny_config(vocabulary_size=VOCABULARY, memory_length=0))
    )
    content = tf.Variable(
        tf.gather(backbone.token_embedding.embeddings, batch["token_ids"])
    )
    # In place of the table: embeddings that the tape can tell apart by place.
    original = backbone.token_embedding.call
    backbone.token_embedding.call = lambda token_ids: tf.identity(content)
    try:
        with tf.GradientTape(persistent=True) as tape:
            query = backbone(dict(batch))["query"]
            outputs = [
                tf.reduce_sum(tf.abs(query[:, p]))
                for p in range(query.shape[1])
            ]
    finally:
        backbone.token_embedding.call = original
    if form == "compact":
        rank = batch["factorization_rank"].numpy()
        positions = batch["target_positions"].numpy()
        sees = np.stack(
            [rank[b] < rank[b, positions[b]][:, None] for b in range(ROWS)]
        )
    else:
        mapping = batch["target_mapping"].numpy()
        positions = mapping.argmax(-1)
        masks = batch["perm_mask"].numpy()
        sees = np.stack([masks[b, positions[b]] == 0 for b in range(ROWS)])
    checked = 0
    for p, output in enumerate(outputs):
        gradient = np.abs(tape.gradient(output, content).numpy()).max(-1)
        for row in range(ROWS):
            if not batch["target_weights"][row, p]:
                continue
            # Through two layers a target also sees what those see that it
            # sees, which are all before it in the order.
            np.testing.assert_array_equal(gradient[row] > 0, sees[row, p])
            assert gradient[row, positions[row, p]] == 0
            checked += 1
    assert checked > ROWS * 2
    assert sees.shape[-1] == TOKENS
