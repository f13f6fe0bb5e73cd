"""Scores, weights and dropout of a tile: some rows by some keys of a head.

`plain.py` has the equations. Scores by distance come from memory, where the
relative shift costs nothing: it is in the address. A row's score for key k is
at `start + k`.

Shapes: Q rows, K keys, H head dim; X rows and Y keys of a tile.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlnet_tf.model import dropout
from xlnet_tf.model.kernels.scores import MASKED_SCORE

# Bits of a word of masks.
BITS = 32


class Sizes(NamedTuple):
    """Static sizes and settings of a call, for its kernels.

    Attributes:
        num_rows, num_keys, head_dim: ints, Q, K and H.
        rows_of_block: int, rows whose scores by distance lie in one piece.
        unused_distances: int, distances of a row that no key has.
        early_rows, early_keys: ints, so many first rows see no key behind so
            many; 0 and K if nothing is known.
        has_mask, has_segments: bools, whether they were given.
        dropout: float, rate on the probabilities.
        tile_rows, tile_keys: ints, X and Y.
        interpret: bool, whether to compute without a GPU.
    """

    num_rows: int
    num_keys: int
    head_dim: int
    rows_of_block: int
    unused_distances: int
    early_rows: int
    early_keys: int
    has_mask: bool
    has_segments: bool
    dropout: float
    tile_rows: int
    tile_keys: int
    interpret: bool

    @property
    def width(self):
        """int, scores by distance of a row."""
        return self.num_keys + self.unused_distances

    @property
    def words_of_tile(self):
        """int, words that hold a mask of a row for the keys of a tile."""
        return self.tile_keys // BITS


class Inputs(NamedTuple):
    """References to what the kernels read, of one head of an example.

    Where a program computes rows these are X of the Q rows and all keys; where
    it computes keys, all rows and Y of the K keys.

    Attributes:
        query: [Q, H], with the content bias, scaled.
        difference: float32 [Q], the score of a key in another segment minus
            that of a key in the same.
        key, value: [K, H].
        by_distance: [F], scores by distance of the rows of a block, or
            [J, F] of all blocks.
        starts: int32 [Q], where those of a row begin in F, for key 0.
        visible, other: uint32 [K / 32, Q], a bit for each key: the row may
            attend to it; it is of another segment.
        hashes: uint32 [Q], of dropout's mask.
    """

    query: Any
    difference: Any
    key: Any
    value: Any
    by_distance: Any
    starts: Any
    visible: Any
    other: Any
    hashes: Any


def product(left, right):
    """[X, H] x [H, Y] -> float32 [X, Y], as precise as JAX's other products."""
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def addresses(starts, first_key, sizes):
    """int32 [X, Y], where the scores by distance of a tile are."""
    keys = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
    return starts[:, None] + keys[None, :]


def load_bits(words, rows, first_word, sizes):
    """Load the mask of a tile.

    Args:
        words: reference to uint32 [words, rows], a bit for each key.
        rows: pl.ds, X of them.
        first_word: int or scalar, that of the first key.
        sizes: Sizes.

    Returns:
        bool [X, Y].
    """
    column = jnp.arange(sizes.tile_keys, dtype=jnp.int32)[None, :]
    found = words[first_word, rows][:, None]
    for number in range(1, sizes.words_of_tile):
        following = words[first_word + number, rows][:, None]
        found = jnp.where(column >= number * BITS, following, found)
    place = (column & (BITS - 1)).astype(jnp.uint32)
    return (found & (jnp.uint32(1) << place)) != 0


def scores(inputs, rows, key, by_distance, first_word, sizes):
    """Scores of a tile.

    Args:
        inputs: Inputs.
        rows: pl.ds, X of the rows that they hold.
        key: [Y, H].
        by_distance: [X, Y], scores by distance, of these keys.
        first_word: int or scalar, of the masks that they hold.
        sizes: Sizes.

    Returns:
        float32 [X, Y].
    """
    found = product(inputs.query[rows, :], key.T)
    found += by_distance.astype(jnp.float32)
    if sizes.has_segments:
        is_other = load_bits(inputs.other, rows, first_word, sizes)
        difference = inputs.difference[rows][:, None]
        found += jnp.where(is_other, difference, 0.0)
    if sizes.has_mask:
        is_visible = load_bits(inputs.visible, rows, first_word, sizes)
        found = jnp.where(is_visible, found, MASKED_SCORE)
    return found


def kept(weights, hashes, first_key, sizes):
    """Weights that dropout keeps, scaled; `dropout.keep_mask` of a tile."""
    if not sizes.dropout:
        return weights
    column = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
    column = column.astype(jnp.uint32) * jnp.uint32(dropout.GOLDEN)
    bits = _mix(hashes[:, None] + column[None, :])
    keep = bits >= jnp.uint32(dropout.least_kept(sizes.dropout))
    return jnp.where(keep, weights * (1 / (1 - sizes.dropout)), 0.0)


def _mix(bits):
    """The mixer of `dropout`."""

    def shifted(bits, amount):
        return bits ^ jax.lax.shift_right_logical(bits, jnp.uint32(amount))

    bits = shifted(bits, 16) * jnp.uint32(dropout.MULTIPLIER_1)
    bits = shifted(bits, 15) * jnp.uint32(dropout.MULTIPLIER_2)
    return shifted(bits, 16)
