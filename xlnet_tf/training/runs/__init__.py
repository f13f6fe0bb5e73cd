"""What all runs share: directory, checkpoints, progress, stopping, failures."""
