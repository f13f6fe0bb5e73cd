"""Fault tests: real processes are killed, and real files damaged.

A module is one kind of fault. It has

- a docstring whose first line says what is promised,
- `TRIALS`, int, how many `make torture` makes,
- `trials(count, directory, generator)`, which yields (label, problem) of each:
  a str that says what was done to what, for the summary, and a str that says
  what broke, or None where the promise held. `directory` is an empty one of
  its own, and everything random comes from `generator` (random.Random), so
  that a seed makes the same trials again.

`python -m tests.torture` runs them all (`__main__.py`); tests/slow runs a few
trials of each.
"""
