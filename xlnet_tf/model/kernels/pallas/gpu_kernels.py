"""Pallas kernels of attention for a GPU: a forward and two gradient kernels.

Many programs of a kernel run in parallel. A program of the forward kernel
computes some rows of a head and loops over tiles of keys. A program of the
first gradient kernel computes the gradients of some keys and values. It loops
over tiles of rows and writes the gradient of the scores. The second gradient
kernel computes the gradient of the queries from the gradient of the scores. No
two programs add to the same sum, so results do not depend on the programs'
order.

`plain.py` has the equations. XLA computes the position scores by distance and
writes these scores to memory. The kernels read a row's score for key k at the
address `start + k`. `start` is the address of the row's score for key 0. The
kernels thus need no separate step for the relative shift.

Shapes: Q rows, K keys, H head dim. A tile has X rows and Y keys. The rows form
J blocks. Each block has F scores by distance, which are contiguous in memory.
"""

from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlnet_tf.model import dropout
from xlnet_tf.model.kernels.scores import MASKED_SCORE

# Number of bits in a word of a mask.
BITS = 32
# The kernels compute exponentials and logarithms to base 2, as the GPU does.
_LOG2_E = 1.4426950408889634


class Sizes(NamedTuple):
    """Sizes and settings of an attention call, fixed when it is compiled.

    Attributes:
        num_rows, num_keys, head_dim: ints, Q, K and H.
        rows_of_block: int, number of rows whose scores by distance are
            contiguous in memory.
        unused_distances: int, number of distances of a row that belong to no
            key.
        early_rows, early_keys: ints. The first `early_rows` rows attend only to
            the first `early_keys` keys. Without such rows the numbers are 0 and
            K.
        has_mask, has_segments: bools, whether the call has a mask or segments.
        dropout: float, dropout rate of the probabilities.
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
        """Number of a row's scores by distance, int."""
        return self.num_keys + self.unused_distances

    @property
    def words_of_tile(self):
        """Number of 32-bit words of a row's mask for a tile of keys, int."""
        return self.tile_keys // BITS


