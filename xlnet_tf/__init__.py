"""XLNet for TensorFlow and Keras 3.

The names in `__init__.pyi` are imported on first use, so that the commands
print `--help` without loading Keras. Once Keras and xlnet_tf are both imported,
in either order, the classes of xlnet_tf are registered with Keras.
`keras.models.load_model` then finds these classes.
"""

import importlib.util
import os
import sys

import lazy_loader
import wrapt

from xlnet_tf.version import __version__  # noqa: F401


def _check_neighbours():
    """Refuse user files that shadow packages of this project.

    Raises:
        ImportError: if a package is shadowed; the message names the file.
    """
    for name, part in (("data_pipeline", "base"), ("saved_models", "client")):
        spec = importlib.util.find_spec(name)
        folders = spec.submodule_search_locations or () if spec else ()
        if spec and not any(
            os.path.isdir(os.path.join(folder, part)) for folder in folders
        ):
            found = list(folders)[0] if folders else spec.origin
            raise ImportError(
                f"{found} is imported instead of the package {name} of "
                "xlnet_tf: rename it, or start Python in another folder."
            )


_check_neighbours()

_import, __dir__, _NAMES = lazy_loader.attach_stub(__name__, __file__)
__all__ = _NAMES


def __getattr__(name):
    if name not in _NAMES:
        advice = ""
        if name.endswith("Tokenizer"):
            advice = (
                "; the tokenizer is `data_pipeline.Tokenizer`, and a model's "
                "own is `model.preprocessor.tokenizer`"
            )
        raise AttributeError(
            f"module 'xlnet_tf' has no attribute {name!r}{advice}"
        )
    globals()[name] = _import(name)
    if "keras" in sys.modules:
        _import_classes()
    return globals()[name]


def _import_classes():
    """Import every public class; the import registers the class with Keras."""
    for name in _NAMES:
        if name[0].isupper():
            _import(name)


@wrapt.when_imported("keras")
def _register_with_keras(keras):
    ours = [m for n, m in sys.modules.items() if n.startswith("xlnet_tf.")]
    if any(getattr(m.__spec__, "_initializing", False) for m in ours):
        # One of these modules is importing Keras and is still incomplete.
        # `__getattr__`, which is importing this module, then imports all
        # classes.
        return
    _import_classes()
