"""An export in this process, with the methods of `client.Client`."""

import contextlib
import os
from typing import Any

import numpy as np

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import local_copy
from data_pipeline.base.urls import UrlPath
from saved_models.client.client import as_texts
from saved_models.client.client import request_arrays
from saved_models.client.errors import InvalidRequest
from saved_models.versions import check_format
from saved_models.versions import latest_version

_WHERE = "\n\t [["  # TensorFlow's messages name the operation after this
# Errors of Python's loader for a SavedModel that is cut off or was changed.
_UNFIT = (
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
)


def load(
    directory: str | os.PathLike, verify: bool = True, trust: bool = False
) -> "Predictor":
    """Load an export into this process.

    Args:
        directory: str or path, NAME (its largest version) or NAME/VERSION;
            local, gs:// or where fsspec finds it.
        verify: bool, whether to compare the files with `SHA256SUMS`. Default
            True.
        trust: bool, whether to run a SavedModel of any operations. It is a
            program, which may read and write files. Default False: only the
            operations of exports of this package.

    Returns:
        Predictor.

    Raises:
        FileNotFoundError: if there is no SavedModel.
        ValueError: if it is damaged, has another version of the format, holds
            other operations, or cannot be loaded.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 26)
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig(26, 1, 2, 8, 8))
    saved_models.export_model(backbone, tokenizer, "tiny/1", memory_length=0)
    embedding = saved_models.load("tiny")(["who sat"])["mean_embedding"]
    ```
    """
    return Predictor(directory, verify, trust)


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


class Predictor:
    """An export in this process.

    Args:
        directory, verify, trust: see `load`.

    Raises:
        FileNotFoundError: if there is no SavedModel.
        ValueError: if it is damaged, has another version of the format, holds
            other operations, or cannot be loaded.
    """

    def __init__(self, directory, verify=True, trust=False):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers SentencePiece's ops

        from saved_models.client.operations import as_checked
        from saved_models.client.operations import check_operations

        path = latest_version(directory)
        if verify:
            verify_checksums(path)
        check_format(path)
        if not trust:
            found = as_checked(check_operations(path), path)
        elif isinstance(path, UrlPath):
            found = local_copy(path)  # TensorFlow cannot read it there
        else:
            found = contextlib.nullcontext(path)
        try:
            with found as local:
                self._loaded = tf.saved_model.load(str(local))
        except (tf.errors.OpError, *_UNFIT) as error:
            raise ValueError(
                f"{path} cannot be loaded as a SavedModel: {error}"
            ) from error

    def __call__(
        self, texts: list[str], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature of raw text on a list of str."""
        return self.predict({"text": texts}, signature)

    def predict(
        self, inputs: dict[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature, as `client.Client.predict` does.

        Args:
            inputs: dict of name to array or nested list; text as str or bytes.
            signature: str.

        Returns:
            dict of output name to NumPy array; texts are str.

        Raises:
            ValueError: if the export has no such signature, or it does not
                take these inputs.
            RuntimeError: if it fails otherwise, such as out of memory.
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
            kind = InvalidRequest if refused else RuntimeError
            # The cause is the last line, below the stack traces.
            message = error.message.split(_WHERE)[0].strip()
            raise kind(message.rsplit("\n", 1)[-1]) from error
        return as_texts(
            {
                name: np.asarray(value.numpy(), value.dtype.as_numpy_dtype)
                for name, value in outputs.items()
            }
        )

    def signatures(self) -> dict:
        """See `client.Client.signatures`."""
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
