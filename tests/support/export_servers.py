"""Servers on this machine with TensorFlow Serving's two APIs.

The servers are not TensorFlow Serving itself. The gRPC server uses the official
stubs, and the REST server the documented format (api_rest.md). Both call a
SavedModel that is loaded in this process. Tests can make the first requests
fail.
"""

import base64
import concurrent.futures
import contextlib
import datetime
import http.server
import json
import ssl
import threading
import time

import numpy as np
import tensorflow as tf

NAME = "tiny"


class Failures:
    """Failures of the next requests, and the number of all requests."""

    def __init__(self):
        self.codes, self.seconds, self.count = [], 0, 0
        self.authorization = None  # the only one that is accepted

    def next(self):
        """Error code for the next request, or None; counts the request."""
        self.count += 1
        time.sleep(self.seconds)
        return self.codes.pop(0) if self.codes else None


def write_certificate(directory):
    """Write a certificate of "localhost" and its key; return both paths."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")]
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key())
    builder = builder.serial_number(1).add_extension(names, False)
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    paths = directory / "certificate.pem", directory / "key.pem"
    pem = serialization.Encoding.PEM
    certificate = builder.sign(key, hashes.SHA256())
    paths[0].write_bytes(certificate.public_bytes(pem))
    paths[1].write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths


@contextlib.contextmanager
def rest_server(signatures, certificate=None):
    """Serve a model over REST; yield its URL and Failures.

    Args:
        signatures: signatures of a SavedModel.
        certificate: paths of a certificate of "localhost" and of its key, for
            https://, or None.
    """
    failures = Failures()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            if not self._is_known():
                return self._reply(401, {"error": "who are you?"})
            if self.path != f"/v1/models/{NAME}/metadata":
                return self._reply(404, {"error": f"no {self.path}"})
            self._reply(200, _metadata(signatures))

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            if not self._is_known():
                return self._reply(401, {"error": "who are you?"})
            code = failures.next()
            if code:
                return self._reply(code, {"error": f"told to say {code}"})
            try:
                self._reply(200, _predict(signatures, body))
            except (ValueError, tf.errors.InvalidArgumentError) as error:
                self._reply(400, {"error": str(error)})

        def _is_known(self):
            given = self.headers.get("Authorization")
            return failures.authorization in (None, given)

        def _reply(self, code, value):
            content = json.dumps(value).encode()
            self.send_response(code)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(content)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    base = f"http://127.0.0.1:{server.server_port}"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        base = f"https://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{base}/v1/models/{NAME}", failures
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _metadata(signatures):
    def tensors(specs):
        return {
            name: {
                "dtype": f"DT_{tf.as_dtype(spec.dtype).name.upper()}".replace(
                    "FLOAT32", "FLOAT"
                ),
                "tensor_shape": {
                    "dim": [
                        {"size": str(-1 if size is None else size), "name": ""}
                        for size in spec.shape
                    ],
                    "unknown_rank": False,
                },
                "name": f"{name}:0",
            }
            for name, spec in specs.items()
        }

    found = {
        name: {
            "inputs": tensors(function.structured_input_signature[1]),
            "outputs": tensors(function.structured_outputs),
            "method_name": "tensorflow/serving/predict",
        }
        for name, function in signatures.items()
    }
    return {
        "model_spec": {"name": NAME, "signature_name": "", "version": "3"},
        "metadata": {"signature_def": {"signature_def": found}},
    }


def _predict(signatures, body):
    function = signatures[body["signature_name"]]
    specs = function.structured_input_signature[1]
    outputs = function(
        **{
            name: tf.constant(
                _bytes(body["inputs"][name])
                if spec.dtype == tf.string
                else np.array(body["inputs"][name], spec.dtype.as_numpy_dtype),
                spec.dtype,
            )
            for name, spec in specs.items()
        }
    )
    values = {name: _json(x.numpy().tolist()) for name, x in outputs.items()}
    if len(values) == 1:
        (values,) = values.values()
    return {"outputs": values}


def _bytes(value):
    if isinstance(value, list):
        return [_bytes(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode()


def _json(value):
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


@contextlib.contextmanager
def grpc_server(signatures, directory, certificate=None):
    """Same as `rest_server` for "grpc://HOST:PORT", or grpcs:// with TLS."""
    import grpc
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc as service

    failures = Failures()
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((directory / "saved_model.pb").read_bytes())

    class Servicer(service.PredictionServiceServicer):
        def GetModelMetadata(self, request, context):
            if request.model_spec.name != NAME:
                context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
            found = get_model_metadata_pb2.SignatureDefMap()
            for name, entry in saved.meta_graphs[0].signature_def.items():
                found.signature_def[name].CopyFrom(entry)
            reply = get_model_metadata_pb2.GetModelMetadataResponse()
            reply.metadata["signature_def"].Pack(found)
            return reply

        def Predict(self, request, context):
            given = dict(context.invocation_metadata()).get("authorization")
            if failures.authorization not in (None, given):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
            code = failures.next()
            if code:
                context.abort(getattr(grpc.StatusCode, code), f"told: {code}")
            inputs = {
                name: tf.constant(tf.make_ndarray(tensor))
                for name, tensor in request.inputs.items()
            }
            function = signatures[request.model_spec.signature_name]
            try:
                outputs = function(**inputs)
            except tf.errors.InvalidArgumentError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            reply = predict_pb2.PredictResponse()
            for name, value in outputs.items():
                reply.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return reply

    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    pool = concurrent.futures.ThreadPoolExecutor(2)
    server = grpc.server(pool, options=options)
    service.add_PredictionServiceServicer_to_server(Servicer(), server)
    url = "grpc://127.0.0.1"
    if certificate:
        chain, key = (path.read_bytes() for path in certificate)
        credentials = grpc.ssl_server_credentials([(key, chain)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
        url = "grpcs://localhost"
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"{url}:{port}", failures
    finally:
        server.stop(0).wait()
        pool.shutdown()
