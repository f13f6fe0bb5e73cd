"""Rows of the model from token ids, in the graph."""
