"""BERT backbone with absolute positions and an optional relative bias."""
