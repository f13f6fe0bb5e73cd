"""Contenders of the benchmarks, one module or more for each library.

Each function sets up a contender and returns the callable to time. The callable
has no arguments and returns when its result is computed. Modules import their
library at the top, so that the memory of imports is measured separately.
`FRAMEWORK` is the framework whose rate of matrix products the contender is
compared with.
"""


class NotAvailable(RuntimeError):
    """Error of a contender that cannot run; the message has the reason."""
