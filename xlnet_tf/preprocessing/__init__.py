"""Preprocessors from raw strings to features, one for each task."""
