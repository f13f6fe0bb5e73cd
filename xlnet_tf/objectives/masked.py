"""Masked language modelling, as in BERT: prediction of hidden tokens.

Shapes: B batch, T tokens, P targets, D model dim.
"""

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import needs_positions
from xlnet_tf.objectives.objective import without_targets
from xlnet_tf.tasks.heads import rows_at


class Masked(TokenPrediction):
    """Objective: predict the hidden tokens of a text, as BERT does.

    The batch has the positions of the targets in `target_positions` int [B, P].
    At these positions `token_ids` contains <mask>, another token or the true
    token. The labels are `target_ids` and `target_weights` [B, P]. For the
    outputs see `TokenPrediction`. The backbone computes only the content
    stream. Targets are predicted independently of each other.

    With BertBackbone this is BERT's objective. With XLNetBackbone this is
    "DAE + Transformer-XL" in the ablation of https://arxiv.org/abs/1906.08237.

    Source: https://arxiv.org/abs/1810.04805.

    Example:

    ```python
    import numpy as np
    from xlnet_tf.objectives import Masked
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    model = xlnet_tf.XLNetPretrainer(backbone, objective=Masked())
    ids, at = np.array([[17, 6, 4, 3]]), np.array([[1]])
    model(dict(token_ids=ids, target_positions=at, target_ids=at * 23))["loss"]
    ```
    """

    name = "masked"
    streams = "both"
    reads_query = False
    config_values = {"attention_type": "bidirectional"}

    def has_labels(self, batch):
        return needs_positions(batch)

    def features(self, batch):
        return without_targets(batch)

    def rows(self, outputs, batch):
        return rows_at(outputs["content"], batch["target_positions"])
