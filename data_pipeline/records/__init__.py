"""Pretraining records: sequences, targets, TFRecord shards."""
