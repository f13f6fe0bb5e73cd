"""Preprocessors, which convert raw strings to features; one for each task."""
