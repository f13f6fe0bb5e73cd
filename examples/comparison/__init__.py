"""The comparison of objectives: its settings, its commands, its table."""
