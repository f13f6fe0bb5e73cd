"""Warm-up requests, which a server runs before it accepts requests.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of PredictionLog
messages (tensorflow_serving/apis/prediction_log.proto). TensorFlow encodes the
tensors. This module encodes all other fields itself, because
tensorflow-serving-api is an optional dependency. The package
tensorflow-serving-api writes the same bytes.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.records.tfrecord import message_field

DIRECTORY = "assets.extra"
FILE = "tf_serving_warmup_requests"
MAX_REQUESTS = 1000  # limit of TensorFlow Serving

# Field numbers in the protocol buffer messages.
_PREDICT_LOG = 6  # PredictionLog
_REQUEST = 1  # PredictLog
_MODEL_SPEC, _INPUTS = 1, 2  # PredictRequest
_NAME, _SIGNATURE_NAME = 1, 3  # ModelSpec
_KEY, _VALUE = 1, 2  # entry of a map


def write_requests(directory, name, signatures):
    """Write the examples of all signatures as warm-up requests.

    Args:
        directory: path of the SavedModel.
        name: str, name of the model.
        signatures: dict from name to Signature.

    Raises:
        ValueError: if there are more than `MAX_REQUESTS` examples, the limit of
            a server.
    """
    requests = [
        prediction_log(name, signature_name, example)
        for signature_name, signature in signatures.items()
        for example in signature.examples
    ]
    if len(requests) > MAX_REQUESTS:
        raise ValueError(
            f"there are {len(requests)} warm-up requests and TensorFlow "
            f"Serving reads {MAX_REQUESTS}; give fewer buckets, or a smaller "
            "batch."
        )
    (directory / DIRECTORY).mkdir(exist_ok=True)
    file = directory / DIRECTORY / FILE
    with tf.io.TFRecordWriter(str(file)) as writer:
        for request in requests:
            writer.write(request)


def prediction_log(name, signature_name, inputs):
    """Encode one PredictionLog message as bytes.

    Args:
        name: str, name of the model.
        signature_name: str, name of the signature.
        inputs: dict from input name to NumPy array.
    """
    request = message_field(
        _MODEL_SPEC,
        message_field(_NAME, name.encode())
        + message_field(_SIGNATURE_NAME, signature_name.encode()),
    )
    for key in sorted(inputs):
        tensor = tensor_proto(inputs[key]).SerializeToString()
        entry = message_field(_KEY, key.encode())
        entry += message_field(_VALUE, tensor)
        request += message_field(_INPUTS, entry)
    return message_field(_PREDICT_LOG, message_field(_REQUEST, request))


def tensor_proto(array):
    """Make a TensorProto; an array of zeros is stored as one value.

    Args:
        array: NumPy array.

    Returns:
        tensorflow.TensorProto.
    """
    array = np.asarray(array)
    if array.size > 1 and array.dtype.kind in "fi" and not array.any():
        return tf.make_tensor_proto(
            0, dtype=tf.as_dtype(array.dtype), shape=array.shape
        )
    return tf.make_tensor_proto(array)
