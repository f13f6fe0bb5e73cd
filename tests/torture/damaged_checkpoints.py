"""A damaged newest checkpoint is named, and the one before is used instead.

Bits are flipped, and files cut, emptied, zeroed in part or removed, of the
newest of three checkpoints and of the file that names it. What is restored is
always one of the three as it was saved; where it is not the newest, a message
names that one. Every second time there are no digests, as after a kill before
they were written; TensorFlow's own have to do then.
"""

import shutil

import numpy as np

from tests.support.checkpoints import TinyRun

TRIALS = 200
_STEPS = (2, 4, 6)


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    run = TinyRun(directory / "saved")
    values = {}
    for step in _STEPS:
        for variable in (*run.model.trainable_variables, *run.memory.memories):
            variable.assign(np.random.RandomState(step).randn(*variable.shape))
        run.pretend(2).checkpoints.save_if_due()
        values[step] = run.values()
    names = sorted(
        x.name
        for x in (directory / "saved").iterdir()
        if "-6" in x.name or x.name == "checkpoint"
    )
    for number in range(count):
        copy = shutil.copytree(directory / "saved", directory / str(number))
        has_digests = bool(number % 2)
        for file in () if has_digests else copy.glob("*.sha256"):
            file.unlink()
        file = copy / generator.choice(
            [x for x in names if (copy / x).exists()]
        )
        damage = generator.choice((_flip, _cut, _empty, _zero, _remove))
        damage(file, generator)
        part = file.name.split(".")[-1] if "memory" not in file.name else "npz"
        label = f"{damage.__doc__} of {part.split('-')[0]}"
        label += "" if has_digests else ", no digests"
        yield label, _problem(run, copy, values)
        shutil.rmtree(copy)


def _problem(run, directory, values):
    """What is wrong with what a run restores, or None."""
    checkpoints = run.checkpoints_of(directory)
    run.step.assign(0)
    try:
        found = checkpoints.restore()
    except Exception as error:
        return f"it ends with {type(error).__name__}: {str(error)[:200]}"
    if found is None:
        return "it starts afresh"
    step = int(found.rsplit("-", 1)[1])
    if step != _STEPS[-1] and not any(
        "ckpt-6" in x for x in checkpoints.skipped
    ):
        return f"step {step} is used and nothing said"
    for one, other in zip(values[step], run.values(), strict=True):
        if not np.array_equal(one, other):
            return f"other values than those of step {step}"
    return None


def _flip(file, generator):
    """a flipped bit"""
    data = bytearray(file.read_bytes())
    data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    file.write_bytes(bytes(data))


def _cut(file, generator):
    """a cut"""
    data = file.read_bytes()
    file.write_bytes(data[: generator.randrange(len(data))])


def _empty(file, generator):
    """an empty file"""
    file.write_bytes(b"")


def _zero(file, generator):
    """zeroed bytes"""
    data = bytearray(file.read_bytes())
    place = generator.randrange(len(data))
    size = min(generator.choice((16, 512, 4096)), len(data) - place)
    data[place : place + size] = bytes(size)
    file.write_bytes(bytes(data))


def _remove(file, generator):
    """a missing file"""
    file.unlink()
