"""The TPU compiler, which runs without a TPU, and its programs."""
