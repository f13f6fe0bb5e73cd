"""Parser of records from the released script, and batches in its format.

Shapes: b records, T tokens of the sequence, P targets.
"""

import tensorflow as tf

from data_pipeline.objectives import permutation


def parse_released(serialized, sequence_length, is_reversed=False):
    """Parse a batch of records from the released script.

    These records do not store their direction. A file made with `bi_data` has
    groups of `bsz_per_host` records. Each group is divided equally among the
    cores. In the second half of each core's share, the records are reversed.

    Args:
        serialized: string tensor [b].
        sequence_length: int, T.
        is_reversed: bool or bool tensor [b], whether the records are reversed.

    Returns:
        dict, see `data_pipeline.records.reading.parse_records`.

    Source: `record_spec` in `get_dataset`.
    """
    lengths = {
        "input": sequence_length,
        "is_masked": sequence_length,
        "target": sequence_length,
        "seg_id": sequence_length,
        "label": 1,
    }
    parsed = tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature([length], tf.int64)
            for name, length in lengths.items()
        },
    )
    is_next = tf.cast(parsed["label"][:, 0], tf.bool)
    return {
        # `target` is the next token, but permutation predicts the token itself.
        "token_ids": tf.cast(parsed["input"], tf.int32),
        "segment_ids": tf.cast(parsed["seg_id"], tf.int32),
        "is_target": tf.cast(parsed["is_masked"], tf.bool),
        "is_reversed": tf.logical_or(tf.zeros_like(is_next), is_reversed),
        "is_next": is_next,
    }


def released_batch(batch):
    """Convert a batch to the names and shapes of the release.

    Args:
        batch: dict from `PretrainingData.dataset`; `literal` may be True or
            False.

    Returns:
        dict of `input_k` and `seg_id` (int32 [b, T]), `input_q` (float32
        [b, T], 1 = a target), `perm_mask` (float32 [b, T, T], 1 = may NOT
        attend), `target_mapping` (float32 [b, P, T]), `target` (int32 [b, P])
        and `target_mask` (float32 [b, P], 0 = padding).

    Source: `get_dataset`, `_local_perm`.
    """
    sequence_length = batch["token_ids"].shape[1]
    mapping = batch.get("target_mapping")
    if mapping is None:
        mapping = permutation.target_mapping(
            batch["target_positions"], batch["target_weights"], sequence_length
        )
    input_q = tf.reduce_sum(mapping, axis=1)
    mask = batch.get("perm_mask")
    if mask is None:
        mask = permutation.perm_mask(
            batch["factorization_rank"], tf.cast(input_q, tf.bool)
        )
    return {
        "input_k": batch["token_ids"],
        "seg_id": batch["segment_ids"],
        "input_q": input_q,
        "perm_mask": mask,
        "target_mapping": mapping,
        "target": batch["target_ids"],
        "target_mask": batch["target_weights"],
    }
