"""Memory traffic and cycles of a compiled TPU program, from its text.

The compiler's own count of bytes is the sum over the operands and results of
all operations, although many of these arrays are in the chip's vector memory.
This module counts only arrays in the main memory (HBM), with padding, and the
copies between both memories. The compiler estimates the cycles of each fusion.
For reshapes that move data, this estimate is zero, so the sum is a lower bound.
Pallas kernels have no estimate. For these kernels, this module counts the
instruction words in the compiler's dump. The chip issues one word per cycle;
waits for memory are not counted.
"""

import math
import pathlib
import re

_BYTES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("bf16", "f16", "s16", "u16"), 2),
    **dict.fromkeys(("f32", "s32", "u32"), 4),
    **dict.fromkeys(("f64", "s64", "u64"), 8),
}
_TYPE = re.compile(rf"\b({'|'.join(_BYTES)})\[([\d,]*)\](?:\{{([^}}]*)\}})?")
_OPERATION = re.compile(
    r"\s*(?:ROOT )?(%[\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)"
)
# Operations that move no data, or that are counted at their start.
_FREE = {
    *("parameter", "get-tuple-element", "tuple", "bitcast", "constant"),
    *("copy-done", "async-done", "slice-done", "after-all", "partition-id"),
}
_TRANSFERS = {"copy-start", "slice-start", "async-start"}
# Minimum number of instruction words of a body that counts as a branch.
_BRANCH = 100


def traffic(text):
    """Count a program's bytes to and from HBM and its estimated cycles.

    Args:
        text: str, HLO of the compiled and scheduled program.

    Returns:
        dict of `hbm_bytes`, `operation_cycles` and `kernels`. `kernels` is a
        list with (name, shapes of the results) for each call of a Pallas
        kernel.
    """
    entry = text[text.index("\nENTRY") :]
    buffers, found = {}, {"hbm_bytes": 0, "operation_cycles": 0, "kernels": []}
    for line in entry.splitlines()[1:]:
        match = _OPERATION.match(line)
        if not match:
            continue
        name, types, operation, rest = match.groups()
        buffers[name] = [_buffer(x) for x in _TYPE.finditer(types)]
        if operation in _TRANSFERS:
            sizes = [size for size, _ in buffers[name][:2]]
            found["hbm_bytes"] += min(sizes, default=0)
        if operation in _FREE or operation in _TRANSFERS:
            continue
        operands = re.findall(r"%[\w.\-]+", rest.split("), ")[0])
        touched = [*buffers[name]]
        for operand in operands:
            touched += buffers.get(operand, [])
        found["hbm_bytes"] += sum(size for size, is_hbm in touched if is_hbm)
        cycles = re.search(r'estimated_cycles":"(\d+)"', line)
        found["operation_cycles"] += int(cycles[1]) if cycles else 0
        if "tpu_custom_call" in line:
            shapes = re.sub(r"\{[^}]*\}", "", types)
            found["kernels"].append((name.removeprefix("%"), shapes))
    return found


def _buffer(match):
    """Parse an array's type: (bytes with padding, whether it is in HBM)."""
    kind, dimensions, layout = match.groups()
    dimensions = [int(x) for x in dimensions.split(",") if x]
    layout = layout or ""
    tile = re.search(r"T\(([\d,]+)\)", layout)
    order = [int(x) for x in layout.split(":")[0].split(",") if x.isdigit()]
    sizes = [dimensions[place] for place in order] or dimensions[::-1]
    if tile:
        tiles = [int(x) for x in tile[1].split(",")][::-1]
        for place, width in enumerate(tiles[: len(sizes)]):
            sizes[place] = -(-sizes[place] // width) * width
    return _BYTES[kind] * math.prod(sizes), "S(" not in layout


def kernel_cycles(directory, kernels, trips, early_share=0.0):
    """Count the instruction words that a program's Pallas kernels issue.

    Args:
        directory: path of a dump that `--xla_jf_dump_llo_text=true` wrote.
        kernels: list of (name, shapes), from `traffic`.
        trips: list of int, iterations of the two nested loops: the loop over
            the grid, and the loop over blocks of query rows in a grid cell.
        early_share: float, share of the blocks of query rows that attend only
            to the earlier part of the keys.

    Returns:
        float, number of words.
    """
    # Equal kernels are compiled only once, for one of the calls.
    cycles = {}
    for name, shapes in kernels:
        file = _bundles(pathlib.Path(directory), name)
        if file is not None:
            words = _words(file.read_text(), trips, early_share)
            cycles[_kind(name), shapes] = words
    missing = {(_kind(name), shapes) for name, shapes in kernels} - set(cycles)
    if missing:
        raise FileNotFoundError(f"{directory} has no dump of {missing}.")
    return sum(cycles[_kind(name), shapes] for name, shapes in kernels)


def _kind(name):
    return re.sub(r"[.\d]+$", "", name)


def _bundles(directory, name):
    """Find the file with the instruction words of a kernel's call, or None."""
    for file in directory.glob(f"*-{name}-*final_bundles.txt"):
        if "schedule-analysis" not in file.name:
            return file
    return None


def _words(text, trips, early_share):
    """Count issued instruction words; a word counts once per iteration."""
    runs = []
    for match in re.finditer(
        r"(?m)^\s*(?:0x[0-9a-f]+|0)\s+(?:\w\w)?\s*:\s*(>*)", text
    ):
        depth = len(match[1])
        if not runs or runs[-1][0] != depth:
            runs.append([depth, 0])
        runs[-1][1] += 1
    total, branches = 0.0, 0
    for depth, words in runs:
        turns = math.prod(trips[:depth])
        if depth == len(trips) and words > _BRANCH:
            # Two kinds of branches alternate: blocks with early keys, and
            # blocks with all keys.
            turns *= early_share if branches % 2 == 0 else 1 - early_share
            branches += 1
        total += words * turns
    return total
