"""Next-sentence prediction, as in BERT, in addition to another objective.

Shapes: B batch, T tokens, P targets, D model dim.
"""

from keras import ops

from xlnet_tf.objectives.objective import LossTerms
from xlnet_tf.objectives.objective import Objective
from xlnet_tf.objectives.objective import target_weights
from xlnet_tf.tasks.heads import ClassificationHead


class NextSentence(Objective):
    """Objective: predict whether a row's second segment continues the first.

    The label in the batch is `is_next` bool [B], True if the second segment
    continues the first. The output of the class token predicts the label. The
    class token is the last token of a row for XLNet and the first token for
    BERT. The objective adds `next_sentence_loss` and `next_sentence_correct`,
    float32 [B], to the outputs. The weight of a row's loss is the sum of the
    row's target weights. Outside training the label is optional; without the
    label the objective is skipped.

    Args:
        weight: float, factor of the loss relative to the other objective.
            Default 1.

    Raises:
        ValueError: if the weight is not positive, or if the label is missing in
            training.

    Source: row 8 of Table 6 of https://arxiv.org/abs/1906.08237.

    Example:

    ```python
    import xlnet_tf
    from xlnet_tf.objectives import NextSentence, Permutation
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    backbone = xlnet_tf.XLNetBackbone(config)
    objective = [Permutation(), NextSentence(weight=0.5)]
    model = xlnet_tf.XLNetPretrainer(backbone, objective=objective)
    ```
    """

    name = "next_sentence"
    streams = "both"
    reads_query = False
    metric_names = ("next_sentence_accuracy",)
    layer_names = ("next_sentence_head",)
    keras_metrics = {"next_sentence_metric": "next_sentence_accuracy"}

    def __init__(self, weight: float = 1.0):
        if weight <= 0:
            raise ValueError(
                "`weight` of next-sentence prediction must be positive. "
                f"Received: weight={weight}."
            )
        self.weight = weight

    def make_layers(self, config, dtype):
        head = ClassificationHead(
            config,
            num_classes=2,
            dropout=0.0,  # BERT's head has no dropout
            dtype=dtype,
            name="next_sentence_head",
        )
        head.build((None, None, config.hidden_dim))
        return (head,)

    def has_labels(self, batch):
        return batch.get("is_next") is not None

    def predict(self, model, outputs, batch, training=None):
        if not self.has_labels(batch):
            if not training:
                return {}
            raise ValueError(
                "next-sentence prediction needs the feature `is_next`, bool "
                f"[B]. Received: {', '.join(batch)}."
            )
        is_next = ops.cast(batch["is_next"], "int32")
        logits = model.next_sentence_head(outputs["content"])  # [B, 2]
        correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == is_next
        return {
            "next_sentence_loss": ops.sparse_categorical_crossentropy(
                is_next, logits, from_logits=True
            ),
            "next_sentence_correct": ops.cast(correct, "float32"),
        }

    def terms(self, outputs, batch):
        if "next_sentence_loss" not in outputs:
            return None
        weights = target_weights(batch, outputs["token_loss"])
        return LossTerms(
            outputs["next_sentence_loss"],
            ops.sum(weights, axis=1),
            {"next_sentence_accuracy": outputs["next_sentence_correct"]},
        )

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}
