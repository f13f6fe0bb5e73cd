"""Sequence to sequence: the task, and the inputs in which it predicts."""
