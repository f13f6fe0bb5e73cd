"""Base of tasks that predict tokens of the vocabulary.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary.
"""

from xlnet_tf.tasks.task import Task


class LanguageModelTask(Task):
    """Base of tasks that predict tokens at `target_positions` [B, P].

    The head is a `LanguageModelHead`.
    """

    new_head_arguments = ("has_transform",)

    def input_signature(self):
        features = super().input_signature()
        return {**features, "target_positions": features["token_ids"]}

    def logits(self, stream):
        """Compute the logits of all tokens of the vocabulary.

        Args:
            stream: float tensor of shape [B, P, D], rows of the backbone's
                outputs.

        Returns:
            float32 tensor of shape [B, P, V], unnormalised.
        """
        return self.head(stream, self.backbone.token_table())

    def get_config(self):
        return {
            **super().get_config(),
            "has_transform": self.head.has_transform,
            "transform_gelu": self.head.transform_gelu,
        }
