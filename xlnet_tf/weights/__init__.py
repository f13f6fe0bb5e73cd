"""Readers and writers of weights: presets and other formats."""
