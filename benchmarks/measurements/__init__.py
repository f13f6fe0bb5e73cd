"""Measurements: their names, sizes and contenders."""
