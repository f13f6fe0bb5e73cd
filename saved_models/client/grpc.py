"""Transport of `Client` over TensorFlow Serving's gRPC API.

It needs the stubs of tensorflow-serving-api. `import grpc` is absolute: the
package of Google, not this module.
"""

import numpy as np

from saved_models.client.errors import Unavailable

# Memories of a document are larger than gRPC's 4 MB.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # `Client` retries, within its time limit.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
)


class GrpcTransport:
    """A channel to one model.

    Args:
        target: str, "HOST:PORT".
        name: str, the model's name.

    Raises:
        RuntimeError: if tensorflow-serving-api is not installed.
    """

    def __init__(self, target, name):
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise RuntimeError(
                "gRPC needs tensorflow-serving-api: pip install "
                "'xlnet_tf[serving]', or ask over http://."
            ) from error
        self._name = name
        self._target = target
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            self._channel
        )

    def close(self):
        """Close the channel."""
        self._channel.close()

    def signatures(self, timeout):
        """See `Client.signatures`."""
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
        """See `Client.predict`."""
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
        return {name: tf.make_ndarray(reply.outputs[name]) for name in gives}

    def _call(self, method, request, timeout):
        import grpc

        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            code, details = error.code(), " ".join(error.details().split())
            message = f"grpc://{self._target}: {code.name}: {details[:500]}"
            if code == grpc.StatusCode.UNAVAILABLE:
                raise Unavailable(message) from error
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(
                    f"grpc://{self._target} gave no answer within "
                    f"{timeout:.1f} s."
                ) from error
            refused = (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.OUT_OF_RANGE,
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
