"""`benchmarks/copying.py`: what it hides, and what it prints."""

import numpy as np
import pytest

from benchmarks import copying
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer


def test_the_second_half_is_the_first_or_another():
    for is_repeated in (True, False):
        rng = np.random.default_rng(1)
        token_ids = copying.make_rows(rng, 3, 8, 97, is_repeated)
        first, second = np.split(token_ids, 2, axis=1)
        assert (first == second).all() == is_repeated


def test_targets_lie_inside_the_second_half():
    rng = np.random.default_rng(1)
    token_ids = copying.make_rows(rng, 200, 8, 97, True)
    features = copying.hide(rng, token_ids, count=4)
    positions = features["target_positions"]
    # The token before is one of the second half, and one comes after.
    assert positions.min() == 9
    assert positions.max() == 14
    assert (np.diff(positions) > 0).all()
    rank = features["factorization_rank"]
    assert ((rank >= 0).sum(1) == 4).all()
    hidden = np.take_along_axis(token_ids, positions, 1)
    np.testing.assert_array_equal(features["target_ids"], hidden)


def test_the_command(tmp_path, capsys):
    config = tiny_config(initializer_range=0.02)
    model = XLNetPretrainer(XLNetBackbone(config, seed=1))
    model.save_to_preset(tmp_path)
    copying.main(["--preset", str(tmp_path), "--rows", "3", "--half", "9"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "the same half again",
        "another half",
    ]
    # New weights know nothing: all 97 tokens are about as likely.
    bits = [float(line.split(":")[1].split()[0]) for line in lines]
    assert bits == pytest.approx([np.log2(97)] * 2, abs=0.5)
