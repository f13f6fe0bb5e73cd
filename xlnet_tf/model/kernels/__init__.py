"""Attention kernels: one function, several ways to compute it."""
