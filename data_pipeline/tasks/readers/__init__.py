"""Readers of the published files of tasks."""
