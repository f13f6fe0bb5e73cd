"""Attention kernels: several ways to compute the same attention.

Every kernel is a function of (AttentionInputs, AttentionRules) that returns the
attended values. `plain` has the equations. All kernels draw the same dropout
masks and compute the same numbers. They differ in time and memory.

Shapes: see `plain`.
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
    """Refuse a name that is not the name of an attention kernel.

    Args:
        name: str.
        known: tuple of str, the accepted names besides "auto". Default: all
            kernels.
        model: str, class of the model that has these kernels, for the error
            message. Default None.

    Raises:
        ValueError: if `name` is neither "auto" nor in `known`.
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
        name: str, a name in `KERNELS`, or "auto". "auto" means `fused` on a TPU
            and on a GPU with JAX, and `memory_efficient` elsewhere.

    Returns:
        function of (AttentionInputs, AttentionRules).

    Raises:
        ValueError: if no kernel has this name.
    """
    check_kernel(name)
    if name == "auto":
        name = "fused" if fused.has_accelerator() else "memory_efficient"
    return KERNELS[name]


def heads_at_a_time(name, query_shape, num_tokens, num_keys, dtype):
    """Number of an example's heads whose scores are in memory at once.

    Args:
        name: str, name of a kernel, or "auto".
        query_shape: tuple of ints, (B, N, Q, H).
        num_tokens, num_keys: ints, T and K.
        dtype: str, type of the query.

    Returns:
        int, 0 if the `fused` kernel runs, which stores no scores [Q, K]. None
        if the scores of all heads of all examples are in memory at once.
    """
    kernel = find_kernel(name)
    if kernel is plain.attend:
        return None
    if kernel is fused.attend:
        sizes = (query_shape, num_tokens, num_keys, dtype)
        if not fused.why_unsupported(*sizes):
            return 0
    return memory_efficient.heads_at_a_time(*query_shape[:3], num_keys)
