"""Options and documents, several sequences a row, as kinds of task.

Shapes: B rows of a batch, X examples, O options or documents.
"""

import numpy as np
from keras import ops

from xlnet_tf.tasks.choices import XLNetRanker
from xlnet_tf.tasks.classification import XLNetMultipleChoice
from xlnet_tf.tasks.losses import ListwiseLoss
from xlnet_tf.training.finetuning_kinds import FEATURES
from xlnet_tf.training.finetuning_kinds import Kind
from xlnet_tf.training.finetuning_kinds import softmax


class MultipleChoice(Kind):
    """Which option answers a question about a context."""

    model_class = XLNetMultipleChoice

    def row_loss(self, outputs, features):
        return ops.sparse_categorical_crossentropy(
            features["label"], outputs, from_logits=True
        )

    def targets(self, examples):
        return np.array([x.answer for x in examples])

    def metric_arguments(self, examples):
        groups = [x.group for x in examples]
        return {"groups": groups} if any(groups) else {}

    def predictions(self, examples, rows, outputs):
        return [
            {
                "id": example.id,
                "answer": int(np.argmax(row)),
                "option": example.options[int(np.argmax(row))],
                "probabilities": row.tolist(),
            }
            for example, row in zip(
                examples, softmax(outputs["logits"]), strict=True
            )
        ]


class Ranking(Kind):
    """How well documents answer a query."""

    model_class = XLNetRanker
    features = (*FEATURES, "document_mask")

    def encode_arguments(self):
        return {"num_documents": self.config.num_documents}

    def row_loss(self, outputs, features):
        return ListwiseLoss(reduction=None)(features["label"], outputs)

    def targets(self, examples):
        return np.array([x.relevance or 0 for x in examples])

    def metric_arguments(self, examples):
        return {"groups": [x.query_id for x in examples]}

    def scores(self, examples, rows, outputs):
        scores = np.zeros(len(examples), np.float64)
        is_real = rows.dense["document_mask"] > 0
        scores[rows.dense["example"][is_real]] = outputs["logits"][is_real]
        return scores

    def predictions(self, examples, rows, outputs):
        return [
            {
                "query_id": example.query_id,
                "document_id": example.document_id,
                "score": float(score),
            }
            for example, score in zip(
                examples, self.scores(examples, rows, outputs), strict=True
            )
        ]
