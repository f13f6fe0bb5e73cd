"""Memory that glibc's allocator keeps for the next step.

A step allocates the same large tensors as the one before. By default, glibc
returns each of them to the system when it is freed, and the system clears all
of its pages again when the next step asks for them.

Only the main heap can keep large tensors, so few heaps are allowed. With a
single one, the threads that compile would wait for each other. On machines with
many cores, glibc's own heaps per thread are left as they are.
"""

import ctypes
import os
import platform

from data_pipeline import command_line

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_MAX_CORES = 8
_MOST_HEAPS = 4
_VARIABLES = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def keep_freed_memory():
    """Let this process keep memory that it has freed, for its next step.

    Call it before threads are started, so before TensorFlow is imported. Does
    nothing without glibc, on more than eight cores, or if the user has set one
    of these options of the allocator by an environment variable.

    Returns:
        bool, whether the allocator was told so.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    if command_line.available_cores() > _MAX_CORES:
        return False
    chosen = any(name in os.environ for name in _VARIABLES)
    chosen |= "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    if chosen:
        return False
    mallopt = ctypes.CDLL(None).mallopt
    options = (
        (_M_ARENA_MAX, _MOST_HEAPS),
        (_M_MMAP_MAX, 0),  # no blocks apart from the heaps
        (_M_TRIM_THRESHOLD, -1),  # which never shrink
    )
    return all([mallopt(option, value) for option, value in options])
