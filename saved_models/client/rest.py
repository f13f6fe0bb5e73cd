"""TensorFlow Serving's REST API, with Python's own library."""

import base64
import http.client
import json
import urllib.error
import urllib.request

import numpy as np

from saved_models.client.client import Unavailable

_DTYPES = {
    "DT_FLOAT": np.dtype("float32"),
    "DT_INT32": np.dtype("int32"),
    "DT_INT64": np.dtype("int64"),
    "DT_BOOL": np.dtype("bool"),
    "DT_STRING": np.dtype(object),
}


class RestTransport:
    """One model's URL.

    Args:
        url: str, "http://HOST:PORT/v1/models/NAME".
    """

    def __init__(self, url):
        self._url = url.rstrip("/")

    def close(self):
        """Does nothing: each request has a connection of its own."""

    def signatures(self, timeout):
        """See `Client.signatures`."""
        reply = self._send(f"{self._url}/metadata", None, timeout)
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
        """Sends arrays by columns; see `Client.predict`."""
        body = {
            "signature_name": signature,
            "inputs": {name: _to_json(array) for name, array in inputs.items()},
        }
        reply = self._send(f"{self._url}:predict", body, timeout)
        if "outputs" not in reply:
            raise RuntimeError(f"{self._url} gave no outputs.")
        outputs = reply["outputs"]
        if len(gives) == 1:  # a single one has no name
            outputs = {next(iter(gives)): outputs}
        return {
            name: _from_json(outputs[name], dtype, shape)
            for name, (dtype, shape) in gives.items()
        }

    def _send(self, url, body, timeout):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            url, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            message = f"{url}: {error.code}: {_message(error)}"
            if error.code >= 500:
                raise Unavailable(message) from error
            raise ValueError(message) from error
        except TimeoutError as error:
            raise _too_late(url, timeout) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _too_late(url, timeout) from error
            message = f"{url} cannot be reached: {error.reason}."
            if isinstance(error.reason, ConnectionRefusedError):
                raise Unavailable(message) from error
            raise ConnectionError(message) from error
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(
                f"{url} broke the connection off: {error}."
            ) from error
        except ValueError as error:
            raise RuntimeError(f"{url} did not answer in JSON.") from error


def _too_late(url, timeout):
    return TimeoutError(f"{url} gave no answer within {timeout:.1f} s.")


def _message(error):
    content = error.read().decode(errors="replace")
    try:
        content = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        pass
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
        # JSON's empty lists do not say the sizes inside of them.
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
