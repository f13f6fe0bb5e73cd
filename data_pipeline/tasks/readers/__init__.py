"""Readers of tasks' files in their published layouts."""
