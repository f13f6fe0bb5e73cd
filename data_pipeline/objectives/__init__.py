"""Factorization orders and targets as tensors."""
