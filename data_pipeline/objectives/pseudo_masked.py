"""Reader of pseudo-masked language modelling: masked blocks in random order.

`xlnet_tf/objectives/pseudo_masked.py` computes the loss and appends a pseudo
token and the true token of each target to the sequence.

Shapes: B batch, T tokens of the sequence, P targets.
"""

import dataclasses

import tensorflow as tf

from data_pipeline.objectives import draws
from data_pipeline.objectives.masked import check_fraction
from data_pipeline.objectives.masked import check_share
from data_pipeline.objectives.masked import corrupt
from data_pipeline.objectives.masked import is_special
from data_pipeline.objectives.permutation import select_targets
from data_pipeline.objectives.reader import ObjectiveReader

# Share of blocks with several tokens, and maximum length of a block.
BLOCKS, LONGEST_BLOCK = 0.4, 6
# Number of blocks to draw per target. With little room left, most blocks do not
# fit.
_TRIES = 3

# Numbers that distinguish the random draws of a block.
_IS_BLOCK, _LENGTH, _BEGIN = range(3, 6)


@dataclasses.dataclass(frozen=True)
class PseudoMaskedReader(ObjectiveReader):
    """Reader that draws blocks of tokens, predicted in a random order.

    The tokens of the blocks are the targets. In every epoch, new blocks are
    drawn until the targets reach the requested share of all tokens. With the
    last block, the targets may exceed this share. 40 % of the drawn blocks have
    2 to 6 tokens, and 60 % have a single token. A block that overlaps another
    block or contains a special token is discarded. 80 % of the targets are
    replaced by <mask>, 10 % by a random token, and 10 % stay unchanged.

    `target_blocks` int32 [B, P] is the prediction step of each target, counted
    from 0 in each sequence. All targets of a block have the same step.

    Args:
        fraction: float, share of the tokens that are targets. Default 0.15.

    Source: section 3.1 of https://arxiv.org/abs/2002.12804.
    """

    fraction: float = 0.15

    name = "pseudo_masked"

    def __post_init__(self):
        check_fraction(self.fraction)

    def check(self, manifest):
        check_share(self.fraction, manifest)

    def _goal(self, manifest):
        return round(self.fraction * manifest.sequence_length)

    def num_targets(self, manifest):
        return self._goal(manifest) + LONGEST_BLOCK - 1

    def features(self, records, manifest, draw, literal=False):
        token_ids = records["token_ids"]
        goal, most = self._goal(manifest), self.num_targets(manifest)
        state = draws.hash_words(*draw)
        step = draw_blocks(state, is_special(token_ids), goal)
        is_target = step >= 0
        positions, ids, weights = select_targets(token_ids, is_target, most)
        blocks = tf.gather(step, positions, batch_dims=1)
        return {
            "token_ids": corrupt(
                state[:, None],
                token_ids,
                is_target,
                manifest.tokenizer["vocabulary_size"],
            ),
            "target_positions": positions,
            "target_ids": ids,
            "target_weights": weights,
            "target_blocks": tf.where(weights > 0, blocks, 0),
        }


def draw_blocks(state, special, goal):
    """Draw blocks of tokens in a random order.

    Args:
        state: uint32 tensor [B] from `hash_words`.
        special: bool tensor [B, T], True for tokens that are never targets.
        goal: int, number of targets. Drawing stops when each row has at least
            this number of targets, or after a fixed number of draws.

    Returns:
        int32 tensor [B, T], the prediction step of each token's block, -1 for
        tokens outside of blocks.
    """
    length = special.shape[1]
    place = tf.range(length)
    longest = min(LONGEST_BLOCK, length)

    def one(number, kind):
        words = tf.constant(kind, tf.int64), tf.cast(number, tf.int64)
        return draws.uniform(state, *words)

    def below(number, kind, bound):
        return tf.cast(one(number, kind) * tf.cast(bound, tf.float32), tf.int32)

    def draw(number, step, taken, num_blocks):
        size = tf.where(
            one(number, _IS_BLOCK) < (BLOCKS if longest > 1 else 0),
            2 + below(number, _LENGTH, longest - 1),
            1,
        )
        begin = below(number, _BEGIN, length - size + 1)[:, None]
        block = (place >= begin) & (place < begin + size[:, None])
        blocked = tf.reduce_any(block & (special | (step >= 0)), axis=1)
        fits = ~blocked & (taken < goal)
        step = tf.where(block & fits[:, None], num_blocks[:, None], step)
        return (
            number + 1,
            step,
            taken + tf.where(fits, size, 0),
            num_blocks + tf.cast(fits, tf.int32),
        )

    none = tf.zeros_like(special[:, 0], tf.int32)
    _, step, _, _ = tf.while_loop(
        lambda number, step, taken, num_blocks: tf.reduce_any(taken < goal),
        draw,
        (0, tf.fill(tf.shape(special), -1), none, none),
        maximum_iterations=_TRIES * goal + LONGEST_BLOCK,
    )
    return step
