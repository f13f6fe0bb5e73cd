"""What each objective takes from records: places, orders, replaced tokens."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.objectives import READERS
from data_pipeline.objectives import draws
from data_pipeline.objectives import masked
from data_pipeline.objectives import permutation
from data_pipeline.objectives import pseudo_masked
from data_pipeline.objectives.causal import CausalReader
from data_pipeline.pretraining import PretrainingData
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.artefacts import TOKENIZER
from tests.support.record_fixtures import TARGETS
from tests.support.record_fixtures import TOKENS
from tests.support.record_fixtures import write_set
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.training.settings import PretrainingSettings

ROWS, LENGTH, VOCABULARY, GOAL = 64, 128, 97, 19


def tokens(seed=0):
    """Rows of text with a <sep> in the middle, <sep> <cls> at the end."""
    ids = np.random.default_rng(seed).integers(9, VOCABULARY, (ROWS, LENGTH))
    ids[:, 70] = SEP_ID
    ids[:, -2:] = SEP_ID, CLS_ID
    return ids.astype("int32")


def states(seed=1):
    return draws.hash_words(seed, tf.range(ROWS, dtype=tf.int64))


def ranks(order, is_target, ids, reuse=0, permutation_length=LENGTH):
    index = tf.range(len(ids), dtype=tf.int64)
    arguments = ids, is_target, reuse, permutation_length, order
    return permutation.draw_ranks(5, index * 0, index, *arguments).numpy()


def test_orders_of_the_text_and_its_reverse():
    ids = np.array([[9, 9, 9, 9, 9, 9, SEP_ID, 9, 9, SEP_ID, CLS_ID]], "int32")
    is_target = np.array([[0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0]], bool)
    # <sep> and <cls> are in the order too; two halves, of 5 and 6 tokens.
    assert ranks("forward", is_target, ids, 5, 6).tolist() == [
        [-1, 0, 1, -1, 2, 5, 6, 7, 5, 8, 9]
    ]
    assert ranks("backward", is_target, ids, 5, 6).tolist() == [
        [-1, 2, 1, -1, 0, 5, 9, 8, 5, 7, 6]
    ]


def test_neighbours_have_one_rank_in_the_order_of_blocks():
    ids = tokens()
    is_target = np.random.default_rng(0).random(ids.shape) < 0.4
    is_target &= ids >= 9
    found = ranks("block", is_target, ids)
    follows = is_target[:, 1:] & is_target[:, :-1]
    same = found[:, 1:] == found[:, :-1]
    assert same[follows].all()
    first = is_target & ~np.pad(follows, [[0, 0], [1, 0]])
    for rank, starts in zip(found, first, strict=True):
        blocks = rank[starts]
        assert len(set(blocks)) == len(blocks)
        assert (np.diff(blocks) < 0).any()  # not the order of the text
    # Blocks of a permutation end one too.
    found = ranks("block", is_target, ids, permutation_length=32)
    border = follows[:, 31]
    assert border.any()
    assert (found[border, 31] != found[border, 32]).all()


def test_next_tokens_where_the_text_goes_on():
    records = {
        "token_ids": tf.constant([[11, 12, SEP_ID, 13, 14, SEP_ID, CLS_ID]])
    }
    found = CausalReader().features(records, None, None)
    assert found["target_ids"].numpy()[0, :4].tolist() == [12, SEP_ID, 13, 14]
    assert found["target_weights"].numpy().tolist() == [[1, 0, 0, 1, 0, 0, 0]]


def test_masked_words_are_whole():
    ids, random = tokens(), np.random.default_rng(2)
    starts = random.random(ids.shape) < 0.6
    taken = masked.draw_words(
        states()[:, None], tf.constant(ids), tf.constant(starts), GOAL
    ).numpy()
    assert not taken[ids < 9].any()
    assert (taken.sum(1) <= GOAL).all() and taken.sum(1).mean() > GOAL - 2
    inside = ~starts[:, 1:] & (ids[:, 1:] >= 9) & (ids[:, :-1] >= 9)
    assert (taken[:, 1:] == taken[:, :-1])[inside].all()
    # Every place is as likely, but for words longer than the goal.
    share = taken[:, ids[0] >= 9].mean(0)
    assert share.min() < 0.15 < share.max() and abs(share.mean() - 0.15) < 0.01
    one_word = tf.zeros_like(ids, tf.bool)
    assert (
        not masked.draw_words(
            states()[:, None], tf.constant(ids), one_word, GOAL
        )
        .numpy()[:, :70]
        .any()
    )


def test_words_of_rows_that_read_backwards():
    starts = tf.constant(
        [[True, False, True, False], [False, True, False, True]]
    )
    records = {"starts_word": starts, "is_reversed": tf.constant([False, True])}
    # The second row reads "_a b _c d" from its end: d, _c, b, _a.
    assert masked.word_starts(records).numpy().tolist() == [
        [True, False, True, False],
        [True, False, True, False],
    ]


def test_four_of_five_targets_become_masks():
    ids = np.repeat(tokens(), 8, axis=0)
    state = draws.hash_words(3, tf.range(len(ids), dtype=tf.int64))[:, None]
    is_target = (ids >= 9) & (np.arange(LENGTH) % 2 == 0)
    found = masked.corrupt(state, ids, is_target, VOCABULARY).numpy()
    np.testing.assert_array_equal(found[~is_target], ids[~is_target])
    assert found[is_target].max() < VOCABULARY
    is_mask = found[is_target] == MASK_ID
    stays = found[is_target] == ids[is_target]
    other = found[is_target][~is_mask & ~stays]
    # Standard errors of 31,000 targets: 0.002.
    assert abs(is_mask.mean() - 0.8) < 0.01
    assert abs(stays.mean() - (0.1 + 0.1 / (VOCABULARY - 9))) < 0.01
    assert set(other) == set(range(9, VOCABULARY))


def test_blocks_of_pseudo_masks():
    special = tokens() < 9
    steps = pseudo_masked.draw_blocks(states(), special, GOAL).numpy()
    assert not (steps[special] >= 0).any()
    counts = (steps >= 0).sum(1)
    assert (counts >= GOAL).mean() > 0.95 and counts.max() <= GOAL + 5
    sizes, gaps = [], []
    for step in steps:
        for number in range(step.max() + 1):
            at = np.flatnonzero(step == number)
            assert (np.diff(at) == 1).all()  # a block, and each number has one
            sizes.append(len(at))
            gaps.append(at[0])
    share = np.bincount(sizes) / len(sizes)
    # Long blocks overlap others more often.
    assert len(share) == 7 and 0.57 < share[1] < 0.68
    assert share[2:].min() > 0.04
    assert np.corrcoef(gaps[1:], gaps[:-1])[0, 1] < 0.2


def test_batches_of_every_objective(tmp_path):
    """Static shapes; drawn by epoch and record, whatever the reader."""
    write_set(tmp_path / "set", tokenizer=Tokenizer(TOKENIZER))
    for name in READERS:
        data = PretrainingData(tmp_path / "set", 4, objective=name, seed=3)
        element = data.dataset().element_spec
        assert all(spec.shape.is_fully_defined() for spec in element.values())
        assert element["target_ids"].shape == (4, data.num_targets)
        steps = data.steps_per_epoch
        batches = list(data.dataset(num_parallel_calls=1).take(2 * steps))
        again = next(iter(data.dataset(start_step=1, first_row=2)))
        for key, value in again.items():
            np.testing.assert_array_equal(value, batches[1][key][2:])
        if name != "permutation":
            with pytest.raises(ValueError, match="has no literal form"):
                data.dataset(literal=True)
        if name == "masked":
            # The true tokens come back when the targets are put in place.
            plain = PretrainingData(tmp_path / "set", 4)
            true = next(iter(plain.dataset()))["token_ids"].numpy()
            found = batches[0]["token_ids"].numpy()
            assert (found != true).any()
            for row in range(4):
                real = batches[0]["target_weights"][row] > 0
                at = batches[0]["target_positions"][row][real]
                found[row, at] = batches[0]["target_ids"][row][real]
            np.testing.assert_array_equal(found, true)


def test_what_readers_refuse(tmp_path):
    write_set(tmp_path / "frozen", form="frozen")
    for arguments, message in (
        ({"order": "sideways"}, "`order` must be one of random, forward"),
        ({"order": "forward"}, "the records hold permutations of random order"),
    ):
        with pytest.raises(ValueError, match=message):
            reader = permutation.PermutationReader(**arguments)
            PretrainingData(tmp_path / "frozen", 4, objective=reader)
    with pytest.raises(ValueError, match="`objective` must be one of permu"):
        PretrainingData(tmp_path / "frozen", 4, objective="next")
    with pytest.raises(ValueError, match="is not the tokenizer that"):
        PretrainingData(tmp_path / "frozen", 4, objective="masked")
    for arguments in ({"fraction": 1.0}, {"unit": "letters"}):
        with pytest.raises(ValueError, match=f"`{next(iter(arguments))}`"):
            masked.MaskedReader(**arguments)


def test_orders_that_released_masks_cannot_say(tmp_path):
    """Ties, of which the released masks show one target the other."""
    write_set(tmp_path / "set")
    for order in ("block", lambda token_ids, is_target: token_ids):
        reader = permutation.PermutationReader(order=order)
        data = PretrainingData(tmp_path / "set", 4, objective=reader)
        with pytest.raises(ValueError, match="has no literal form"):
            data.dataset(literal=True)


def test_a_share_of_less_than_a_token_is_refused(tmp_path):
    write_set(tmp_path / "set", tokenizer=Tokenizer(TOKENIZER))
    for reader in (
        masked.MaskedReader(fraction=0.01),
        pseudo_masked.PseudoMaskedReader(fraction=0.01),
    ):
        with pytest.raises(ValueError, match="is less than a token"):
            PretrainingData(tmp_path / "set", 4, objective=reader)


def test_layouts_of_the_batches(tmp_path):
    """A reused half is restricted where there is memory: not for a BERT."""
    write_set(tmp_path / "set", tokenizer=Tokenizer(TOKENIZER))
    with pytest.raises(ValueError, match="needs a backbone with a query"):
        PretrainingData(tmp_path / "set", 4, layout="bert")
    with pytest.raises(ValueError, match="`layout` must be one of"):
        PretrainingData(tmp_path / "set", 4, layout="gpt")
    for layout in ("xlnet", "bert"):
        data = PretrainingData(
            tmp_path / "set", 4, objective="masked", layout=layout
        )
        batch = next(iter(data.dataset()))
        reuse = data.manifest.reuse_length
        assert 0 < reuse < TOKENS
        assert ("is_reversed" in batch) == (layout == "xlnet")
        assert data.first_half_length == (reuse if layout == "xlnet" else 0)
        if layout == "bert":
            assert "factorization_rank" not in batch
        else:
            expected = [-1] * reuse + [0] * (TOKENS - reuse)
            ranks = batch["factorization_rank"].numpy()
            np.testing.assert_array_equal(ranks, [expected] * 4)


def test_a_first_half_that_sees_nothing_behind(tmp_path):
    """What a reader promises to the kernel is true of its masks."""
    write_set(tmp_path / "set", tokenizer=Tokenizer(TOKENIZER))
    for objective in (
        *(permutation.PermutationReader(order) for order in permutation.ORDERS),
        "masked",
    ):
        data = PretrainingData(tmp_path / "set", 4, objective=objective)
        half = data.first_half_length
        assert half == data.manifest.reuse_length > 0
        for batch in data.dataset().take(3):
            ranks = batch["factorization_rank"].numpy()
            assert (ranks[:, :half].max(1) < ranks[:, half:].min(1)).all()
    for objective, half in (
        (permutation.PermutationReader(lambda *_: None), 0),
        ("pseudo_masked", 0),
        ("causal", TOKENS // 2),
    ):
        data = PretrainingData(tmp_path / "set", 4, objective=objective)
        assert data.first_half_length == half


def test_an_order_of_the_callers(tmp_path):
    write_set(tmp_path / "set")

    def middle_first(token_ids, is_target):
        distance = tf.abs(tf.range(TOKENS) - TOKENS // 2)
        return tf.where(is_target, distance, -1)

    reader = permutation.PermutationReader(order=middle_first)
    data = PretrainingData(tmp_path / "set", 4, objective=reader)
    batch = next(iter(data.dataset()))
    positions = batch["target_positions"].numpy()
    found = np.take_along_axis(
        batch["factorization_rank"].numpy(), positions, axis=1
    )
    real = batch["target_weights"].numpy() > 0
    assert real.sum() > TARGETS
    np.testing.assert_array_equal(
        found[real], np.abs(positions - TOKENS // 2)[real]
    )


def test_the_names_are_the_same_everywhere():
    choices = PretrainingSettings.__dataclass_fields__["objective"].metadata
    assert set(READERS) == set(OBJECTIVES) - {"next_sentence"}
    assert set(choices["choices"]) == set(READERS)
