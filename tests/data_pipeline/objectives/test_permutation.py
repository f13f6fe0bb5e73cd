"""Factorization orders: the released masks exactly, independent shuffles."""

import pathlib

import numpy as np
import tensorflow as tf

from data_pipeline.objectives import draws
from data_pipeline.objectives import permutation
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "permutation"
B, T, REUSE, P = 7, 26, 13, 5


def in_map(function, *arguments):
    """Call a function of batches in Dataset.map."""
    dataset = tf.data.Dataset.from_tensors(arguments).map(function)
    return next(iter(dataset))


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(9, 97, (B, T)).astype(np.int32)
    token_ids[:, 17] = SEP_ID
    token_ids[:, -2:] = SEP_ID, CLS_ID
    is_target = rng.random((B, T)) < 0.3
    return token_ids, is_target


def shuffles(seed=0, epoch=0, index=None, lengths=(T, REUSE, REUSE)):
    index = np.arange(B) if index is None else np.array(index)
    return permutation.draw_shuffles(
        seed, tf.fill([len(index)], np.int64(epoch)), index, *lengths
    ).numpy()


def test_released_numbers():
    for name in ("a", "b_small_perm"):
        for call in (in_map, lambda function, *arguments: function(*arguments)):
            check_released_numbers(name, call)


def check_released_numbers(name, call):
    golden = np.load(GOLDEN / f"{name}.npz")
    reuse = int(golden["reuse_len"])
    token_ids = golden["input_ids"].astype(np.int32)[None]
    is_masked = golden["is_masked"][None]

    def both(key):
        return np.concatenate([golden[f"half{half}_{key}"] for half in (0, 1)])

    def compute(token_ids, is_masked, shuffled_index):
        rank = permutation.factorization_rank(
            token_ids, is_masked, shuffled_index, reuse
        )
        is_target = permutation.real_targets(token_ids, is_masked)
        selected = permutation.select_targets(token_ids, is_target, 17)
        return rank, is_target, permutation.perm_mask(rank, is_target), selected

    rank, is_target, mask, (positions, ids, weights) = call(
        compute,
        token_ids,
        is_masked,
        both("shuffled_index")[None].astype("int32"),
    )
    np.testing.assert_array_equal(mask[0], golden["perm_mask"])
    for half, part in enumerate((slice(0, reuse), slice(reuse, None))):
        np.testing.assert_array_equal(
            mask[0, part, part], golden[f"half{half}_perm_mask"]
        )
    np.testing.assert_array_equal(is_target[0], both("target_mask"))
    np.testing.assert_array_equal(is_target[0], both("input_q"))
    np.testing.assert_array_equal(token_ids[0], both("input_k"))
    count = int(both("target_mask").sum())
    np.testing.assert_array_equal(
        positions[0, :count], np.flatnonzero(both("target_mask"))
    )
    # The released next-token target, shifted back, is the token itself.
    np.testing.assert_array_equal(
        ids[0, :count], both("target")[both("target_mask") == 1]
    )
    assert weights[0].numpy().tolist() == [1.0] * count + [0.0] * (17 - count)


def test_one_rule_is_the_released_mask():
    """Plain loops over i and j of the released rule, against the rank."""
    for lengths in ((13, 13), (13, 1), (0, 26), (0, 13), (6, 20), (16, 2)):
        check_mask(*lengths)


def check_mask(reuse, length):
    token_ids, is_target = random_batch()
    index = shuffles(lengths=(T, reuse, length))
    rank = permutation.factorization_rank(
        token_ids, is_target, index, reuse
    ).numpy()
    real = permutation.real_targets(token_ids, is_target).numpy()
    mask = permutation.perm_mask(rank, real).numpy()
    for b in range(B):
        for i in range(T):
            for j in range(T):
                special = token_ids[b, j] in (SEP_ID, CLS_ID)
                in_order = is_target[b, j] or special
                if (i < reuse) != (j < reuse):
                    hidden = i < reuse
                elif not in_order:
                    hidden = False
                elif not (
                    is_target[b, i] or token_ids[b, i] in (SEP_ID, CLS_ID)
                ):
                    hidden = True
                elif i == j:
                    hidden = real[b, i]
                else:
                    hidden = index[b, j] > index[b, i]
                assert mask[b, i, j] == hidden
                # A target's own content is added by the model.
                sees = rank[b, j] <= rank[b, i]
                assert sees == (not hidden or i == j)
                if real[b, i]:
                    assert (rank[b, j] < rank[b, i]) == (not hidden)


def test_blocks_share_a_shuffle():
    for reuse, length, blocks in (
        (13, 13, [13, 13]),
        (0, 26, [26]),
        (6, 20, [6, 20]),
        (16, 2, [2] * 13),
    ):
        index = shuffles(lengths=(T, reuse, length))
        begin, seen = 0, {}
        for block in blocks:
            half = 0 if begin < reuse else reuse
            part = index[:, begin : begin + block] - (begin - half)
            np.testing.assert_array_equal(
                np.sort(part, axis=1), np.tile(np.arange(block), (B, 1))
            )
            np.testing.assert_array_equal(part, seen.setdefault(half, part))
            begin += block
        assert begin == T


