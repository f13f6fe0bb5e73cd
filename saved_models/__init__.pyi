"""Public names, which `__init__.py` imports when they are first used."""

from .client.client import connect as connect
from .export import export_model as export_model
from .loading import load as load
