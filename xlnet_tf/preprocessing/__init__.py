"""Raw strings to features, one preprocessor a task."""
