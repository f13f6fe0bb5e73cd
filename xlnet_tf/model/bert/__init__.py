"""BERT with absolute positions and, optionally, UniLMv2's relative bias."""
