"""Attention kernels: one function, several ways to compute it.

Every kernel is a function of (AttentionInputs, AttentionRules) and returns the
attended values. `plain` has the equations. All kernels compute the same
numbers, with the same dropout masks; they differ in time and memory.
"""

from xlnet_tf.model.kernels import fused
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain

KERNELS = {
    "plain": plain.attend,
    "memory_efficient": memory_efficient.attend,
    "fused": fused.attend,
}


def check_kernel(name, known=tuple(KERNELS), model=None):
    """Refuse a name that no attention kernel has.

    Args:
        name: str.
        known: names of kernels. Default all.
        model: str, the class of model with these kernels. Default None.

    Raises:
        ValueError: if it is neither "auto" nor one of these.
    """
    if name != "auto" and name not in known:
        names = ", ".join(["auto", *known])
        raise ValueError(
            f"`attention_kernel` must be one of {names}"
            f"{f' for a {model}' if model else ''}. "
            f"Received: attention_kernel={name!r}."
        )


def find_kernel(name):
    """Find an attention kernel by name.

    Args:
        name: str, a name in `KERNELS`, or "auto": `fused` on a TPU, and on a
            GPU with JAX, else `memory_efficient`.

    Returns:
        function, see the module.

    Raises:
        ValueError: if there is no kernel of that name.
    """
    check_kernel(name)
    if name == "auto":
        name = "fused" if fused.has_accelerator() else "memory_efficient"
    return KERNELS[name]


def heads_at_a_time(name, query_shape, num_tokens, num_keys, dtype):
    """Number of heads of an example whose scores are in memory at once.

    Args:
        name: str, of a kernel or "auto".
        query_shape: ints B, N, Q and H.
        num_tokens, num_keys: ints, T and K.
        dtype: str, of the query.

    Returns:
        int, 0 for `fused`, or None for all heads of all examples.
    """
    kernel = find_kernel(name)
    if kernel is plain.attend:
        return None
    if kernel is fused.attend:
        sizes = (query_shape, num_tokens, num_keys, dtype)
        if not fused.why_unsupported(*sizes):
            return 0
    return memory_efficient.heads_at_a_time(*query_shape[:3], num_keys)
