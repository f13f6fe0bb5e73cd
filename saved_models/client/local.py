"""An export in this process, asked as `client.Client` asks a server."""

import numpy as np

from saved_models.client.client import request_arrays
from saved_models.versions import latest_version

_WHERE = "\n\t [["  # after it TensorFlow's messages name the operation


class Predictor:
    """An export in this process.

    Args:
        directory: str or path, with or without the version.

    Raises:
        FileNotFoundError: if there is no SavedModel.
        ValueError: if it cannot be loaded.
    """

    def __init__(self, directory):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers SentencePiece's ops

        path = latest_version(directory)
        try:
            self._loaded = tf.saved_model.load(str(path))
        # TensorFlow turns its error of a file that ends early into IndexError.
        except (tf.errors.OpError, OSError, ValueError, IndexError) as error:
            raise ValueError(
                f"{path} cannot be loaded as a SavedModel: {error}"
            ) from error

    def __call__(self, texts, signature="serving_default"):
        """Runs a signature of raw text on a list of str."""
        return self.predict({"text": texts}, signature)

    def predict(self, inputs, signature="serving_default"):
        """Runs a signature, as `client.Client.predict` does.

        Args:
            inputs: dict of name to array or nested list; text as str or bytes.
            signature: str.

        Returns:
            dict of output name to NumPy array; strings are bytes.

        Raises:
            ValueError: if the export has no such signature, or it does not
                take these inputs.
            RuntimeError: if it fails otherwise, such as for want of memory.
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
            outputs = self._loaded.signatures[signature](**tensors)
        except tf.errors.OpError as error:
            refused = isinstance(error, tf.errors.InvalidArgumentError)
            kind = ValueError if refused else RuntimeError
            # What went wrong is the last line; above it are stack traces.
            message = error.message.split(_WHERE)[0].strip()
            raise kind(message.rsplit("\n", 1)[-1]) from error
        return {name: value.numpy() for name, value in outputs.items()}

    def signatures(self):
        """What the export takes and gives; see `client.Client.signatures`."""
        return {
            name: (
                _specs(function.structured_input_signature[1]),
                _specs(function.structured_outputs),
            )
            for name, function in self._loaded.signatures.items()
        }


def _specs(tensors):
    return {
        name: (
            np.dtype(tensor.dtype.as_numpy_dtype),
            [-1 if size is None else size for size in tensor.shape],
        )
        for name, tensor in tensors.items()
    }
