"""Pretraining records: sequences of tokens with targets in TFRecord shards."""
