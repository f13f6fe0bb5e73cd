"""Version of the library, in a module that does not import Keras."""

__version__ = "1.0.0"
