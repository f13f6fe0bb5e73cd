"""Causal language modelling: prediction of the next token.

Shapes: B batch, T tokens, P targets, D model dim.
"""

from keras import ops

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import without_targets
from xlnet_tf.tasks.heads import rows_at


class Causal(TokenPrediction):
    """Objective: predict the next token from memory and all earlier tokens.

    The backbone computes only the content stream. The backbone's config must
    have the `attention_type` "causal". `same_length` and memory work as in
    Transformer-XL.

    The labels in the batch are `target_ids` (int [B, T], the next token of each
    position) and `target_weights` ([B, T], 0 for positions without a next
    token). For the outputs see `TokenPrediction`.

    Source: https://arxiv.org/abs/1901.02860.

    Example:

    ```python
    from xlnet_tf.objectives import Causal
    config = xlnet_tf.XLNetConfig.from_size("tiny", attention_type="causal")
    backbone = xlnet_tf.XLNetBackbone(config)
    model = xlnet_tf.XLNetPretrainer(backbone, objective=Causal())
    ids = np.array([[17, 23, 4, 3]])
    model(dict(token_ids=ids[:, :-1], target_ids=ids[:, 1:]))["loss"]
    ```
    """

    name = "causal"
    next_token = "content"
    fills_blanks = False
    streams = "both"
    reads_query = False
    config_values = {"attention_type": "causal"}

    def features(self, batch):
        return without_targets(batch)

    def rows(self, outputs, batch):
        if batch.get("target_positions") is None:
            return outputs["content"]
        # The row before a blank predicts the blank. No row precedes the first
        # position, so a blank there is predicted by its own row, a <mask>.
        positions = ops.cast(batch["target_positions"], "int32")
        return rows_at(outputs["content"], ops.maximum(positions - 1, 0))
