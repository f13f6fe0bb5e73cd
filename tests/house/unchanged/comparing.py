"""Records as files, and what differs between two.

A record is a dict of comparison to dict of path to value, which is a str, a
number, None or an array.
"""

import dataclasses
import fnmatch
import hashlib
import json
import math

import numpy as np

_VALUES = "record.json"
_ARRAYS = "arrays.npz"


def save(record, directory):
    """Write a record, with the SHA-256 of the arrays of each comparison."""
    values, arrays = {}, {}
    for name, leaves in sorted(record.items()):
        own = {k: x for k, x in leaves.items() if isinstance(x, np.ndarray)}
        values[name] = {
            "values": {k: x for k, x in leaves.items() if k not in own},
            "sha256 of arrays": digest_of(own),
        }
        arrays |= {f"{name}\n{key}": x for key, x in own.items()}
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(values, indent=1, ensure_ascii=True) + "\n"
    (directory / _VALUES).write_text(text, encoding="utf-8")
    np.savez(directory / _ARRAYS, **arrays)


def load(directory):
    """Read a record."""
    values = json.loads((directory / _VALUES).read_text(encoding="utf-8"))
    record = {name: dict(one["values"]) for name, one in values.items()}
    with np.load(directory / _ARRAYS) as arrays:
        for key in arrays.files:
            name, path = key.split("\n", 1)
            record[name][path] = arrays[key]
    return record


def digest_of(arrays):
    """SHA-256 of arrays in the order of shapes and bytes, without names."""
    parts = sorted(
        (str(x.dtype), x.shape, np.ascontiguousarray(x).tobytes())
        for x in arrays.values()
    )
    digest = hashlib.sha256()
    for dtype, shape, data in parts:
        digest.update(f"{dtype} {shape}\n".encode() + data)
    return digest.hexdigest()


@dataclasses.dataclass
class Expected:
    """Differences that are meant.

    Args:
        lines: lines of PATTERN # REASON. A pattern matches names of
            differences, such as "options/train/--profile", or of comparisons
            with all their differences. Empty lines are left out.
    """

    lines: list

    def __post_init__(self):
        split = (line.partition(" #") for line in self.lines)
        split = ((x.strip(), reason.strip()) for x, _, reason in split)
        self.reasons = {x: reason for x, reason in split if x and x[0] != "#"}
        without = [x for x, reason in self.reasons.items() if not reason]
        if without:
            raise ValueError(f"patterns without a # REASON: {without}")
        self.unused = set(self.reasons)

    def __contains__(self, name):
        found = {x for x in self.reasons if fnmatch.fnmatchcase(name, x)}
        self.unused -= found
        return bool(found)


def differences(old, new, tolerance):
    """What differs in a comparison.

    Args:
        old, new: dicts of path to value.
        tolerance: float, for floating values: absolute, and relative above 1.

    Returns:
        (dict of path to a description, largest difference within the
        tolerance).
    """
    arrays = [
        {k: x for k, x in one.items() if isinstance(x, np.ndarray)}
        for one in (old, new)
    ]
    if any(arrays) and digest_of(arrays[0]) == digest_of(arrays[1]):
        # The same under other names, which have a comparison of their own.
        old = {k: x for k, x in old.items() if k not in arrays[0]}
        new = {k: x for k, x in new.items() if k not in arrays[1]}
    found = {path: "gone" for path in old if path not in new}
    found |= {
        path: f"new: {shown(new[path])}" for path in new if path not in old
    }
    largest = 0.0
    for path in old:
        if path in new:
            distance = _distance(old[path], new[path])
            if distance <= tolerance:
                largest = max(largest, distance)
            else:
                found[path] = f"{shown(old[path])} -> {shown(new[path])}"
                if math.isfinite(distance):
                    found[path] += f", difference {distance:.3g}"
    return found, largest


def shown(value):
    """A value in few characters."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _distance(old, new):
    """Largest difference of floating values; else 0 if equal, or infinity."""
    are_floats = all(
        isinstance(x, float)
        or (isinstance(x, np.ndarray) and x.dtype.kind not in "iubSUO")
        for x in (old, new)
    )
    if not are_floats:
        return 0.0 if np.array_equal(old, new) else math.inf
    first, second = np.asarray(old), np.asarray(new)
    if first.shape != second.shape or first.dtype != second.dtype:
        return math.inf
    if first.tobytes() == second.tobytes():
        return 0.0
    first, second = first.astype("float64"), second.astype("float64")
    with np.errstate(invalid="ignore"):
        apart = np.abs(first - second) / np.maximum(1, np.abs(first))
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    apart = np.where(same, 0.0, apart)
    return math.inf if np.isnan(apart).any() else float(np.max(apart))


def report(old, new, tolerance, expected):
    """Print a line for each comparison, and more for those that differ.

    Args:
        old, new: records.
        tolerance: see `differences`.
        expected: Expected.

    Returns:
        bool, whether nothing differs but what is expected.
    """
    num_different = 0
    for name in sorted(set(old) | set(new)):
        found, largest = differences(
            old.get(name, {}), new.get(name, {}), tolerance
        )
        if name not in new or name not in old:
            found[""] = "gone" if name in old else "new"
        all_expected = name in expected
        meant = {
            path
            for path in found
            if f"{name}/{path}" in expected or all_expected
        }
        say = "equal"
        if largest:
            say = f"equal but for at most {largest:.3g}"
        if found:
            say = f"{len(found)} differences"
            num_different += meant != set(found)
        if meant:
            say += f", {len(meant)} of them expected"
        print(f"{name}: {say}")
        for path in sorted(set(found) - meant):
            print(f"    {path}: {found[path]}")
    for pattern in sorted(expected.unused):
        print(f"expected but not found: {pattern}")
    print(f"{num_different} of {len(set(old) | set(new))} comparisons differ")
    return num_different == 0
