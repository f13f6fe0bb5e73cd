"""Servers on this machine that speak TensorFlow Serving's two APIs.

They are not TensorFlow Serving: the gRPC one is its official stubs, the REST
one its documented format (api_rest.md), each around a SavedModel that is loaded
in this process. They can be told to fail first.
"""

import base64
import concurrent.futures
import contextlib
import http.server
import json
import threading
import time

import numpy as np
import tensorflow as tf

NAME = "tiny"


class Failures:
    """What the next requests get instead of an answer; counts all of them."""

    def __init__(self):
        self.codes, self.seconds, self.count = [], 0, 0

    def next(self):
        """The code to fail with, or None."""
        self.count += 1
        time.sleep(self.seconds)
        return self.codes.pop(0) if self.codes else None


@contextlib.contextmanager
def rest_server(signatures):
    """Gives the model's URL and the Failures of its predictions."""
    failures = Failures()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            if self.path != f"/v1/models/{NAME}/metadata":
                return self._reply(404, {"error": f"no {self.path}"})
            self._reply(200, _metadata(signatures))

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            code = failures.next()
            if code:
                return self._reply(code, {"error": f"told to say {code}"})
            try:
                self._reply(200, _predict(signatures, body))
            except (ValueError, tf.errors.InvalidArgumentError) as error:
                self._reply(400, {"error": str(error)})

        def _reply(self, code, value):
            content = json.dumps(value).encode()
            self.send_response(code)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(content)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield (
            f"http://127.0.0.1:{server.server_port}/v1/models/{NAME}",
            failures,
        )
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
def grpc_server(signatures, directory):
    """As `rest_server`; gives "grpc://HOST:PORT"."""
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
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", failures
    finally:
        server.stop(0).wait()
        pool.shutdown()
