"""Exports: write them, load them, serve them, ask them.

The names in `__init__.pyi` are imported when they are first used, so that the
commands answer `--help` without loading TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
