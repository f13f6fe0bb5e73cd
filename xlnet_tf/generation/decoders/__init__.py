"""Decoders: incremental forward passes, one class per kind of model."""

from xlnet_tf.generation.decoders.bert import BertDecoder
from xlnet_tf.generation.decoders.xlnet import XLNetDecoder

# From `next_token` of a model's objective to the decoder class.
DECODERS = {
    "query": XLNetDecoder,
    "content": XLNetDecoder,
    "pseudo": BertDecoder,
}


def make_decoder(model):
    """Make the decoder of a model.

    Args:
        model: XLNetPretrainer or XLNetSeq2Seq.

    Returns:
        Decoder.

    Raises:
        ValueError: if the model's objective does not predict a next token.
    """
    if model.next_token is None:
        name = model.objectives[0].name
        raise ValueError(
            f"a model of the objective {name!r} cannot generate: it "
            "does not learn to predict a next token. Train one with "
            "--objective permutation, causal or pseudo_masked."
        )
    return DECODERS[model.next_token](model)
