"""Readers of the files that tasks are published in."""
