"""Programs from end to end, each a command."""
