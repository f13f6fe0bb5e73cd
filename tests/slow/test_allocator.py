"""Memory that a process keeps for its next step.

No quick test guards this, because the allocator can only be set for a whole
process.
"""

import os
import platform
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from xlnet_tf import finetune
from xlnet_tf import train

MIB = 2**20
# Pages that the system provides for the second of two equal blocks.
PROGRAM = f"""
import ctypes, os, resource, sys
from xlnet_tf.training.startup import keep_freed_memory

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # few cores
kept = "--keep" in sys.argv and keep_freed_memory()
system = ctypes.CDLL(None)
system.malloc.restype = ctypes.c_void_p
system.malloc.argtypes = [ctypes.c_size_t]
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(system.malloc({256 * MIB}))
    ctypes.memset(block, 1, {256 * MIB})
    system.free(block)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(kept, (after - before) * resource.getpagesize())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is set"
)
def test_memory_is_kept_unless_the_user_decides():
    def second_block(*options, **variables):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *options],
            cwd=ROOT,
            env={**os.environ, **variables},
            check=True,
            capture_output=True,
            encoding="utf-8",
        )
        kept, size = done.stdout.split()
        return kept == "True", int(size) / MIB

    assert second_block()[1] > 200
    kept, size = second_block("--keep")
    assert kept and size < 10
    for name, value in (
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"),
    ):
        kept, size = second_block("--keep", **{name: value})
        assert not kept and size > 200, name


def test_training_commands_keep_memory(monkeypatch):
    for module in (train, finetune):
        calls = []
        monkeypatch.setattr(
            module, "keep_freed_memory", lambda to=calls: to.append("keep")
        )
        monkeypatch.setattr(
            module.command_line, "run", lambda main, to=calls: to.append(main)
        )
        module.command()
        assert calls == ["keep", module.main]
