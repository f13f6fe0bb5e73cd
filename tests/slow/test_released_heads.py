"""The released heads' numbers, compiled."""

import pytest
import tensorflow as tf

from tests.support.released_numbers import check_heads

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def test_heads_agree_under_xla():
    check_heads(
        "base",
        lambda model, features: tf.function(model, jit_compile=True)(features),
    )
