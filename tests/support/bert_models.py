"""Small BERTs, and input features for them.

Shapes: B batch, T tokens. Sizes are primes where they can be, so that swapped
axes cannot pass.
"""

import numpy as np

from tests.support.oracle import randomize
from xlnet_tf import BertBackbone
from xlnet_tf import BertConfig

B, T = 3, 11
SIZES = dict(
    vocabulary_size=97,
    num_layers=2,
    num_heads=5,
    hidden_dim=35,
    intermediate_dim=23,
    max_positions=13,
    num_segments=3,
)
# UniLMv2's bias, with distances in buckets of their own and shared ones.
WITH_BIAS = dict(relative_position_buckets=8, relative_position_max_distance=6)


def bert_config(**overrides):
    return BertConfig(**{**SIZES, **overrides})


def bert_backbone(seed=0, dtype=None, **overrides):
    """A backbone with random values in every weight."""
    backbone = BertBackbone(bert_config(**overrides), dtype=dtype)
    return randomize(backbone, seed)


def bert_features(seed=0, batch=B, num_tokens=T):
    """Random features; padding is left in odd rows and right in even rows."""
    random = np.random.default_rng(seed)
    padding_mask = np.ones((batch, num_tokens), "int32")
    for row in range(batch):
        width = 1 + row % 3
        is_left = row % 2
        padding_mask[row, slice(width) if is_left else slice(-width, None)] = 0
    # All tokens of a row differ, so that each has its own embedding.
    tokens = [random.permutation(97)[:num_tokens] for _ in range(batch)]
    return dict(
        token_ids=np.array(tokens, "int32"),
        segment_ids=random.integers(0, 3, (batch, num_tokens)).astype("int32"),
        padding_mask=padding_mask,
    )


def pseudo_features(seed=0, batch=B, num_tokens=7, num_targets=4):
    """A pseudo-masked batch: tokens, then [P] and true tokens, step by step.

    The first `num_tokens` are context and [M]. For every step, its pseudo
    tokens and its true tokens follow, with the positions of the targets.
    """
    random = np.random.default_rng(seed)
    columns = {
        name: []
        for name in (
            "token_ids",
            "position_ids",
            "factorization_rank",
            "is_pseudo",
        )
    }
    for _ in range(batch):
        tokens = random.permutation(97)[: 3 * num_tokens]
        positions = list(range(num_tokens))
        rank, is_pseudo = [-1] * num_tokens, [False] * num_tokens
        targets = random.permutation(num_tokens)[:num_targets]
        ends = np.sort(random.integers(1, num_targets + 1, 2))
        for step, block in enumerate(np.split(targets, ends)):
            for pseudo in (True, False):
                positions += list(block)
                rank += [step] * len(block)
                is_pseudo += [pseudo] * len(block)
        columns["token_ids"].append(tokens[: len(positions)])
        columns["position_ids"].append(positions)
        columns["factorization_rank"].append(rank)
        columns["is_pseudo"].append(is_pseudo)
    return {
        name: np.array(value, bool if name == "is_pseudo" else "int32")
        for name, value in columns.items()
    }
