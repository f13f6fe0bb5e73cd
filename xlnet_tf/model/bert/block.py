"""Layer of BERT.

Shapes: B batch, T tokens, D model dim.
"""

from xlnet_tf.model.bert.attention import BertAttention
from xlnet_tf.model.block import PostNormBlock


class BertBlock(PostNormBlock):
    """Layer of BERT: attention, then a feed-forward, with post-norm.

    Args:
        config: BertConfig.

    Call arguments:
        rows: float tensor of shape [B, T, D].
        attention_mask, position_bias, observe: see `BertAttention`.
        seeds: int tensor of shape [4, 2], the layer's seeds from
            `seeds_of_layers`, or None for no dropout.

    Returns:
        float tensor of shape [B, T, D].

    Source: `transformer_model` of https://github.com/google-research/bert.
    """

    def __init__(self, config, **kwargs):
        attention = BertAttention(
            config.num_heads,
            config.head_dim,
            config.hidden_dim,
            dropout=config.attention_dropout,
            initializer_range=config.initializer_range,
            dtype=kwargs.get("dtype"),
            name="attention",
        )
        super().__init__(config, attention, **kwargs)

    def call(
        self,
        rows,
        attention_mask=None,
        position_bias=None,
        seeds=None,
        observe=None,
    ):
        attended = self.attention(
            rows,
            attention_mask=attention_mask,
            position_bias=position_bias,
            seed=None if seeds is None else seeds[0],
            observe=observe,
        )
        return self.finish(rows, attended, seeds)
