"""Contest of contenders that run in turns, each in a separate process."""
