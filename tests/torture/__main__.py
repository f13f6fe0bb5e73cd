"""All fault tests, with counts and a table: `make torture`.

    python -m tests.torture --output runs/torture
    python -m tests.torture --only killed_building --trials 5 --seed 3

Prints a line for each promise that broke, and at the end a table, which goes
to `torture.md` of the output too. The exit status is 1 if one broke.
"""

import argparse
import collections
import importlib
import pathlib
import pkgutil
import random
import sys
import tempfile
import time

from data_pipeline.base import command_line
from data_pipeline.base.files import write_bytes


def kinds():
    """dict of the name of each kind of fault to its module."""
    package = sys.modules[__package__]
    modules = {
        found.name: importlib.import_module(f"{__package__}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
        if found.name != "__main__"
    }
    return {k: v for k, v in modules.items() if hasattr(v, "trials")}


def run_kind(name, module, count, seed):
    """Makes the trials of a kind of fault, and says how far they are.

    Args:
        name: str.
        module: its module.
        count: int, how many trials.
        seed: int.

    Returns:
        dict of label to [trials that held, trials that broke].
    """
    from tqdm import tqdm

    counts = collections.defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        found = module.trials(count, pathlib.Path(folder), random.Random(seed))
        for label, problem in tqdm(found, total=count, desc=name):
            counts[label][problem is not None] += 1
            if problem is not None:
                tqdm.write(f"BROKEN {name}, {label}: {problem}")
    return dict(counts)


def table(results):
    """Markdown of what held.

    Args:
        results: dict of name to (first line of the docstring, dict of label to
            [held, broken], seconds).
    """
    lines = [
        "| promise | done to it | trials | held |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, (promise, counts, seconds) in results.items():
        for label, (held, broken) in sorted(counts.items()):
            lines.append(f"| {promise} | {label} | {held + broken} | {held} |")
        trials = sum(sum(pair) for pair in counts.values())
        held = sum(pair[0] for pair in counts.values())
        lines.append(
            f"| | **{name}**, {seconds / 60:.0f} min | {trials} | {held} |"
        )
    return "\n".join(lines)


def main(argv=None):
    """Run the command; see the module's text."""
    modules = kinds()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--only", nargs="+", choices=modules, default=list(modules))
    add("--trials", type=int, help="of each kind (default: its own number)")
    add("--seed", type=int, default=0)
    add("--output", type=pathlib.Path, default=pathlib.Path("runs/torture"))
    options = parser.parse_args(argv)
    if options.trials is not None and options.trials < 1:
        raise ValueError(
            f"`--trials` must be at least 1, not {options.trials}."
        )
    results = {}
    for name in options.only:
        module, begun = modules[name], time.monotonic()
        count = options.trials or module.TRIALS
        counts = run_kind(name, module, count, options.seed)
        promise = module.__doc__.splitlines()[0]
        results[name] = promise, counts, time.monotonic() - begun
        # After each kind: a later one may be stopped.
        text = table(results)
        write_bytes(options.output / "torture.md", (text + "\n").encode())
    print(f"\n{text}")
    return int(any(pair[1] for x in results.values() for pair in x[1].values()))


if __name__ == "__main__":
    sys.exit(command_line.run(main))
