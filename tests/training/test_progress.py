"""What a run says of itself before it begins."""

import types

import pytest

from xlnet_tf.config import XLNetConfig
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.progress import expected_bytes


def expected(rows=2, **training):
    """Gigabytes for XLNet-Base, 512 tokens, 85 targets, memory 384."""
    model = types.SimpleNamespace(
        config=XLNetConfig(memory_length=384),
        count_params=lambda: 116_718_336,
    )
    manifest = types.SimpleNamespace(num_predict=85, sequence_length=512)
    settings = TrainingConfig(**training)
    return expected_bytes(model, settings, manifest, rows) / 1e9


def test_expected_memory():
    """Near what XLA says it holds at a time: 1.4 + 2.0 + 0.5 GB."""
    assert expected() == pytest.approx(3.87, rel=0.1)


def test_expected_memory_of_options():
    weights = 16 * 116_718_336 / 1e9
    # Each layer keeps a tensor of scores, 4 bytes each.
    scores = 4 * 2 * 12 * 597 * 896 / 1e9
    kept = 597 * (12 * 768 + 3 * 3072 - 768) * 4 * 2 * 12 / 1e9
    kept -= 597 * (12 * 768 + 3 * 3072) * 4 * 2 / 1e9
    saved = expected() - expected(rematerialize=True)
    assert saved == pytest.approx(kept + 11 * scores)
    assert weights < expected(rematerialize=True) < 0.65 * expected()
    assert weights < expected(precision="bfloat16") < 0.8 * expected()
    # Twice the rows in two parts need no more.
    parts = {"batch_size": 4, "gradient_accumulation_steps": 2}
    assert expected(4, **parts) == pytest.approx(expected())
    # So many scores that no layer keeps them; they are made row by row.
    per_row = (expected(8) - expected(4)) / 4
    every_score = 16 * (12 + 4) * scores / 2
    at_a_time = 4 * scores / 2
    assert expected(16) == pytest.approx(
        expected(8) + 8 * per_row - every_score + at_a_time
    )
