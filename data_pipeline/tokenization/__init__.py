"""SentencePiece tokenization, in Python and in the graph."""
