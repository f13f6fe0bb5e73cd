"""Pretraining and fine-tuning runs."""
