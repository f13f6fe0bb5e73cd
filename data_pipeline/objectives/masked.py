"""Targets of masked language modelling: about 15 % of the tokens.

The loss is in `xlnet_tf/objectives/masked.py`.

Shapes: B batch, T tokens of the sequence, P targets.
"""

import dataclasses

import tensorflow as tf

from data_pipeline.objectives import draws
from data_pipeline.objectives.permutation import select_targets
from data_pipeline.objectives.reader import ObjectiveReader
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SPECIAL_IDS

UNITS = ("words", "pieces")
# Shares of the targets to replace. All other targets stay unchanged.
MASKED, RANDOM = 0.8, 0.1

# Numbers that distinguish the random draws of a token.
_UNIT, _KIND, _TOKEN = range(3)


@dataclasses.dataclass(frozen=True)
class MaskedReader(ObjectiveReader):
    """Reader that replaces tokens and gives the true tokens as targets.

    New targets are drawn in every epoch. Words or pieces become targets in
    random order until the requested share is reached. 80 % of the targets are
    replaced by <mask>, 10 % by a random token, and 10 % stay unchanged.

    In records with a reused half (see `blocks`), the reused half does not
    attend to the new half. The next record contains tokens of the new half
    again and predicts some of them. If the reused half attended to the new
    half, the states in memory would reveal these tokens.

    Args:
        fraction: float, share of the tokens that are targets. Default 0.15.
        unit: "words" (default) for whole words, or "pieces" for single pieces,
            as in the first BERT.

    Source: https://arxiv.org/abs/1810.04805, section 3.1 and A.1;
    `create_masked_lm_predictions` of the released BERT, with
    `do_whole_word_mask`.
    """

    fraction: float = 0.15
    unit: str = "words"

    name = "masked"

    @property
    def reads_words(self):
        return self.unit == "words"

    def __post_init__(self):
        check_fraction(self.fraction)
        if self.unit not in UNITS:
            raise ValueError(
                f"`unit` must be one of {', '.join(UNITS)}. "
                f"Received: unit={self.unit!r}."
            )

    def check(self, manifest):
        check_share(self.fraction, manifest)

    def num_targets(self, manifest):
        return round(self.fraction * manifest.sequence_length)

    def first_half_length(self, manifest):
        return manifest.reuse_length

    def features(self, records, manifest, draw, literal=False):
        token_ids = records["token_ids"]
        if self.unit == "words":
            starts = word_starts(records)
        else:
            starts = tf.ones_like(token_ids, tf.bool)
        goal = self.num_targets(manifest)
        state = draws.hash_words(*draw)[:, None]
        is_target = draw_words(state, token_ids, starts, goal)
        positions, ids, weights = select_targets(token_ids, is_target, goal)
        features = {}
        if manifest.reuse_length:
            place = tf.range(manifest.sequence_length)
            rank = tf.where(place < manifest.reuse_length, -1, 0)
            rank += tf.zeros_like(token_ids)
            features["factorization_rank"] = rank
        return features | {
            "token_ids": corrupt(
                state,
                token_ids,
                is_target,
                manifest.tokenizer["vocabulary_size"],
            ),
            "target_positions": positions,
            "target_ids": ids,
            "target_weights": weights,
        }


