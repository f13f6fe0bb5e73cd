"""Causal language modelling: predict the next token, as Transformer-XL does.

Shapes: B batch, T tokens, P targets, D model dim.
"""

from keras import ops

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import without_targets
from xlnet_tf.tasks.heads import rows_at


class Causal(TokenPrediction):
    """Predict the next token from all tokens up to it, and from memory.

    The content stream alone is computed. The config needs `attention_type`
    "causal"; `same_length` and memory work as Transformer-XL has them. The
    batch has `target_ids` int [B, T], the token behind each, and
    `target_weights` [B, T], 0 where there is none; outputs as of
    `TokenPrediction`.

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
        # Blanks to fill in are predicted by the row before them; the first
        # position has none, and is predicted from itself, a <mask>.
        positions = ops.cast(batch["target_positions"], "int32")
        return rows_at(outputs["content"], ops.maximum(positions - 1, 0))
