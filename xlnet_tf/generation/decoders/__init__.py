"""Incremental forward passes, by the row that predicts the next token."""

from xlnet_tf.generation.decoders.bert import BertDecoder
from xlnet_tf.generation.decoders.xlnet import XLNetDecoder

# By `Objective.next_token`, the row that predicts the next token.
DECODERS = {
    "query": XLNetDecoder,
    "content": XLNetDecoder,
    "pseudo": BertDecoder,
}


def make_decoder(model):
    """The decoder of a model.

    Args:
        model: XLNetPretrainer.

    Returns:
        Decoder.

    Raises:
        ValueError: if the objective of the model predicts no next token.
    """
    objective = model.objectives[0]
    if objective.next_token is None:
        raise ValueError(
            f"a model of the objective {objective.name!r} cannot generate: it "
            "does not learn to predict a next token. Train one with "
            "--objective permutation, causal or pseudo_masked."
        )
    return DECODERS[objective.next_token](model)
