"""Compilation for a TPU without a TPU, and figures of compiled programs."""
