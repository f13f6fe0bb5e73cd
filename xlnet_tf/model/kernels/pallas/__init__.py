"""Fused attention kernels for GPUs and TPUs, written in JAX's Pallas."""
