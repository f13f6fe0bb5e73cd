"""Measurement of contenders that take turns, each in a separate process."""
