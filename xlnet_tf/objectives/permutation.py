"""Permutation language modelling: prediction in a factorization order.

`data_pipeline/objectives/permutation.py` draws the orders. `TokenPrediction`
(`objective.py`) computes the losses, `loss_sums` sums them, and
`XLNetPretrainer.compute_loss` averages them.

Shapes: B batch, T tokens, P targets.
"""

from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import needs_positions


class Permutation(TokenPrediction):
    """Objective: predict each target from all tokens earlier in an order.

    The batch has the factorization order (`factorization_rank` or `perm_mask`)
    and the positions of the targets (`target_positions` or `target_mapping`).
    For the labels and the outputs, see `TokenPrediction`.

    `factorization_rank` can express any order. The ranks 0 to T - 1 express the
    order of the text. With these ranks every content row attends to the same
    tokens as with `Causal`, and the content stream computes the same states.
    The predictions still differ. With `Permutation` the query row at the
    target's position predicts the target. With `Causal` the content row before
    the target predicts the target.

    Source: section 2.3 of https://arxiv.org/abs/1906.08237, and
    `two_stream_loss` of the released code.

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
