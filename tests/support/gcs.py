"""Local server that TensorFlow's client uses as Google Cloud Storage.

The client connects by TLS to www.googleapis.com and storage.googleapis.com, and
no option changes these hosts. But its HTTP library reads environment variables
for a proxy and a trusted certificate. The server here is this proxy; it ends
the TLS connection itself, with this certificate.
"""

import contextlib
import http.server
import json
import pathlib
import re
import ssl
import subprocess
import threading
import time
import urllib.parse

_HOSTS = ("www.googleapis.com", "storage.googleapis.com")
_UPLOAD = "/upload/storage/v1/b/"
_OBJECTS = re.compile(r"/storage/v1/b/([^/]+)(/o(?:/([^/]+)(/.*)?)?)?$")


class Bucket:
    """Files of a bucket, and all requests for these files.

    Attributes:
        name: str.
        files: dict of str to bytes.
        requests: list of str, method and address of every request.
        outage: str or None. The first upload whose address contains it starts
            an outage of the bucket.
        is_down: bool, whether all requests get the status 503.
    """

    def __init__(self, name):
        self.name = name
        self.files = {}
        self.requests = []
        self.outage = None
        self.is_down = False
        self._times = {}
        self._uploads = {}
        self._lock = threading.Lock()

    def put(self, name, data):
        with self._lock:
            self.files[name] = data
            self._times[name] = time.time_ns()

    def facts(self, name):
        """Name, size and times of a file, dict."""
        time_ns = self._times[name]
        whole = time.strftime(
            "%Y-%m-%dT%H:%M:%S", time.gmtime(time_ns // 10**9)
        )
        return {
            "name": name,
            "size": str(len(self.files[name])),
            "generation": str(time_ns),
            "updated": f"{whole}.{time_ns // 10**6 % 1000:03d}Z",
        }

    def fails(self, request):
        """Record a request; return whether it must fail."""
        self.requests.append(request)
        is_upload = request.startswith("POST")
        if is_upload and self.outage and self.outage in request:
            self.outage, self.is_down = None, True
        return self.is_down

    def listing(self, query):
        """A page of the files and folders that a query selects, dict."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        begin = query.get("pageToken", "")
        most = int(query.get("maxResults", 1000))
        page = {"items": [], "prefixes": []}
        for name in sorted(self.files):
            if not name.startswith(prefix) or name <= begin:
                continue
            first, slash, _ = name[len(prefix) :].partition(delimiter or "\0")
            if not slash:
                page["items"].append(self.facts(name))
            elif prefix + first + slash not in page["prefixes"]:
                page["prefixes"].append(prefix + first + slash)
            if len(page["items"]) == most:
                return {**page, "nextPageToken": name}
        return page

    def upload(self, name):
        """Begin an upload; return its number, str."""
        with self._lock:
            number = str(len(self._uploads))
            self._uploads[number] = name
            return number

    def finish(self, number, data):
        self.put(self._uploads[number], data)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Handler of the client's requests; all other requests get status 501."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a request takes 40 ms
    bucket = None
    context = None

    def log_message(self, *args):
        pass

    def do_CONNECT(self):
        host = self.path.partition(":")[0]
        if host not in _HOSTS:
            self.send_error(403)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        self.connection = self.context.wrap_socket(
            self.connection, server_side=True
        )
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")
        self.host, self.close_connection = host, False

    def handle_expect_100(self):
        going_on = super().handle_expect_100()
        self.wfile.flush()  # else the client waits for a second
        return going_on

    def finish(self):
        super().finish()
        self.connection.close()  # by TLS another one than was accepted

    def _answer(self, status=200, body=b"", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _serve(self):
        bucket = self.bucket
        body = self._body()
        if bucket.fails(f"{self.command} {self.path}"):
            self._answer(503)
            return
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if self.host == "storage.googleapis.com":
            self._read(url.path)
        elif url.path.startswith(_UPLOAD):
            self._upload(query, body)
        else:
            self._object(url.path, query)

    do_GET = do_PUT = do_POST = do_DELETE = _serve

    def _read(self, path):
        _, bucket, name = urllib.parse.unquote(path).split("/", 2)
        data = self.bucket.files.get(name)
        if bucket != self.bucket.name or data is None:
            self._answer(404)
            return
        wanted = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = map(int, wanted.groups()) if wanted else (0, len(data))
        if wanted and begin >= len(data):
            self._answer(416)
            return
        part = data[begin : end + 1]
        place = f"bytes {begin}-{begin + len(part) - 1}/{len(data)}"
        if wanted:
            self._answer(206, part, Content_Range=place)
        else:
            self._answer(200, part)

    def _upload(self, query, body):
        if query.get("uploadType") == "media":
            self.bucket.put(query["name"], body)
            self._answer(200, {})
        elif self.command == "POST":
            number = self.bucket.upload(query["name"])
            place = f"https://{self.host}{_UPLOAD}{self.bucket.name}/o"
            self._answer(Location=f"{place}?upload_id={number}")
        elif re.match(r"bytes \*/[1-9]", self.headers["Content-Range"] or ""):
            self._answer(308)  # nothing of it has arrived
        else:
            self.bucket.finish(query["upload_id"], body)
            self._answer(200, {})

    def _object(self, path, query):
        found = _OBJECTS.match(path)
        bucket, is_object, name, rest = found.groups() if found else [None] * 4
        files = self.bucket.files
        name = urllib.parse.unquote(name or "")
        if bucket != self.bucket.name or name and name not in files:
            self._answer(404)
        elif not is_object:
            self._answer(200, {"name": bucket})
        elif not name:
            self._answer(200, self.bucket.listing(query))
        elif self.command == "DELETE":
            del files[name]
            self._answer(204)
        elif (rest or "").startswith("/rewriteTo/"):
            target = urllib.parse.unquote(rest.rpartition("/o/")[2])
            self.bucket.put(target, files[name])
            self._answer(200, {"done": True})
        elif rest:
            self._answer(501)
        else:
            self._answer(200, self.bucket.facts(name))


@contextlib.contextmanager
def serving(name, directory):
    """Serve an empty bucket.

    Args:
        name: str, name of the bucket.
        directory: path where the certificate is written.

    Yields:
        Bucket, and a dict of environment variables that make processes use this
        server in place of Google's.
    """
    directory = pathlib.Path(directory)
    key, file = directory / "key.pem", directory / "googleapis.pem"
    names = ",".join(f"DNS:{host}" for host in _HOSTS)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
        + ["-days", "2", "-subj", "/CN=test", "-keyout", key, "-out", file]
        + ["-addext", f"subjectAltName={names}"],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    bucket = Bucket(name)
    handler = type(
        "Handler", (_Handler,), {"bucket": bucket, "context": context}
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    proxy = f"http://127.0.0.1:{server.server_address[1]}"
    variables = {
        "https_proxy": proxy,
        "no_proxy": "",
        "CURL_CA_BUNDLE": str(file),
        "NO_GCE_CHECK": "true",  # asks no machine of Google for credentials
    }
    try:
        yield bucket, variables
    finally:
        server.shutdown()
        server.server_close()
