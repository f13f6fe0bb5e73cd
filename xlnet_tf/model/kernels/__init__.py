"""Attention kernels: one function, several ways to compute it.

Every kernel is a function of (query, content_bias, position_bias,
segment_difference, key, value, position, rules), as `plain.attend` documents
them, and returns the attended values. All kernels compute the same numbers,
with the same dropout masks; they differ in time and memory.
"""

from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain

KERNELS = {
    "plain": plain.attend,
    "memory_efficient": memory_efficient.attend,
}
# The fastest that computes every case on every backend.
AUTO = "memory_efficient"


def find_kernel(name):
    """Find an attention kernel by name.

    Args:
        name: str, "auto" or a name in `KERNELS`.

    Returns:
        function, see the module.

    Raises:
        ValueError: if there is no kernel of that name.
    """
    name = AUTO if name == "auto" else name
    if name not in KERNELS:
        raise ValueError(
            f"`attention_kernel` must be one of auto, {', '.join(KERNELS)}. "
            f"Received: attention_kernel={name!r}."
        )
    return KERNELS[name]


def heads_at_a_time(name, sizes):
    """Number of heads of an example that a kernel computes at once.

    Args:
        name: str, of a kernel or "auto".
        sizes: ints (B, N, Q, K): batch, heads, rows and keys.

    Returns:
        int, or None for all heads of all examples, whose scores are kept.
    """
    if find_kernel(name) is memory_efficient.attend:
        return memory_efficient.heads_at_a_time(*sizes)
    return None
