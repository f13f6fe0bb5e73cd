"""The kernels of `fused`, written in JAX's Pallas: of a GPU and of a TPU."""
