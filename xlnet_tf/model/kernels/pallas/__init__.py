"""The kernels of `fused` for a GPU and a TPU, written in JAX's Pallas."""
