"""Pretraining and fine-tuning runs: settings, steps, checkpoints and logs."""
