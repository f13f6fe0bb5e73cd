"""Exports of models: write, load, serve and query them.

The names in `__init__.pyi` are imported on first use, so that `--help` of the
commands does not load TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