def test_shuffle_depends_on_seed_epoch_and_record_only():
    index = np.array([5, 3, 1 << 33, 0, 900, 17, 6])
    drawn = in_map(
        lambda epoch, index: permutation.draw_shuffles(
            11, epoch, index, T, REUSE, REUSE
        ),
        np.full(B, 2),
        index,
    ).numpy()
    for row, record in zip(drawn, index, strict=True):
        np.testing.assert_array_equal(row, shuffles(11, 2, [record])[0])
    assert len(np.unique(drawn, axis=0)) == B
    assert (drawn != shuffles(12, 2, index)).any(1).all()
    assert (drawn != shuffles(11, 3, index)).any(1).all()
    # The two halves differ, and so do records 2^32 apart.
    assert (drawn[:, :REUSE] != drawn[:, REUSE:]).any(1).all()
    assert (shuffles(11, 2, [5]) != shuffles(11, 2, [5 + (1 << 32)])).any()


def ranks(token_ids, is_target, index=None, lengths=(REUSE, REUSE), epoch=2):
    count = len(token_ids)
    index = np.arange(count) if index is None else np.array(index)
    return permutation.draw_ranks(
        11, np.full(count, epoch), index, token_ids, is_target, *lengths
    ).numpy()


def test_ranks_are_an_order_of_each_half():
    for reuse in (0, 7, REUSE):
        check_order_of_halves(reuse)


def check_order_of_halves(reuse):
    token_ids, is_target = random_batch()
    is_target[0] = False
    token_ids[0, reuse:] = 9  # no <sep> and no <cls>
    drawn = in_map(
        lambda *both: permutation.draw_ranks(
            11, tf.fill([B], 2), tf.range(B), *both, reuse, T - reuse
        ),
        token_ids,
        is_target,
    ).numpy()
    np.testing.assert_array_equal(
        drawn, ranks(token_ids, is_target, lengths=(reuse, T - reuse))
    )
    functional = (token_ids == SEP_ID) | (token_ids == CLS_ID)
    for begin, end, base in (
        (0, reuse, 0),
        (reuse, T, reuse + 1 if reuse else 0),
    ):
        for row, shuffled in zip(
            drawn[:, begin:end],
            (is_target | functional)[:, begin:end],
            strict=True,
        ):
            assert (row[~shuffled] == base - 1).all()
            expected = base + np.arange(shuffled.sum())
            assert sorted(row[shuffled]) == expected.tolist()


def test_ranks_depend_on_epoch_and_record_only():
    token_ids, is_target = random_batch()
    drawn = ranks(token_ids, is_target, np.arange(7) + (1 << 33))
    for row in range(B):
        one = slice(row, row + 1)
        np.testing.assert_array_equal(
            drawn[one], ranks(token_ids[one], is_target[one], [row + (1 << 33)])
        )
    for other in (
        ranks(token_ids, is_target),
        ranks(token_ids, is_target, np.arange(7) + (1 << 33), epoch=3),
    ):
        assert (drawn != other).any(1).all()


def test_blocks_share_a_shuffle_and_follow_each_other():
    token_ids = np.full((B, 24), 9)
    is_target = np.zeros((B, 24), bool)
    is_target[:, :12] = True
    is_target[:, 9] = False
    is_target[:, 12::3] = True
    drawn = ranks(token_ids, is_target, lengths=(12, 4))
    first, second, third = np.split(drawn[:, :12], 3, axis=1)
    np.testing.assert_array_equal(first + 4, second)
    # A token that is no target does not change the order of other tokens.
    targets = [0, 2, 3]
    np.testing.assert_array_equal(
        np.argsort(third[:, targets]), np.argsort(first[:, targets])
    )
    assert (np.sort(third[:, targets]) == [8, 9, 10]).all()
    assert len(np.unique(first, axis=0)) > 3
    # Of the other half every third place is a target.
    assert (np.sort(drawn[:, 12:16:3]) == [13, 14]).all()
    assert (drawn[:, 18] == 15).all() and (drawn[:, 21] == 16).all()


def test_both_draws_are_uniform():
    token_ids = np.full((24_000, 16), 9)
    is_target = np.zeros(token_ids.shape, bool)
    is_target[:, [1, 2, 5, 7, 8, 12]] = True
    for drawn in (
        shuffles(index=np.arange(24_000), lengths=(8, 4, 4))[:, :4],
        ranks(token_ids, is_target, lengths=(8, 8))[:, [1, 2, 5, 7]],
    ):
        counts = np.unique(drawn, axis=0, return_counts=True)[1]
        assert len(counts) == 24
        # Chi-square with 23 degrees of freedom: 99.99 % lie below 57.
        assert ((counts - 1000) ** 2 / 1000).sum() < 57


def test_fmix32():
    """Values of the reference C++ function."""
    x = tf.constant([0, 1, 2, 0xFFFFFFFF], tf.uint32)
    assert draws.fmix32(x).numpy().tolist() == [
        0,
        0x514E28B7,
        0x30F4C306,
        0x81F16F39,
    ]


def test_targets_in_text_order():
    token_ids, is_target = random_batch()
    is_target[0] = False
    is_target[1, :9] = True

    def select(token_ids, is_target):
        selected = permutation.select_targets(token_ids, is_target, P)
        return *selected, permutation.target_mapping(
            selected[0], selected[2], T
        )

    positions, ids, weights, mapping = in_map(select, token_ids, is_target)
    for b in range(B):
        expected = np.flatnonzero(is_target[b])[:P]
        pad = P - len(expected)
        np.testing.assert_array_equal(positions[b], np.pad(expected, (0, pad)))
        np.testing.assert_array_equal(
            ids[b], np.pad(token_ids[b, expected], (0, pad))
        )
        np.testing.assert_array_equal(weights[b], np.arange(P) < len(expected))
        one_hot = np.zeros((P, T))
        one_hot[np.arange(len(expected)), expected] = 1
        np.testing.assert_array_equal(mapping[b], one_hot)