def check_fraction(fraction):
    """Refuse a share of targets that is not between 0 and 1.

    Raises:
        ValueError: the share is not between 0 and 1.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            "`fraction` of masked tokens must be between 0 and 1. "
            f"Received: fraction={fraction}."
        )


def check_share(fraction, manifest):
    """Refuse records whose sequences are too short for a single target.

    Raises:
        ValueError: the sequences are too short.
    """
    if round(fraction * manifest.sequence_length) < 1:
        raise ValueError(
            f"a share of {fraction:g} of the {manifest.sequence_length} tokens "
            "of a sequence is less than a token. Build longer records, or "
            "raise `masked_fraction`."
        )


def word_starts(records):
    """Mark the first stored piece of each word.

    In a reversed record, the first stored piece is the word's last piece in
    reading order.

    Args:
        records: dict with `is_reversed` (bool [B]) and `starts_word` (bool
            [B, T], True for a piece that begins a word in reading order).

    Returns:
        bool tensor [B, T].
    """
    starts = records["starts_word"]
    # In a reversed record, the piece that begins a word is stored as its last.
    behind = tf.pad(starts[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    return tf.where(records["is_reversed"][:, None], behind, starts)


def draw_words(state, token_ids, starts, goal):
    """Draw whole words as targets, at most `goal` tokens per row.

    Words become targets in random order. A word that would raise the number of
    targets above `goal` is skipped.

    Args:
        state: uint32 tensor [B, 1] from `hash_words`.
        token_ids: int32 tensor [B, T].
        starts: bool tensor [B, T], True for a token that begins a word.
        goal: int, maximum number of targets per row.

    Returns:
        bool tensor [B, T], True for targets. Special tokens are never targets.
    """
    length = token_ids.shape[1]
    special = is_special(token_ids)
    # A special token is a separate word and ends the word before it.
    behind = tf.pad(special[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    starts = starts | special | behind
    word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1  # at most T words
    row = tf.range(tf.shape(token_ids)[0])[:, None]

    def of_words(values):
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(tf.cast(values, tf.int32), [-1]),
            tf.reshape(row * length + word, [-1]),
            tf.size(values),
        )
        return tf.reshape(sums, tf.shape(values))

    size = of_words(tf.ones_like(word))
    may = (size > 0) & (size <= goal) & (of_words(special) == 0)
    number = tf.range(length, dtype=tf.int64)
    key = draws.uniform(state, tf.constant(_UNIT, tf.int64), number)
    order = tf.argsort(tf.where(may, key, 2.0), axis=1)
    taken = _take_in_turn(
        tf.gather(size, order, batch_dims=1),
        tf.gather(may, order, batch_dims=1),
        goal,
    )
    taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)
    return tf.gather(taken, word, batch_dims=1)


def _take_in_turn(size, may, goal):
    """Choose words in order; skip a word that would exceed `goal` tokens.

    Args:
        size: int32 tensor [B, T], number of tokens of each word, in the order
            of choice.
        may: bool tensor [B, T], whether a word may be chosen.
        goal: int, maximum number of tokens per row.

    Returns:
        bool tensor [B, T], True for chosen words.
    """

    def take(left, taken, room):
        left &= size <= room[:, None]
        total = tf.cumsum(tf.where(left, size, 0), axis=1)
        # Take all words before the first word that does not fit. The next turn
        # skips that word.
        fits = left & (total <= room[:, None])
        used = tf.reduce_sum(tf.where(fits, size, 0), axis=1)
        return left & ~fits, taken | fits, room - used

    room = tf.fill([tf.shape(size)[0]], goal)
    _, taken, _ = tf.while_loop(
        lambda left, taken, room: tf.reduce_any(left),
        take,
        (may, tf.zeros_like(may), room),
    )
    return taken


def is_special(token_ids):
    """Mark the nine special symbols, which are never targets, bool tensor.

    The special symbols have the smallest ids and include <unk>.
    """
    return token_ids < len(SPECIAL_IDS)


def corrupt(state, token_ids, is_target, vocabulary_size):
    """Replace targets by <mask> (80 %) or random tokens (10 %); keep 10 %.

    Args:
        state: uint32 tensor [B, 1] from `hash_words`.
        token_ids: int32 tensor [B, T].
        is_target: bool tensor [B, T].
        vocabulary_size: int, V. Random tokens are never special symbols.

    Returns:
        int32 tensor [B, T].
    """
    place = tf.range(token_ids.shape[1], dtype=tf.int64)
    kind = draws.uniform(state, tf.constant(_KIND, tf.int64), place)
    token = draws.uniform(state, tf.constant(_TOKEN, tf.int64), place)
    first = len(SPECIAL_IDS)
    token = tf.cast(token * float(vocabulary_size - first), tf.int32) + first
    replaced = tf.where(kind < MASKED, MASK_ID, token)
    is_replaced = is_target & (kind < MASKED + RANDOM)
    return tf.where(is_replaced, replaced, token_ids)
