"""BERT: absolute positions, and UniLMv2's relative bias beside them."""
