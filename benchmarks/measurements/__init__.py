"""Measurements of the benchmarks, with their sizes and contenders."""
