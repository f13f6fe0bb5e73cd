"""A contest of contenders in turns, each in a process of its own."""
