"""Whether a pretrained model copies: what comparing two sentences rests on.

    python benchmarks/copying.py --preset runs/mine/preset

Rows of random tokens, once twice over, once with another second half. Prints
the bits that a few hidden tokens of the second half cost in each. A model that
finds what stood after the same token before needs far fewer in the first.
"""

import argparse
import math
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import numpy as np

import xlnet_tf
from data_pipeline import command_line


def make_rows(rng, rows, half, vocabulary_size, is_repeated):
    """Token ids [rows, 2 * half]; symbols and rare pieces left out."""
    low = min(100, vocabulary_size // 10)
    high = vocabulary_size // 3
    first, other = rng.integers(low, high, (2, rows, half))
    second = first if is_repeated else other
    return np.concatenate([first, second], axis=1).astype("int32")


def hide(rng, token_ids, count):
    """Features with `count` targets somewhere in each second half."""
    rows, length = token_ids.shape
    order = rng.random((rows, length // 2 - 2)).argsort(axis=1)[:, :count]
    positions = np.sort(order + length // 2 + 1, axis=1).astype("int32")
    rank = np.full(token_ids.shape, -1, "int32")
    np.put_along_axis(rank, positions, np.arange(count, dtype="int32"), 1)
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "factorization_rank": rank,
        "target_positions": positions,
        "target_ids": np.take_along_axis(token_ids, positions, 1),
    }


def main(argv=None):
    """Runs the command; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", required=True)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--half", type=int, default=30, help="tokens, from 8")
    arguments = parser.parse_args(argv)
    if arguments.half < 8 or arguments.rows < 1:
        parser.error("--half must be 8 or more, --rows 1 or more.")
    model = xlnet_tf.XLNetPretrainer.from_preset(arguments.preset)
    for is_repeated in (True, False):
        rng = np.random.default_rng(0)
        token_ids = make_rows(
            rng,
            arguments.rows,
            arguments.half,
            model.config.vocabulary_size,
            is_repeated,
        )
        outputs = model(hide(rng, token_ids, count=4))
        print(
            "the same half again:" if is_repeated else "another half:",
            f"{float(outputs['loss']) / math.log(2):.2f} bits a token,",
            f"{float(np.mean(outputs['token_correct'])):.1%} predicted",
        )


if __name__ == "__main__":
    sys.exit(command_line.run(main))
