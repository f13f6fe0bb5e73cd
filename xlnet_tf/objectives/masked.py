"""Masked language modelling, as in BERT: restore replaced tokens.

Shapes: B batch, T tokens, P targets, D model dim.
"""

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import needs_positions
from xlnet_tf.objectives.objective import without_targets
from xlnet_tf.tasks.heads import rows_at


class Masked(TokenPrediction):
    """Predict the hidden tokens of a text.

    At `target_positions` int [B, P], `token_ids` has <mask>, other tokens or
    the true ones; `target_ids` and `target_weights` [B, P] are the labels. For
    the outputs see `TokenPrediction`. Only the content stream is computed.
    Targets are independent of each other.

    On XLNetBackbone it is the "DAE + Transformer-XL" of the ablation in
    https://arxiv.org/abs/1906.08237; on BertBackbone it is BERT's objective.

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
