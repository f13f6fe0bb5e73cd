"""Memory of a document, as a client carries it from segment to segment.

Shapes: N documents, T tokens of a segment, M memory length, L layers, D model
dim.
"""

import tensorflow as tf


def read_memory(memories, memory_mask):
    """The features that a request's memory becomes.

    Args:
        memories: float32 [N, L, M, D].
        memory_mask: int32 [N, M], 1 = a real remembered token.

    Returns:
        dict: `memories`, L tensors [N, M, D]; `memory_mask` bool [N, M].
    """
    return {
        "memories": tuple(tf.unstack(memories, axis=1)),
        "memory_mask": memory_mask > 0,
    }


def last_real(memories, memory_mask, memory_length):
    """The last real states of each document, moved to the end.

    Padding of a segment is thereby neither attended later nor counted in
    distances: a document's answers are the same in whatever batch.

    Args:
        memories: L tensors [N, M + T, D], states before and of this segment.
        memory_mask: bool [N, M + T].
        memory_length: int, M.

    Returns:
        dict: `memories` float32 [N, L, M, D], zeros where nothing is
        remembered; `memory_mask` int32 [N, M].
    """
    real = tf.cast(memory_mask, tf.int32)
    order = tf.argsort(real, axis=1, stable=True)[:, -memory_length:]
    mask = tf.gather(real, order, axis=1, batch_dims=1)
    states = tf.stack([tf.cast(m, tf.float32) for m in memories], axis=1)
    states = tf.gather(states, order[:, None], axis=2, batch_dims=1)[:, :, 0]
    return {
        "memories": states * tf.cast(mask, tf.float32)[:, None, :, None],
        "memory_mask": mask,
    }
