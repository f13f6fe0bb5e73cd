"""TensorFlow Text's SentencePiece with a model that lasts.

TensorFlow Text lets the kernel that made the model own it, and TensorFlow drops
all kernels when a random seed is set (`tf.random.set_seed`,
`keras.utils.set_random_seed`): after that every call failed with "Resource ...
SentencepieceOp ... does not exist". A model with a name of its own is kept.
"""

import hashlib

import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer


class _NamedModel(sentencepiece_tokenizer._SentencepieceModelResource):
    """The model under the name of its content: equal ones are one."""

    def _create_resource(self):
        name = hashlib.sha256(self._model).hexdigest()
        with tf.name_scope("SentenceTokenizerInitializer"):
            operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
            return operations.sentencepiece_op(
                model=self._model, shared_name=f"sentencepiece_{name}"
            )


def sentencepiece_in_graph(model_proto, out_type):
    """TensorFlow Text's tokenizer of a model.

    Args:
        model_proto: bytes, a SentencePiece model.
        out_type: tf.int32 for ids, tf.string for pieces.

    Returns:
        tensorflow_text.SentencepieceTokenizer.
    """
    tokenizer = tensorflow_text.SentencepieceTokenizer(
        model=model_proto, out_type=out_type
    )
    # Not documented by TensorFlow Text; a test sets a seed and tokenizes.
    tokenizer._model_resource = _NamedModel(model_proto, None)
    return tokenizer
