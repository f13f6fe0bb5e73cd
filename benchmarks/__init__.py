"""Benchmarks of this library and its peers on one machine, in one run."""
