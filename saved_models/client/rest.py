"""Transport of `Client` over TensorFlow Serving's REST API."""

import base64
import urllib.request

import numpy as np
import urllib3
from urllib3 import exceptions

from saved_models.client.errors import Unavailable

_DTYPES = {
    "DT_FLOAT": np.dtype("float32"),
    "DT_INT32": np.dtype("int32"),
    "DT_INT64": np.dtype("int64"),
    "DT_BOOL": np.dtype("bool"),
    "DT_STRING": np.dtype(object),
}


class RestTransport:
    """Connections to one model's URL.

    Args:
        url: str, "http://HOST:PORT/v1/models/NAME".
    """

    def __init__(self, url):
        self._url = url.rstrip("/")
        self._pool = _pool(self._url)

    def close(self):
        """Close the connections."""
        self._pool.clear()

    def signatures(self, timeout):
        """See `Client.signatures`."""
        reply = self._send("GET", f"{self._url}/metadata", None, timeout)
        try:
            found = reply["metadata"]["signature_def"]["signature_def"]
            return {
                name: (_specs(entry["inputs"]), _specs(entry["outputs"]))
                for name, entry in found.items()
                if not name.startswith("__")
            }
        except (KeyError, TypeError) as error:
            raise RuntimeError(
                f"{self._url}/metadata is not TensorFlow Serving's."
            ) from error

    def predict(self, inputs, signature, gives, timeout):
        """Send arrays by columns; see `Client.predict`."""
        body = {
            "signature_name": signature,
            "inputs": {name: _to_json(array) for name, array in inputs.items()},
        }
        reply = self._send("POST", f"{self._url}:predict", body, timeout)
        if not isinstance(reply, dict) or "outputs" not in reply:
            raise RuntimeError(f"{self._url} gave no outputs.")
        outputs = reply["outputs"]
        if len(gives) == 1:  # a single one has no name
            outputs = {next(iter(gives)): outputs}
        return {
            name: _from_json(outputs[name], dtype, shape)
            for name, (dtype, shape) in gives.items()
        }

    def _send(self, method, url, body, timeout):
        try:
            # `Client` retries, over REST and gRPC alike, within one time limit.
            reply = self._pool.request(
                method, url, json=body, timeout=timeout, retries=False
            )
        except exceptions.NewConnectionError as error:
            cause = error.__cause__ or error
            is_away = isinstance(cause, ConnectionRefusedError)
            kind = Unavailable if is_away else ConnectionError
            raise kind(f"{url} cannot be reached: {cause}.") from error
        except exceptions.TimeoutError as error:
            raise TimeoutError(
                f"{url} gave no answer within {timeout:.1f} s."
            ) from error
        except exceptions.HTTPError as error:
            raise ConnectionError(
                f"{url} broke the connection off: {error}."
            ) from error
        if reply.status != 200:
            kind = Unavailable if reply.status >= 500 else ValueError
            raise kind(f"{url}: {reply.status}: {_message(reply)}")
        try:
            return reply.json()
        except ValueError as error:
            raise RuntimeError(f"{url} did not answer in JSON.") from error


def _pool(url):
    """A pool of connections, through the proxy of the environment if any."""
    parts = urllib3.util.parse_url(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.host):
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _message(reply):
    try:
        content = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        content = reply.data.decode(errors="replace")
    return " ".join(str(content).split())[:500]


def _specs(tensors):
    specs = {}
    for name, tensor in tensors.items():
        sizes = tensor["tensor_shape"].get("dim", [])
        specs[name] = (
            _DTYPES[tensor["dtype"]],
            [int(size["size"]) for size in sizes],
        )
    return specs


def _to_json(value):
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _from_json(value, dtype, shape):
    if dtype.kind != "O":
        array = np.asarray(value, dtype)
    else:
        array = np.asarray(_to_bytes(value), object)
    if not array.size:
        # The sizes inside of JSON's empty lists are unknown.
        sizes = [*array.shape, *[0] * len(shape)][: len(shape)]
        sizes = [
            size if fixed < 0 else fixed
            for size, fixed in zip(sizes, shape, strict=True)
        ]
        return np.empty(sizes, dtype)
    return array


def _to_bytes(value):
    if isinstance(value, list):
        return [_to_bytes(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode()
