"""Client of model servers over REST or gRPC, with a time limit and retries.

client = connect("http://localhost:8501/v1/models/mine")
client = connect("grpc://localhost:8500", name="mine")
answer = client.predict({"text": ["The <mask> is open."]})
"""

import itertools
import os
import random
import threading
import time
import urllib.parse
from collections.abc import Iterable
from typing import Any

import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.limits import shown
from saved_models.client.errors import Unavailable

# Seconds before the first retry, and maximum before later retries. Each wait is
# twice the last. A random factor from 0.5 to 1.5 prevents that all clients
# retry at the same time.
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_MAX_REPLY_BYTES = 2**28
# From NumPy's kind of a dtype to (singular, plural) for messages.
_NAMES = {
    "O": ("a text", "texts"),
    "i": ("a whole number", "whole numbers"),
    "u": ("a whole number", "whole numbers"),
    "f": ("a number", "numbers"),
    "b": ("true or false", "true or false"),
}


def connect(
    url: str,
    name: str | None = None,
    timeout: float = 30.0,
    retries: int | None = None,
    ca_file: str | os.PathLike | None = None,
    headers: dict[str, str] | None = None,
    max_reply_bytes: int = _MAX_REPLY_BYTES,
) -> "Client":
    """Make a client of a model server; the first request opens a connection.

    Args:
        url: str, "http://HOST:8501/v1/models/NAME" for REST, optionally with
            "/versions/N", or "grpc://HOST:8500" for gRPC. With TLS, https:// or
            grpcs://.
        name: str, name of the model; only for gRPC.
        timeout: float, maximum seconds for an answer, including all retries.
        retries: int, maximum number of further attempts if the server refuses
            connections or reports that it is unavailable. Default None: retry
            until `timeout`.
        ca_file: str or path of a PEM file with the certificates of trusted
            authorities. Default None: for https:// the system's certificates,
            for grpcs:// the certificates that gRPC contains.
        headers: dict of str to str, headers of each request (in gRPC:
            metadata), such as {"authorization": "Bearer ..."}. Default None.
        max_reply_bytes: int, maximum size of a reply. Default 256 MiB.

    Returns:
        Client.

    Raises:
        ValueError: if an argument is invalid or does not fit the URL.
        FileNotFoundError: if `ca_file` does not exist.
        RuntimeError: if gRPC is used without tensorflow-serving-api installed.

    Example:

    ```python
    import saved_models

    url = "http://localhost:8501/v1/models/mine"
    with saved_models.connect(url, timeout=5.0) as client:
        ...  # client.predict({"text": ["The <mask> is open."]})
    ```
    """
    if not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ValueError(
            "`timeout` must be a number of seconds above 0, and finite. "
            f"Received: timeout={timeout}."
        )
    parts = urllib.parse.urlsplit(url)
    is_safe = parts.scheme in ("https", "grpcs")
    if ca_file is not None:
        if not is_safe:
            raise ValueError(
                "`ca_file` is for https:// and grpcs://. "
                f"Received: url={url!r}."
            )
        if not as_path(ca_file).is_file():
            raise FileNotFoundError(f"there are no certificates at {ca_file}.")
    options = ca_file, headers, max_reply_bytes
    if parts.scheme in ("http", "https") and "/models/" in parts.path:
        from saved_models.client.rest import RestTransport

        return Client(RestTransport(url, *options), timeout, retries)
    if parts.scheme in ("grpc", "grpcs") and parts.netloc and name:
        from saved_models.client.grpc import GrpcTransport

        transport = GrpcTransport(parts.netloc, name, is_safe, *options)
        return Client(transport, timeout, retries)
    raise ValueError(
        "the server must be http://HOST:PORT/v1/models/NAME, or "
        "grpc://HOST:PORT with a name (https:// and grpcs:// with TLS). "
        f"Received: url={url!r}, name={name!r}."
    )


