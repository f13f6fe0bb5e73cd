"""Compilation for a TPU, without a TPU; traffic and cycles of programs."""