class Inputs(NamedTuple):
    """References to the kernels' inputs for one head of an example.

    A program that computes rows gets X of the Q rows and all keys. A program
    that computes keys gets all rows and Y of the K keys.

    Attributes:
        query: [Q, H], the scaled sum of the query and the content bias.
        difference: float32 [Q], see `scores.segment_difference`.
        key, value: [K, H].
        by_distance: [F], the scores by distance of one block, or [J, F] of all
            blocks.
        starts: int32 [Q], address of a row's score for key 0 within the F
            scores of the row's block.
        visible: uint32 [K / 32, Q], a bit for each key, 1 = the row may attend
            to the key.
        other: uint32 [K / 32, Q], a bit for each key, 1 = the key is in another
            segment than the row.
        hashes: uint32 [Q], a hash of each row of the dropout mask, see
            `dropout.hash_rows`.
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


def forward_kernel(*references, sizes):
    """Compute the attended values of X rows.

    Args:
        *references: the fields of `Inputs`, then two results: `output` ([X, H],
            the attended values) and `log_sum` (float32 [X], the logarithm to
            base 2 of the sum of a row's weights).
        sizes: Sizes.
    """
    *references, output, log_sum = references
    inputs = Inputs(*references)
    rows, starts = pl.ds(0, sizes.tile_rows), inputs.starts[...]
    hashes, query = inputs.hashes[...], inputs.query[...]

    def add(index, sums):
        attended, largest, total = sums
        first = index * sizes.tile_keys
        keys = pl.ds(first, sizes.tile_keys)
        where = _addresses(starts, first, sizes)
        scores = _scores(
            inputs,
            rows,
            query,
            inputs.key[keys, :],
            triton.load(inputs.by_distance.at[where]),
            index * sizes.words_of_tile,
            sizes,
        )
        new = jnp.maximum(largest, jnp.max(scores, axis=1) * _LOG2_E)
        weights = jnp.exp2(scores * _LOG2_E - new[:, None])
        shrink = jnp.exp2(largest - new)
        total = total * shrink + jnp.sum(weights, axis=1)
        weights = _drop(weights, hashes, first, sizes)
        values = inputs.value[keys, :]
        attended = attended * shrink[:, None]
        attended += _product(weights.astype(values.dtype), values)
        return attended, new, total

    attended, largest, total = lax.fori_loop(
        0,
        _num_tiles(pl.program_id(0), sizes),
        add,
        (
            jnp.zeros((sizes.tile_rows, sizes.head_dim), jnp.float32),
            jnp.full(sizes.tile_rows, MASKED_SCORE, jnp.float32),
            jnp.zeros(sizes.tile_rows, jnp.float32),
        ),
    )
    # A row that may attend to no key gets zeros and has no gradient.
    sees = largest > MASKED_SCORE / 2
    factor = jnp.where(sees, 1 / (total * (1 - sizes.dropout)), 0.0)
    output[...] = (attended * factor[:, None]).astype(output.dtype)
    log_sum[...] = jnp.where(sees, largest + jnp.log2(total), -MASKED_SCORE)


def key_gradients_kernel(*references, sizes):
    """Compute the gradients of Y keys, of their values and of all their scores.

    Args:
        *references: the fields of `Inputs`, then three more inputs, then
            three results. The input `upstream` [Q, H] is the gradient of the
            attended values. `log_sum` (float32 [Q]) is the forward kernel's
            result plus log2(1 - dropout). `mean` (float32 [Q]) is the dot
            product of `upstream` and the attended values, times 1 - dropout.
            The results are `key_gradient` [Y, H], `value_gradient` [Y, H] and
            `score_gradient` [J, F]. At first `score_gradient` holds the scores
            by distance. The kernel replaces each score by its gradient, which
            is 0 at distances without a key.
        sizes: Sizes.
    """
    inputs = Inputs(*references[:9])
    upstream, log_sum, mean, *results = references[9:]
    key_gradient, value_gradient, score_gradient = results
    first_key = pl.program_id(0) * sizes.tile_keys
    keys, values = inputs.key[...], inputs.value[...]
    # Rows before the tile `begin` cannot attend to these keys.
    begin = 0
    if sizes.early_rows:
        is_late = (first_key >= sizes.early_keys).astype(jnp.int32)
        begin = sizes.early_rows // sizes.tile_rows * is_late

    def add(index, sums):
        key_sum, value_sum = sums
        rows = _rows(begin + index, sizes)
        starts, block = inputs.starts[rows], _block(rows, sizes)
        # Loads come first, so that the program waits once for all.
        by_distance = _load_by_key(
            score_gradient, block, starts, first_key, sizes
        )
        query, above = inputs.query[rows, :], upstream[rows, :]
        scores = _scores(inputs, rows, query, keys, by_distance, 0, sizes)
        # `log_sum` and `mean` have the scale of the weights that dropout keeps.
        weights = jnp.exp2(scores * _LOG2_E - log_sum[rows][:, None])
        kept = _drop(weights, inputs.hashes[rows], first_key, sizes)
        value_sum += _product(kept.astype(above.dtype).T, above)
        gradient = kept * _product(above, values.T)
        gradient -= weights * mean[rows][:, None]
        gradient = gradient.astype(keys.dtype)
        where = _addresses(starts, first_key, sizes)
        triton.store(score_gradient.at[block, where], gradient)
        key_sum += _product(gradient.T, query)
        return key_sum, value_sum

    zeros = jnp.zeros((sizes.tile_keys, sizes.head_dim), jnp.float32)
    num_tiles = sizes.num_rows // sizes.tile_rows
    key_sum, value_sum = lax.fori_loop(
        0, num_tiles - begin, add, (zeros, zeros)
    )
    key_gradient[...] = key_sum.astype(key_gradient.dtype)
    value_gradient[...] = value_sum.astype(value_gradient.dtype)
    _clear(score_gradient, inputs.starts, first_key, begin, sizes)


def _clear(score_gradient, starts, first_key, begin, sizes):
    """Set score gradients to 0: unused distances, and tiles before `begin`.

    The rows of the tiles before `begin` cannot attend to the program's keys.
    """
    shape = (sizes.tile_rows, sizes.tile_keys)
    zeros = jnp.zeros(shape, score_gradient.dtype)

    def clear_keys(index, _):
        rows = _rows(index, sizes)
        where = _addresses(starts[rows], first_key, sizes)
        triton.store(score_gradient.at[_block(rows, sizes), where], zeros)

    def clear_unused(index, _):
        rows = _rows(index, sizes)
        row = jnp.asarray(index * sizes.tile_rows, jnp.int32)
        row += jnp.arange(sizes.tile_rows, dtype=jnp.int32)
        begins = lax.rem(row, jnp.int32(sizes.rows_of_block)) * sizes.width
        column = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
        # Some of these distances are before the keys, the others after them.
        is_behind = column[None, :] >= (starts[rows] - begins)[:, None]
        where = begins[:, None] + column[None, :]
        where += sizes.num_keys * is_behind.astype(jnp.int32)
        triton.store(score_gradient.at[_block(rows, sizes), where], zeros)

    lax.fori_loop(0, begin, clear_keys, None)
    num_tiles = sizes.num_rows // sizes.tile_rows
    # Every unused distance has a program that clears it, because
    # `why_unsupported` refuses calls with fewer keys than tokens.
    has_unused = (first_key < sizes.unused_distances).astype(jnp.int32)
    lax.fori_loop(0, num_tiles * has_unused, clear_unused, None)


def query_gradients_kernel(
    key,
    starts,
    other,
    score_gradient,
    query_gradient,
    difference_gradient,
    *,
    sizes,
):
    """Compute the gradients of X rows' queries and segment differences.

    Args:
        key, starts, other: references, see `Inputs`.
        score_gradient: [F], a result of `key_gradients_kernel`.
        query_gradient: [X, H], a result.
        difference_gradient: float32 [X], a result.
        sizes: Sizes.
    """
    rows, begins = pl.ds(0, sizes.tile_rows), starts[...]

    def add(index, sums):
        query_sum, difference_sum = sums
        first = index * sizes.tile_keys
        where = _addresses(begins, first, sizes)
        gradient = triton.load(score_gradient.at[where])
        if sizes.has_segments:
            is_other = _load_bits(
                other, rows, index * sizes.words_of_tile, sizes
            )
            of_other = jnp.where(is_other, gradient.astype(jnp.float32), 0.0)
            difference_sum += jnp.sum(of_other, axis=1)
        keys = key[pl.ds(first, sizes.tile_keys), :]
        query_sum += _product(gradient, keys)
        return query_sum, difference_sum

    query_sum, difference_sum = lax.fori_loop(
        0,
        _num_tiles(pl.program_id(0), sizes),
        add,
        (
            jnp.zeros((sizes.tile_rows, sizes.head_dim), jnp.float32),
            jnp.zeros(sizes.tile_rows, jnp.float32),
        ),
    )
    query_gradient[...] = query_sum.astype(query_gradient.dtype)
    difference_gradient[...] = difference_sum


def _rows(index, sizes):
    """Return the slice of a tile's rows, pl.ds."""
    return pl.ds(index * sizes.tile_rows, sizes.tile_rows)


def _block(rows, sizes):
    """Return the index of the block that contains a tile's rows."""
    # `rows.start` has 64 bits if JAX's 64-bit mode is on.
    first = jnp.asarray(rows.start, jnp.int32)
    return lax.div(first, jnp.int32(sizes.rows_of_block))


def _num_tiles(index, sizes):
    """Number of tiles of keys to which a program's rows may attend."""
    count = sizes.num_keys // sizes.tile_keys
    if not sizes.early_rows:
        return count
    is_early = (index + 1) * sizes.tile_rows <= sizes.early_rows
    # Arithmetic, because Triton has no `where` for two ints.
    fewer = count - sizes.early_keys // sizes.tile_keys
    return count - fewer * is_early.astype(jnp.int32)


def _product(left, right):
    """Multiply [X, H] by [H, Y] to float32, with JAX's default precision."""
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def _addresses(starts, first_key, sizes):
    """Compute a tile's addresses in the scores by distance, int32 [X, Y]."""
    keys = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
    return starts[:, None] + keys[None, :]


def _load_by_key(scores, block, starts, first_key, sizes):
    """Load the scores by distance of a tile, [X, Y], in a transposed layout.

    Without the transpose, Triton would give each thread eight neighbouring
    scores of a row. The address of the first score may be odd, so the thread
    would load the eight scores one by one. In the transposed layout,
    neighbouring threads load neighbouring scores.
    """
    keys = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
    where = keys[:, None] + starts[None, :]
    return triton.load(scores.at[block, where]).T


def _load_bits(words, rows, first_word, sizes):
    """Load a tile's bits of the mask or of the segments, as bools.

    Args:
        words: reference, the input `visible` or `other` of `Inputs`.
        rows: pl.ds, X rows.
        first_word: int or scalar tensor, index of the word that holds the bit
            of the tile's first key.
        sizes: Sizes.

    Returns:
        bool [X, Y].
    """
    column = jnp.arange(sizes.tile_keys, dtype=jnp.int32)[None, :]
    tile_words = words[first_word, rows][:, None]
    for number in range(1, sizes.words_of_tile):
        following = words[first_word + number, rows][:, None]
        tile_words = jnp.where(column >= number * BITS, following, tile_words)
    place = (column & (BITS - 1)).astype(jnp.uint32)
    return (tile_words & (jnp.uint32(1) << place)) != 0


def _scores(inputs, rows, query, key, by_distance, first_word, sizes):
    """Compute the scores of a tile.

    Args:
        inputs: Inputs.
        rows: pl.ds, X rows of `inputs`.
        query: [X, H], the queries of these rows.
        key: [Y, H], the keys of the tile.
        by_distance: [X, Y], the position scores of the tile's rows and keys.
        first_word: int or scalar tensor, see `_load_bits`.
        sizes: Sizes.

    Returns:
        float32 [X, Y].
    """
    scores = _product(query, key.T)
    scores += by_distance.astype(jnp.float32)
    if sizes.has_segments:
        is_other = _load_bits(inputs.other, rows, first_word, sizes)
        difference = inputs.difference[rows][:, None]
        scores += jnp.where(is_other, difference, 0.0)
    if sizes.has_mask:
        is_visible = _load_bits(inputs.visible, rows, first_word, sizes)
        scores = jnp.where(is_visible, scores, MASKED_SCORE)
    return scores


def _drop(weights, hashes, first_key, sizes):
    """Zero the weights that dropout drops; do not scale the kept weights."""
    if not sizes.dropout:
        return weights
    column = first_key + jnp.arange(sizes.tile_keys, dtype=jnp.int32)
    column = column.astype(jnp.uint32) * jnp.uint32(dropout.GOLDEN)
    bits = _mix(hashes[:, None] + column[None, :])
    keep = bits >= jnp.uint32(dropout.least_kept(sizes.dropout))
    return jnp.where(keep, weights, 0.0)


def _mix(bits):
    """Hash uint32 numbers as `xlnet_tf.model.dropout` does."""

    def shifted(bits, amount):
        return bits ^ lax.shift_right_logical(bits, jnp.uint32(amount))

    bits = shifted(bits, 16) * jnp.uint32(dropout.MULTIPLIER_1)
    bits = shifted(bits, 15) * jnp.uint32(dropout.MULTIPLIER_2)
    return shifted(bits, 16)
