"""The version, readable without importing Keras."""

__version__ = "1.0.0"
