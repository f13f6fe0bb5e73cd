"""Contenders of the benchmarks, a module for each library.

Each function sets up and returns what is timed: a callable without arguments
that comes back when its result is there. Modules import their library at once,
so that memory is counted from there on; `FRAMEWORK` says whose matrix products
a contender is held against.
"""


class NotAvailable(RuntimeError):
    """Error of a contender that lacks something, which the message names."""
