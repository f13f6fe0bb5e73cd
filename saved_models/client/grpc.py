"""Transport of `Client` over TensorFlow Serving's gRPC API.

The transport needs the stubs of tensorflow-serving-api. In this module,
`import grpc` imports Google's package of the same name.
"""

import numpy as np

from data_pipeline.base.files import as_path
from saved_models.client.errors import InvalidRequest
from saved_models.client.errors import Unavailable

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # Only `Client` retries, because it has the time limit.
    ("grpc.enable_retries", 0),
    # While a channel waits to connect again, it fails each request at once. So
    # this wait stays below the longest wait of `Client`.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class GrpcTransport:
    """Channel to one model on a server.

    Args:
        target: str, "HOST:PORT".
        name: str, name of the model.
        is_safe: bool, whether to use TLS.
        ca_file: str or path of a PEM file with certificates. None: the
            certificates that gRPC contains.
        headers: dict of str to str, metadata of each request.
        max_reply_bytes: int, maximum size of a reply; larger replies are
            refused.

    Raises:
        RuntimeError: if tensorflow-serving-api is not installed.
    """

    def __init__(
        self,
        target,
        name,
        is_safe=False,
        ca_file=None,
        headers=None,
        max_reply_bytes=2**28,
    ):
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise RuntimeError(
                "gRPC needs tensorflow-serving-api: pip install "
                "'tensorflow-serving-api>=2.20,<2.21', or ask over http://."
            ) from error
        self._name = name
        self._target = target
        self._scheme = "grpcs" if is_safe else "grpc"
        self._metadata = [
            (key.lower(), value) for key, value in (headers or {}).items()
        ]
        # The memories of a document exceed gRPC's default limit of 4 MB.
        limit = ("grpc.max_receive_message_length", max_reply_bytes)
        options = [limit, *_OPTIONS]
        if is_safe:
            roots = as_path(ca_file).read_bytes() if ca_file else None
            self._channel = grpc.secure_channel(
                target, grpc.ssl_channel_credentials(roots), options=options
            )
        else:
            self._channel = grpc.insecure_channel(target, options=options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            self._channel
        )

    def close(self):
        """Close the channel."""
        self._channel.close()

    def signatures(self, timeout):
        """Request the signatures; see `Client.signatures`."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = self._name
        request.metadata_field.append("signature_def")
        reply = self._call(self._stub.GetModelMetadata, request, timeout)
        found = get_model_metadata_pb2.SignatureDefMap()
        reply.metadata["signature_def"].Unpack(found)
        return {
            name: (_specs(entry.inputs), _specs(entry.outputs))
            for name, entry in found.signature_def.items()
            if not name.startswith("__")
        }

    def predict(self, inputs, signature, gives, timeout):
        """Run a signature; see `Client.predict`."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._name
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            dtype = tf.string if array.dtype == object else array.dtype
            request.inputs[name].CopyFrom(
                tf.make_tensor_proto(array, dtype, array.shape)
            )
        reply = self._call(self._stub.Predict, request, timeout)
        missing = set(gives) - set(reply.outputs)
        if missing:
            raise RuntimeError(
                f"{self._scheme}://{self._target} gave other outputs than its "
                f"signature {signature!r} has: {', '.join(gives)}."
            )
        return {name: tf.make_ndarray(reply.outputs[name]) for name in gives}

    def _call(self, method, request, timeout):
        import grpc

        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), " ".join(error.details().split())
            url = f"{self._scheme}://{self._target}"
            message = f"{url}: {code.name}: {details[:500]}"
            if code == grpc.StatusCode.UNAVAILABLE:
                raise Unavailable(message) from error
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(
                    f"{url} gave no answer within {timeout:.1f} s."
                ) from error
            if code == grpc.StatusCode.INVALID_ARGUMENT:
                raise InvalidRequest(message) from error
            refused = (
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.OUT_OF_RANGE,
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
            )
            kind = ValueError if code in refused else RuntimeError
            raise kind(message) from error


def _specs(tensors):
    import tensorflow as tf

    return {
        name: (
            np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype),
            [dimension.size for dimension in tensor.tensor_shape.dim],
        )
        for name, tensor in tensors.items()
    }
