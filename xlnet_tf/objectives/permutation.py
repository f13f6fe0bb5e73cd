"""Permutation language modelling: predict tokens in a factorization order.

The orders are drawn in `data_pipeline/objectives/permutation.py`.
`Objective.loss_sums` sums the losses, and `XLNetPretrainer.compute_loss`
averages them.

Shapes: B batch, P targets, V vocabulary.
"""

import math

from keras import ops

from xlnet_tf.objectives.objective import LossTerms
from xlnet_tf.objectives.objective import Objective
from xlnet_tf.objectives.objective import target_weights


class Permutation(Objective):
    """Predict each target from the tokens before it in the order.

    The batch has the order (`factorization_rank` or `perm_mask`), the places
    (`target_positions` or `target_mapping`), and the labels `target_ids` int
    [B, P] with `target_weights` [B, P], 0 for rows that are padding (default
    all 1). The outputs get `token_loss` float32 [B, P] in nats and
    `token_correct` float32 [B, P], 1 where the likeliest token is the target.

    Source: section 2.3 of https://arxiv.org/abs/1906.08237, `two_stream_loss`.

    Example:

    ```python
    import xlnet_tf
    from xlnet_tf.objectives import Permutation
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    backbone = xlnet_tf.XLNetBackbone(config)
    model = xlnet_tf.XLNetPretrainer(backbone, objective=Permutation())
    ```
    """

    name = "permutation"
    streams = "query"
    metric_names = ("loss", "accuracy")
    keras_metrics = {
        "accuracy_metric": "accuracy",
        "bits_metric": "bits_per_token",
    }

    def has_labels(self, batch):
        if batch.get("target_ids") is None:
            return False
        if all(
            batch.get(name) is None
            for name in ("target_positions", "target_mapping")
        ):
            raise ValueError(
                "`target_ids` need `target_positions` or `target_mapping` to "
                f"say where they stand. Received: {', '.join(batch)}."
            )
        return True

    def predict(self, model, outputs, batch, training=None):
        target_ids = ops.cast(batch["target_ids"], "int32")
        logits = model.logits(outputs["query"])  # [B, P, V]
        correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == target_ids
        return {
            "token_loss": ops.sparse_categorical_crossentropy(
                target_ids, logits, from_logits=True
            ),
            "token_correct": ops.cast(correct, "float32"),
        }

    def terms(self, outputs, batch):
        token_loss = outputs["token_loss"]
        metrics = {
            "loss": token_loss,
            "accuracy": outputs["token_correct"],
            "bits_per_token": token_loss / math.log(2),
        }
        return LossTerms(token_loss, target_weights(batch, token_loss), metrics)
