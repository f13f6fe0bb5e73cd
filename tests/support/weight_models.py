"""Random models for tests of formats of weights."""

import numpy as np

from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_config
from xlnet_tf import XLNetBackbone

# Heads share the model's width, as Hugging Face wants it.
SIZES = {"num_heads": 2, "head_dim": 19}


def ours(cls, config=None, seed=0, dtype=None, **arguments):
    """Model of this library with random values in every weight.

    Args:
        cls: class of model.
        config: dict of fields of the config, or None.
        seed: int.
        dtype: str or None.
        **arguments: arguments of the class.
    """
    config = small_config(**{**SIZES, **(config or {})})
    backbone = XLNetBackbone(config, dtype=dtype)
    if cls is XLNetBackbone:
        return randomize(backbone, seed)
    return randomize(cls(backbone, **arguments), seed)


def assert_same(model, other, message=""):
    """Assert equal weights (bit by bit), configs and arguments except names."""
    assert other.config == model.config, message
    for one, two in zip(model.weights, other.weights, strict=True):
        if "seed" not in one.path:
            np.testing.assert_array_equal(
                as_numpy(one), as_numpy(two), f"{message} {one.path}"
            )
    values = [
        dict(m.get_config(), name="", backbone="") for m in (model, other)
    ]
    assert values[0] == values[1], message
