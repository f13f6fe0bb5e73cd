"""Permutation language modelling: predict tokens in a factorization order.

The orders are drawn in `data_pipeline/objectives/permutation.py`. The losses
are computed in `TokenPrediction` (`objective.py`), summed by `loss_sums`, and
averaged in `XLNetPretrainer.compute_loss`.

Shapes: B batch, P targets.
"""

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import needs_positions


class Permutation(TokenPrediction):
    """Predict each target from the tokens before it in the order.

    The batch has the order (`factorization_rank` or `perm_mask`), the places
    (`target_positions` or `target_mapping`), and the labels and outputs of
    `TokenPrediction`: `target_ids` and `target_weights`, `token_loss` and
    `token_correct`.

    Ranks can express any order. With `factorization_rank` 0 .. T - 1, the order
    of the text, every row sees the same tokens as with `Causal`, and the
    content stream computes the same states. The predictions still differ: here
    the query row at the target's own position predicts it; with `Causal`, the
    content row before it.

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
    next_token = "query"
    streams = "query"

    def check(self, backbone):
        if not backbone.has_query_stream:
            raise ValueError(
                "the objective 'permutation' needs a backbone with a query "
                "stream, XLNetBackbone. Received: "
                f"backbone={type(backbone).__name__}."
            )

    def has_labels(self, batch):
        return needs_positions(batch)

    def rows(self, outputs, batch):
        return outputs["query"]
