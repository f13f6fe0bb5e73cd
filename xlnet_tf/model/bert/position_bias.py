"""Relative position bias: a score for each bucket of distances.

Shapes: B batch, T tokens, Q rows, N heads.
"""

import keras
import numpy as np
from keras import ops


def relative_position_buckets(
    position_ids, num_buckets, max_distance, row_positions=None
):
    """Find the bucket of every pair of row and key, by their distance.

    Half of the buckets are for keys at the same or an earlier position. The
    other half is for keys at a later position. In each half the first buckets
    hold one distance each. The other buckets hold ranges of distances, of equal
    width on a logarithmic scale. The last range has no upper limit.

    Args:
        position_ids: int32 tensor of shape [B, T].
        num_buckets: int, number of buckets, even.
        max_distance: int. Distances of at least `max_distance` share a bucket.
        row_positions: int32 tensor of shape [B, Q], or None (default) if the
            rows have the positions of the keys.

    Returns:
        int32 tensor of shape [B, Q, T], the bucket of each row and key.

    Source: `_relative_position_bucket` of T5, in its bidirectional form.
    UniLMv2 and MPNet use the same function.
    """
    table = _distance_buckets(num_buckets // 2, max_distance)
    if row_positions is None:
        row_positions = position_ids
    offset = position_ids[:, None, :] - row_positions[:, :, None]
    distance = ops.minimum(ops.abs(offset), max_distance)
    bucket = ops.take(ops.convert_to_tensor(table), distance, axis=0)
    return ops.where(offset > 0, bucket + num_buckets // 2, bucket)


def _distance_buckets(num_buckets, max_distance):
    """Make a table with the bucket of each distance up to `max_distance`.

    NumPy computes the table, because backends may round a logarithm
    differently.

    Returns:
        int32 array of shape [max_distance + 1].
    """
    exact = num_buckets // 2
    distance = np.arange(max_distance + 1)
    far = np.maximum(distance, exact).astype("float32") / np.float32(exact)
    growth = np.log(far) / np.float32(np.log(max_distance / exact))
    bucket = exact + (growth * (num_buckets - exact)).astype("int32")
    bucket = np.minimum(bucket, num_buckets - 1)
    return np.where(distance < exact, distance, bucket).astype("int32")


@keras.saving.register_keras_serializable(package="xlnet_tf")
class RelativePositionBias(keras.layers.Layer):
    """Bias of attention scores by relative position, shared by all layers.

    Args:
        num_buckets: int, number of buckets, even.
        max_distance: int. Distances of at least `max_distance` share a bucket.
        num_heads: int, N.
        initializer_range: float, standard deviation of the initial weights.
            Default 0.02.

    Call arguments:
        position_ids: int32 tensor of shape [B, T].
        row_positions: int32 tensor of shape [B, Q], or None (default) if the
            rows have the positions of the keys.

    Returns:
        float tensor of shape [B, N, Q, T].

    Source: `rel_pos_bias` of UniLMv2.
    """

    def __init__(
        self,
        num_buckets,
        max_distance,
        num_heads,
        initializer_range=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.num_heads = num_heads
        self.initializer_range = initializer_range

    def build(self, input_shape=None):
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(
                stddev=self.initializer_range
            ),
        )
        self.built = True

    def call(self, position_ids, row_positions=None):
        buckets = relative_position_buckets(
            position_ids, self.num_buckets, self.max_distance, row_positions
        )
        table = ops.cast(self.table, self.compute_dtype)
        bias = ops.take(table, buckets, axis=0)  # [B, Q, T, N]
        return ops.transpose(bias, [0, 3, 1, 2])

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "num_heads": self.num_heads,
            "initializer_range": self.initializer_range,
        }
