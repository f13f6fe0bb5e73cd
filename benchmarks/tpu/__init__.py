"""Use of the TPU compiler, which needs no TPU, and counts of its programs."""
