"""Documents in the order in which they answer a query.

Shapes: B queries, O documents of a query, T tokens.
"""

import keras
from keras import ops

from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.tasks.classification import XLNetMultipleChoice
from xlnet_tf.tasks.losses import ListwiseLoss
from xlnet_tf.tasks.losses import reciprocal_rank

_FILLER = -1e30


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetRanker(XLNetMultipleChoice):
    """Scores the documents of a query.

    By default it is trained by `ListwiseLoss` on relevance [B, O]: 0 for what
    does not answer the query, and for what only fills up the rows.

    Args:
        backbone: XLNetBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        preprocessor: XLNetRankerPreprocessor, or None.

    Call arguments:
        features: dict of `token_ids` int32 [B, O, T], and optionally
            `segment_ids` and `padding_mask` of that shape, and
            `document_mask` [B, O], 0 for what only fills up the rows.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, O], scores, -1e30 where `document_mask` is
        0.
    """

    preprocessor_cls = XLNetRankerPreprocessor

    def call(self, features, training=None):
        features = dict(features)
        document_mask = features.pop("document_mask", None)
        scores = super().call(features, training=training)
        if document_mask is None:
            return scores
        return ops.where(ops.cast(document_mask, "bool"), scores, _FILLER)

    def default_loss(self):
        return ListwiseLoss()

    def default_metrics(self):
        return [
            keras.metrics.MeanMetricWrapper(
                reciprocal_rank, name="reciprocal_rank"
            )
        ]
