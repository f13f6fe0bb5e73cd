"""Parts of every run: directory, checkpoints, progress, stopping, failures."""