class Client:
    """Client of one model on a server, made by `connect`.

    Args:
        transport: GrpcTransport or RestTransport.
        timeout: float, see `connect`.
        retries: int or None, see `connect`.
    """

    def __init__(self, transport, timeout=30.0, retries=None):
        self._transport = transport
        self._timeout = timeout
        self._retries = retries
        self._signatures = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def signatures(self) -> dict:
        """Request the inputs and outputs of all signatures from the server.

        Returns:
            dict from signature name to (inputs, outputs). Both are dicts from
            name to (NumPy dtype, list of sizes). The size -1 means any size;
            the dtype of strings is object.
        """
        if self._signatures is None:
            self._signatures = self._attempt(self._transport.signatures)
        return self._signatures

    def predict(
        self, inputs: dict[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature on the server.

        Args:
            inputs: dict from input name to array or nested list. Texts are str
                or bytes.
            signature: str.

        Returns:
            dict from output name to NumPy array; texts are str.

        Raises:
            ValueError: if the request has no row, or the server refuses the
                request; the client does not retry.
            TimeoutError: if the answer takes longer than `timeout`; the client
                does not retry.
            ConnectionError: if no attempt reaches the server.
            RuntimeError: if the server fails, or its answer does not match the
                signature.
        """
        known = self.signatures()
        arrays = request_arrays(inputs, known, signature)
        counts = {len(array) for array in arrays.values()}
        if 0 in counts:
            # Refuse a request without rows here, because a server that joins
            # requests may reply late, or exit.
            raise ValueError(
                "a request must have at least one row. Received: 0 rows."
            )
        _, gives = known[signature]

        def send(seconds):
            return self._transport.predict(arrays, signature, gives, seconds)

        answer = self._attempt(send)
        _check_answer(answer, gives, max(counts))
        return as_texts(answer)

    def __call__(
        self, texts: list[str], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature for raw text; `texts` is a list of str."""
        return self.predict({"text": texts}, signature)

    def document(
        self, segments: Iterable[str], signature: str = "document_segment"
    ) -> Iterable[dict]:
        """Read a long document segment by segment.

        Args:
            segments: iterable of str. Each segment must fit into the model's
                sequence length.
            signature: str.

        Yields:
            dict from output name to NumPy array, one dict for each segment.

        Raises:
            ValueError: if a segment has too many tokens.
        """
        takes, _ = self.signatures().get(signature, ({}, {}))
        # If the model lacks this signature, `predict` raises the error.
        memory = {
            name: np.zeros([1, *takes[name][1][1:]], takes[name][0])
            for name in ("memories", "memory_mask")
            if name in takes
        }
        for number, segment in enumerate(segments):
            answer = self.predict({"text": [segment], **memory}, signature)
            dropped = int(answer["dropped_tokens"][0])
            if dropped:
                raise ValueError(
                    f"segment {number} is {dropped} tokens too long; cut the "
                    "document into smaller segments."
                )
            memory = {name: answer[name] for name in memory}
            yield answer

    def _attempt(self, send):
        """Call `send` with the seconds left; retry on `Unavailable`."""
        end = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                return send(max(end - time.monotonic(), 0.001))
            except Unavailable as error:
                # A larger power of two could overflow.
                wait = min(_FIRST_WAIT * 2 ** min(attempt, 30), _LONGEST_WAIT)
                wait *= random.uniform(0.5, 1.5)
                is_last = attempt == self._retries
                if is_last or time.monotonic() + wait >= end:
                    raise ConnectionError(
                        f"{error} Tried {attempt + 1} times."
                    ) from error
                time.sleep(wait)


def _check_answer(answer, gives, rows):
    """Refuse an answer whose arrays do not match the signature."""
    for name, (_, sizes) in gives.items():
        array = answer[name]
        fits = array.ndim == len(sizes) and all(
            fixed in (-1, size)
            for size, fixed in zip(array.shape, sizes, strict=True)
        )
        if not fits or len(array) != rows:
            raise RuntimeError(
                f"the server gave `{name}` in the shape {list(array.shape)}, "
                f"expected {[rows, *sizes[1:]]}, -1 where any."
            )


def inputs_of(signatures, signature):
    """Find the inputs of one signature.

    Args:
        signatures: dict, the result of `Client.signatures`.
        signature: str.

    Returns:
        dict from input name to (NumPy dtype, list of sizes), sorted by name.

    Raises:
        ValueError: if the signature does not exist.
    """
    if signature not in signatures:
        raise ValueError(
            f"the model has no signature {signature!r}; it has "
            f"{', '.join(sorted(signatures))}."
        )
    return dict(sorted(signatures[signature][0].items()))


def request_arrays(inputs, signatures, signature):
    """Convert the inputs of a request to arrays with the signature's dtypes.

    Args:
        inputs: dict from input name to array or nested list. Texts are str or
            bytes.
        signatures: dict, the result of `Client.signatures`.
        signature: str.

    Returns:
        dict from input name to NumPy array. Strings are bytes in object arrays.

    Raises:
        ValueError: if the signature does not exist, or the inputs of the
            request differ from the signature's inputs in name or rank.
    """
    takes = inputs_of(signatures, signature)
    if set(inputs) != set(takes):
        raise ValueError(
            f"the signature {signature!r} takes {', '.join(takes)}. "
            f"Received: {', '.join(sorted(inputs))}."
        )
    return {
        name: input_array(name, inputs[name], dtype, len(sizes))
        for name, (dtype, sizes) in takes.items()
    }


def _described(dtype, rank):
    """Describe the type of an input in words, such as "a list of texts"."""
    one, several = _NAMES[dtype.kind]
    return f"a list of {'lists of ' * (rank - 1)}{several}" if rank else one


def input_array(name, value, dtype, rank):
    """Convert an input to an array.

    Args:
        name: str, name of the input, for messages.
        value: array, nested list or single value. Texts are str or bytes.
        dtype: NumPy dtype of the array; object for texts, which become bytes.
        rank: int, number of the array's axes.

    Returns:
        NumPy array.

    Raises:
        ValueError: if the rank of the value is not `rank`, nested lists differ
            in length, or a value is no text of Unicode characters, is not
            finite, or is outside the range of the dtype.
    """
    expected = f"`{name}` must be {_described(dtype, rank)}"
    try:
        given = np.asarray(value, object if dtype.kind == "O" else None)
        if given.dtype.kind not in "biuf":
            given = np.asarray(value, object)
    except ValueError as error:
        raise ValueError(f"{expected}; its lists differ in length.") from error
    if given.ndim != rank:
        raise ValueError(f"{expected}. Received: {shown(value)}.")
    kind = _texts if dtype.kind == "O" else _numbers
    array, wrong = kind(given, dtype)
    if wrong:
        of = f" of {dtype.name}" if dtype.kind in "iuf" else ""
        raise ValueError(f"{expected}{of}. Received: {shown(wrong[0])}.")
    return array


def _texts(given, dtype):
    """Convert texts to bytes; return the array and values of other types."""
    flat = [_encoded(text) for text in given.reshape(-1).tolist()]
    array = np.empty(len(flat), dtype)
    array[:] = flat
    wrong = [text for text in flat if not isinstance(text, bytes)]
    return array.reshape(given.shape), wrong


def _encoded(text):
    """Encode a str; return all other values and lone surrogates unchanged."""
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        return text


def _numbers(given, dtype):
    """Convert numbers to a dtype; return the array and all unfit values."""
    if dtype.kind == "b" and given.dtype.kind != "b":
        return None, given.reshape(-1).tolist()
    if given.dtype.kind == "O":  # other types, or very large integers
        limits = (np.finfo if dtype.kind == "f" else np.iinfo)(dtype)
        low, high = np.array([limits.min, limits.max]).tolist()
        wrong = [
            x
            for x in given.reshape(-1).tolist()
            if not isinstance(x, (int, float)) or x < low or x > high
        ]
        if wrong:
            return None, wrong
        given = given.astype(float)
    with np.errstate(invalid="ignore", over="ignore"):
        array = given.astype(dtype)
    if dtype.kind == "f":
        is_wrong = ~np.isfinite(array)
    else:
        is_wrong = array != given
    return array, given[is_wrong].tolist()


def as_texts(answer):
    """Convert the byte arrays of an answer to str.

    Args:
        answer: dict from output name to NumPy array.
    """
    decode = np.frompyfunc(lambda text: text.decode(errors="replace"), 1, 1)
    return {
        name: decode(array) if array.dtype == object else array
        for name, array in answer.items()
    }
