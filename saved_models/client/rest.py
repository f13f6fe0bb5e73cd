"""Transport of `Client` over TensorFlow Serving's REST API."""

import base64
import json
import threading
import time
import urllib.parse
import urllib.request

import numpy as np
import urllib3
from urllib3 import exceptions

from data_pipeline.base.files import parse_json
from saved_models.client.errors import InvalidRequest
from saved_models.client.errors import Unavailable

_DTYPES = {
    "DT_FLOAT": np.dtype("float32"),
    "DT_INT32": np.dtype("int32"),
    "DT_INT64": np.dtype("int64"),
    "DT_BOOL": np.dtype("bool"),
    "DT_STRING": np.dtype(object),
}
_CHUNK = 1 << 16
# Status codes after which another attempt may succeed. TensorFlow Serving sends
# 503 (UNAVAILABLE) and 429 (RESOURCE_EXHAUSTED); proxies in front of the server
# also send 502.
_AWAY = (429, 502, 503)
# TensorFlow Serving's status code for INTERNAL, UNIMPLEMENTED and so on.
_FAILED = 500
_INVALID = (400, 413)  # INVALID_ARGUMENT; a proxy's refusal of long requests
_TOO_LATE = 504  # DEADLINE_EXCEEDED


class RestTransport:
    """Connections to the URL of one model.

    Args:
        url: str, "http://HOST:PORT/v1/models/NAME", or https://.
        ca_file: str or path of a PEM file with certificates, for https://.
            None: the system's certificates.
        headers: dict of str to str, headers of each request.
        max_reply_bytes: int, maximum size of a reply; larger replies are
            refused.
    """

    def __init__(self, url, ca_file=None, headers=None, max_reply_bytes=2**28):
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._max_reply_bytes = max_reply_bytes
        self._pool = _pool(self._url, ca_file)

    def close(self):
        """Close the connections."""
        self._pool.clear()

    def signatures(self, timeout):
        """Request the signatures; see `Client.signatures`."""
        reply = self._send("GET", f"{self._url}/metadata", None, timeout)
        try:
            found = reply["metadata"]["signature_def"]["signature_def"]
            return {
                name: (_specs(entry["inputs"]), _specs(entry["outputs"]))
                for name, entry in found.items()
                if not name.startswith("__")
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RuntimeError(
                f"{self._url}/metadata is not TensorFlow Serving's."
            ) from error

    def predict(self, inputs, signature, gives, timeout):
        """Run a signature; see `Client.predict`."""
        body = {
            "signature_name": signature,
            "inputs": {name: _to_json(array) for name, array in inputs.items()},
        }
        reply = self._send("POST", f"{self._url}:predict", body, timeout)
        if not isinstance(reply, dict) or "outputs" not in reply:
            raise RuntimeError(f"{self._url} gave no outputs.")
        outputs = reply["outputs"]
        if len(gives) == 1:  # the server omits a single output's name
            outputs = {next(iter(gives)): outputs}
        try:
            return {
                name: _from_json(outputs[name], dtype, shape)
                for name, (dtype, shape) in gives.items()
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RuntimeError(
                f"{self._url} gave other outputs than its signature "
                f"{signature!r} has: {', '.join(gives)}."
            ) from error

    def _send(self, method, url, body, timeout):
        """Send a request; return the parsed JSON of the reply."""
        exchange = _Exchange(
            self._pool, method, url, body, self._headers, self._max_reply_bytes
        )
        reply, content = exchange.run(timeout)
        if reply.status != 200:
            raise _refusal(url, reply, content)
        try:
            return parse_json(content)
        except (ValueError, RecursionError) as error:
            raise RuntimeError(f"{url} did not answer in JSON.") from error


class _Exchange:
    """One request with its reply, in a thread that can be abandoned.

    The time limit of a socket limits only the wait between two bytes. Without
    the thread, the client would wait for ever for a server that keeps sending
    single bytes.
    """

    def __init__(self, pool, method, url, body, headers, max_bytes):
        self._request = (pool, method, url, body, headers)
        self._url = url
        self._max_bytes = max_bytes
        self._done = threading.Event()
        self._found = None

    def run(self, timeout):
        """Send the request; return the reply and the bytes of the content.

        Raises:
            TimeoutError: if the reply takes longer than `timeout`.
            ConnectionError: if the connection fails or breaks off.
            RuntimeError: if the reply is too large.
        """
        self._end = time.monotonic() + timeout
        threading.Thread(target=self._work, daemon=True).start()
        self._done.wait(timeout)
        if self._found is None or isinstance(self._found, TimeoutError):
            raise TimeoutError(
                f"{self._url} gave no answer within {timeout:.1f} s."
            )
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    def _work(self):
        try:
            self._found = self._ask()
        except Exception as error:  # noqa: BLE001 raised again in `run`
            self._found = error
        self._done.set()

    def _ask(self):
        pool, method, url, body, headers = self._request
        try:
            # No retries here, because `Client` retries for REST and gRPC within
            # one time limit. No redirects, because a redirected POST would
            # become a GET.
            reply = pool.request(
                method,
                url,
                json=body,
                headers=headers,
                timeout=max(self._end - time.monotonic(), 0.001),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._read(reply)
            except BaseException:
                reply.close()
                raise
            reply.release_conn()
            return reply, content
        except exceptions.NewConnectionError as error:
            cause = error.__cause__ or error
            is_away = isinstance(cause, ConnectionRefusedError)
            kind = Unavailable if is_away else ConnectionError
            raise kind(f"{url} cannot be reached: {cause}.") from error
        except exceptions.TimeoutError as error:
            raise TimeoutError from error
        except exceptions.SSLError as error:
            raise ConnectionError(
                f"{url} has no certificate that is trusted: {error}. Give the "
                "authority's with `ca_file` (--ca-file)."
            ) from error
        except exceptions.HTTPError as error:
            raise ConnectionError(
                f"{url} closed the connection: {error}."
            ) from error

    def _read(self, reply):
        parts, size = [], 0
        while part := reply.read(_CHUNK):
            parts.append(part)
            size += len(part)
            if time.monotonic() > self._end:
                raise TimeoutError
            if size > self._max_bytes:
                raise RuntimeError(
                    f"{self._url} gave more than {self._max_bytes} bytes. Ask "
                    "for fewer rows at once, or give a larger "
                    "`max_reply_bytes`."
                )
        return b"".join(parts)


def _refusal(url, reply, content):
    """Make the exception for a failed request.

    Most errors have the same types as in `GrpcTransport`. For
    RESOURCE_EXHAUSTED (429), this function makes `Unavailable`, but
    `GrpcTransport` raises a RuntimeError: gRPC also uses this code for messages
    that are too large, and another attempt would be refused again.
    """
    message = f"{url}: {reply.status}: {_message(content)}"
    if 300 <= reply.status < 400:
        place = reply.headers.get("Location", "elsewhere")
        return ValueError(f"{url} leads to {place}; ask that address.")
    if reply.status in _AWAY:
        return Unavailable(message)
    if reply.status == _TOO_LATE:
        return TimeoutError(message)
    if reply.status >= _FAILED:
        return RuntimeError(message)
    return (InvalidRequest if reply.status in _INVALID else ValueError)(message)


def _pool(url, ca_file):
    """Make a connection pool that uses the environment's proxy, if any."""
    parts = urllib3.util.parse_url(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    options = {"ca_certs": str(ca_file)} if ca_file else {}
    if proxy and not urllib.request.proxy_bypass(parts.host):
        # Other clients also assume http:// if the variable has no scheme.
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if auth := urllib3.util.parse_url(proxy).auth:
            login = base64.b64encode(urllib.parse.unquote(auth).encode())
            options["proxy_headers"] = {
                "proxy-authorization": f"Basic {login.decode()}"
            }
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def _message(content):
    try:
        content = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        content = content.decode(errors="replace")
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
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tolist()
    if isinstance(value, (list, np.ndarray)):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _from_json(value, dtype, shape):
    if dtype.kind != "O":
        array = np.asarray(value)
        kinds = {"f": "iuf", "i": "iu", "u": "iu"}.get(dtype.kind, dtype.kind)
        if array.size and array.dtype.kind not in kinds:
            raise ValueError("other values than numbers of this kind")
        array = array.astype(dtype)
    else:
        array = np.asarray(_to_bytes(value), object)
    if not array.size:
        # An empty JSON list has no inner sizes.
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
