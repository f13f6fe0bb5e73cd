"""Contenders of the benchmarks, one module or more for each library.

A contender is one implementation of the work that a benchmark measures. Each
function sets up a contender and returns the callable to time. The callable has
no arguments and returns when its result is computed. Each module imports its
library at the top, so that the memory of the imports is measured apart from the
memory of the contender. `FRAMEWORK` is the module's framework, such as "torch".
A contender's speed is compared with the rate of matrix products in this
framework.
"""


class NotAvailable(RuntimeError):
    """Error of a contender that cannot run; the message has the reason."""
