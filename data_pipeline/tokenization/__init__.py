"""SentencePiece tokenization, in Python and in TensorFlow graphs."""
