"""Comparison of objectives: settings, commands, and table of results."""
