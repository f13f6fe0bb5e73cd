"""Exports: write them, load them, serve them, ask them.

Names are imported when they are first used, so that the commands answer
`--help` without loading TensorFlow.
"""

import importlib
import typing

_MODULES = {
    "connect": "client.client",
    "export_model": "export",
    "load": "client.local",
}

# What `__getattr__` gives, for type checkers and editors.
if typing.TYPE_CHECKING:
    from saved_models.client.client import connect as connect
    from saved_models.client.local import load as load
    from saved_models.export import export_model as export_model

__all__ = list(_MODULES)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module 'saved_models' has no attribute {name!r}")
    module = importlib.import_module(f"saved_models.{_MODULES[name]}")
    return getattr(module, name)


def __dir__():
    return sorted({*globals(), *__all__})
