"""Loader of SavedModels, and a client that runs them in this process."""

import contextlib
from typing import Any

import numpy as np

from data_pipeline.base.files import local_copy
from data_pipeline.base.urls import UrlPath
from saved_models.client.client import as_texts
from saved_models.client.client import request_arrays
from saved_models.client.errors import InvalidRequest

_WHERE = "\n\t [["  # TensorFlow's messages name the operation after this
# Errors that TensorFlow's loader raises for a truncated or changed SavedModel.
_UNFIT = (
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
)


def add_trust_options(parser):
    """Add `--trust` and `--no-verify` to the options of a command."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run a SavedModel with any operations: it may read and write "
        "files",
    )
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not compare the files of the export with its SHA256SUMS",
    )


def load_saved_model(path, trust=False):
    """Load a SavedModel as a Predictor, after a check of its operations.

    Args:
        path: path of the directory with `saved_model.pb`.
        trust: bool, whether to allow all operations. Default False.

    Returns:
        Predictor.

    Raises:
        ValueError: if the SavedModel cannot be loaded, or `trust` is False and
            the SavedModel has operations that no export of this package has.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers SentencePiece's ops

    from saved_models.client.operations import as_checked
    from saved_models.client.operations import check_operations

    if not trust:
        found = as_checked(check_operations(path), path)
    elif isinstance(path, UrlPath):
        found = local_copy(path)  # a copy, if TensorFlow cannot read the path
    else:
        found = contextlib.nullcontext(path)
    try:
        with found as local:
            loaded = tf.saved_model.load(str(local))
    except (tf.errors.OpError, *_UNFIT) as error:
        raise ValueError(
            f"{path} cannot be loaded as a SavedModel: {error}"
        ) from error
    return Predictor(loaded.signatures, loaded)


class Predictor:
    """Client of an export in this process; see `saved_models.load`.

    Args:
        functions: dict from signature name to concrete function.
        owner: object with the functions' variables; the client keeps a
            reference, so that the variables stay alive.
    """

    def __init__(self, functions, owner):
        self._functions = functions
        self._owner = owner

    def __call__(
        self, texts: list[str], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature for raw text; `texts` is a list of str."""
        return self.predict({"text": texts}, signature)

    def predict(
        self, inputs: dict[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature, like `client.Client.predict`.

        Args:
            inputs: dict from input name to array or nested list. Texts are str
                or bytes.
            signature: str.

        Returns:
            dict from output name to NumPy array; texts are str.

        Raises:
            ValueError: if the export does not have the signature, or the inputs
                do not fit the signature.
            RuntimeError: if the export fails for another reason, such as too
                little memory.
        """
        import tensorflow as tf

        arrays = request_arrays(inputs, self.signatures(), signature)
        tensors = {
            name: tf.constant(
                array, tf.string if array.dtype == object else array.dtype
            )
            for name, array in arrays.items()
        }
        try:
            outputs = self._functions[signature](**tensors)
        except tf.errors.OpError as error:
            refused = isinstance(error, tf.errors.InvalidArgumentError)
            kind = InvalidRequest if refused else RuntimeError
            # The last line of the message, below the stack traces, has the
            # cause.
            message = error.message.split(_WHERE)[0].strip()
            raise kind(message.rsplit("\n", 1)[-1]) from error
        return as_texts(
            {
                name: np.asarray(value.numpy(), value.dtype.as_numpy_dtype)
                for name, value in outputs.items()
            }
        )

    def signatures(self) -> dict:
        """List the signatures; see `client.Client.signatures`."""
        return {
            name: (
                _specs(function.structured_input_signature[1]),
                _specs(function.structured_outputs),
            )
            for name, function in self._functions.items()
        }


def _specs(tensors):
    return {
        name: (
            np.dtype(tensor.dtype.as_numpy_dtype),
            [-1 if size is None else size for size in tensor.shape],
        )
        for name, tensor in tensors.items()
    }
