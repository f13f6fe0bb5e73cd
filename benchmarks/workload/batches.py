"""Random batches from a seed, equal for all contenders.

Shapes: B batch, T tokens, M memory length, P targets, L layers, D width of the
model.
"""

import numpy as np

_FIRST_WORD = 9  # ids below are special symbols
_MASK = 6
_SEED = 0
_CLASSES = 2


def token_batch(model, batch_size, num_tokens):
    """Make random tokens in two segments.

    Returns:
        (token_ids, segment_ids), int32 arrays [B, T].
    """
    rng = np.random.default_rng(_SEED)
    token_ids = rng.integers(
        _FIRST_WORD, model["vocabulary_size"], (batch_size, num_tokens)
    ).astype(np.int32)
    segment_ids = np.zeros((batch_size, num_tokens), np.int32)
    segment_ids[:, num_tokens // 2 :] = 1
    return token_ids, segment_ids


def first_half(num_tokens, memory_length):
    """Length of the half that cannot attend to later tokens; 0 if M is 0."""
    return num_tokens // 2 if memory_length else 0


def pretraining_batch(
    model, batch_size, num_tokens, num_targets, first_half_length=0
):
    """Make a pretraining batch, in our form and in the released code's form.

    In our form, `factorization_rank` and `target_positions` give the order of
    prediction. In the released form, `perm_mask` and `target_mapping` give this
    order.

    Args:
        first_half_length: int, length of the prefix that cannot attend to later
            tokens.

    Returns:
        dict of arrays. `token_ids`, `segment_ids`, `factorization_rank` [B, T]
        and `target_positions`, `target_ids` [B, P] are int32. `target_weights`
        [B, P], `is_target` [B, T], `perm_mask` ([B, T, T], 1 = may NOT attend)
        and `target_mapping` [B, P, T] are float32.
    """
    token_ids, segment_ids = token_batch(model, batch_size, num_tokens)
    rng = np.random.default_rng([_SEED, 1])
    order = rng.permuted(
        np.tile(np.arange(num_tokens), (batch_size, 1)), axis=1
    )
    positions = np.sort(order[:, :num_targets], axis=1)
    is_target = np.zeros((batch_size, num_tokens), bool)
    np.put_along_axis(is_target, positions, True, axis=1)
    rank = np.where(is_target, order, -1)
    if first_half_length:
        rank[:, first_half_length:] += num_tokens + 1
    # A target does not attend to itself.
    hidden = rank[:, None, :] > (rank - is_target)[:, :, None]
    return {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "factorization_rank": rank.astype(np.int32),
        "target_positions": positions.astype(np.int32),
        "target_ids": np.take_along_axis(token_ids, positions, axis=1),
        "target_weights": np.ones((batch_size, num_targets), np.float32),
        "is_target": is_target.astype(np.float32),
        "perm_mask": hidden.astype(np.float32),
        "target_mapping": np.eye(num_tokens, dtype=np.float32)[positions],
    }


def objective_batch(objective, model, batch_size, num_tokens, num_targets):
    """Make a batch with an objective's features, as from `PretrainingData`.

    Args:
        objective: str, name of an objective.
        num_targets: int, P. A causal model ignores this number and predicts all
            T tokens.

    Returns:
        dict of arrays.
    """
    batch = pretraining_batch(model, batch_size, num_tokens, num_targets)
    kept = ["token_ids", "segment_ids", "target_positions", "target_ids"]
    kept.append("target_weights")
    if objective == "permutation":
        kept.append("factorization_rank")
    features = {name: batch[name] for name in kept}
    if objective == "causal":
        del features["target_positions"]
        features["target_ids"] = np.roll(batch["token_ids"], -1, axis=1)
        features["target_weights"] = np.ones(
            (batch_size, num_tokens), np.float32
        )
    if "masked" in objective:
        masked = batch["token_ids"].copy()
        np.put_along_axis(masked, batch["target_positions"], _MASK, axis=1)
        features["token_ids"] = masked
    if objective == "pseudo_masked":
        blocks = block_numbers(num_targets)
        features["target_blocks"] = np.tile(blocks, (batch_size, 1))
    return features


def block_numbers(num_targets):
    """Draw the factorization step of each target, int32 [P].

    Consecutive targets of the same step form a block. 40 % of the blocks have 2
    to 6 targets; all other blocks have 1.
    """
    rng = np.random.default_rng([_SEED, 2])
    sizes = []
    while sum(sizes) < num_targets:
        sizes.append(int(rng.integers(2, 7)) if rng.random() < 0.4 else 1)
    steps = rng.permutation(len(sizes)).astype(np.int32)
    return np.repeat(steps, sizes)[:num_targets]


def zero_memories(model, batch_size, memory_length):
    """Make a model's initial memories: L arrays [B, M, D] of zeros."""
    shape = (batch_size, memory_length, model["hidden_dim"])
    return [np.zeros(shape, np.float32) for _ in range(model["num_layers"])]


def labels(batch_size):
    """Make labels int32 [B] with two alternating classes."""
    return np.arange(batch_size, dtype=np.int32) % _CLASSES


def task_batch(kind, model, batch_size, num_tokens):
    """Make a batch with the features and labels of a fine-tuning task.

    Args:
        kind: "classification" or "question_answering".

    Returns:
        dict of arrays.
    """
    token_ids, segment_ids = token_batch(model, batch_size, num_tokens)
    ones = np.ones(batch_size, np.int32)
    features = {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": np.ones_like(token_ids),
        "row_weight": ones.astype(np.float32),
    }
    if kind == "classification":
        return {**features, "label": labels(batch_size)}
    return {
        **features,
        "answer_mask": np.ones_like(token_ids),
        "class_index": (num_tokens - 1) * ones,
        "start_position": num_tokens // 2 * ones,
        "end_position": (num_tokens // 2 + 1) * ones,
        "is_impossible": np.zeros(batch_size, np.float32),
    }
