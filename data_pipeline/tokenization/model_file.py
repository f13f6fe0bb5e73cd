"""SentencePiece model files as protobuf messages.

`ModelProto` has the fields that this library reads or writes. Protobuf keeps
all other fields unchanged. We cannot import sentencepiece's own classes,
because they need a newer protobuf than TensorFlow's packages install.

SentencePiece has no checksum, so it does not detect most flipped bits of a
model. A model trained by this library therefore begins with an extra field, the
SHA-256 of all following bytes. A second extra field stores the setting to keep
accents. Other libraries ignore both fields. Models that other libraries have
trained lack these fields.

Source: `sentencepiece_model.proto` of SentencePiece.
"""

import hashlib

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

# Kinds of pieces in SentencePiece.
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
BYTE = 6

UNIGRAM = 1  # a type of model

# Field numbers in the range that SentencePiece reserves for extensions.
_DIGEST_FIELD, _DIGEST_BYTES = 1000, 32
_ACCENTS_FIELD = 1001
_DIGEST_HEAD = b"\xc2\x3e\x20"  # number, type and length of the field

_PACKAGE = "xlnet_tf.sentencepiece"
_Field = descriptor_pb2.FieldDescriptorProto
# Enumerations are declared as int32. The bytes are the same, and unknown values
# are kept.
_MESSAGES = {
    "SentencePiece": [
        ("piece", 1, _Field.TYPE_STRING, ""),
        ("score", 2, _Field.TYPE_FLOAT, ""),
        ("type", 3, _Field.TYPE_INT32, str(NORMAL)),
    ],
    "TrainerSpec": [
        ("model_type", 3, _Field.TYPE_INT32, str(UNIGRAM)),
        ("vocab_size", 4, _Field.TYPE_INT32, ""),
        ("byte_fallback", 35, _Field.TYPE_BOOL, "false"),
    ],
    "NormalizerSpec": [
        ("name", 1, _Field.TYPE_STRING, ""),
        ("precompiled_charsmap", 2, _Field.TYPE_BYTES, ""),
        ("add_dummy_prefix", 3, _Field.TYPE_BOOL, "true"),
        ("remove_extra_whitespaces", 4, _Field.TYPE_BOOL, "true"),
        ("escape_whitespaces", 5, _Field.TYPE_BOOL, "true"),
    ],
    "ModelProto": [
        ("pieces", 1, "SentencePiece", _Field.LABEL_REPEATED),
        ("trainer_spec", 2, "TrainerSpec", _Field.LABEL_OPTIONAL),
        ("normalizer_spec", 3, "NormalizerSpec", _Field.LABEL_OPTIONAL),
        ("sha256", _DIGEST_FIELD, _Field.TYPE_BYTES, ""),
        ("keep_accents", _ACCENTS_FIELD, _Field.TYPE_BOOL, "false"),
    ],
}


def _make_model_proto():
    file = descriptor_pb2.FileDescriptorProto(
        name="xlnet_tf/sentencepiece.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for name, number, kind, extra in fields:
            field = descriptor.field.add(name=name, number=number)
            if isinstance(kind, str):
                field.label = extra
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
                continue
            field.label = _Field.LABEL_OPTIONAL
            field.type = kind
            if extra:
                field.default_value = extra
    # Use a separate pool, because sentencepiece's own classes may be loaded
    # too.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.ModelProto")
    )


ModelProto = _make_model_proto()


def with_digest(model_proto):
    """Add the field with the SHA-256 at the front of a model.

    Args:
        model_proto: bytes of a model without this field.

    Returns:
        bytes.
    """
    return _DIGEST_HEAD + hashlib.sha256(model_proto).digest() + model_proto


def with_accents(model_proto):
    """Set a model's field `keep_accents` to true; remove the SHA-256 field.

    Args:
        model_proto: bytes.

    Returns:
        bytes.
    """
    model = ModelProto.FromString(model_proto)
    model.ClearField("sha256")
    model.keep_accents = True
    return model.SerializeToString()


def is_damaged(model_proto):
    """Whether a model does not match its SHA-256 field, bool.

    Args:
        model_proto: bytes.

    Returns:
        bool, False for a model without a SHA-256.
    """
    begin = len(_DIGEST_HEAD)
    end = begin + _DIGEST_BYTES
    digest = hashlib.sha256(model_proto[end:]).digest()
    # The bytes before the SHA-256 may be damaged too.
    has_head = model_proto[:begin] == _DIGEST_HEAD
    return has_head != (model_proto[begin:end] == digest)


def refusal(error):
    """Describe why SentencePiece refuses a model.

    Args:
        error: RuntimeError of SentencePiece.

    Returns:
        str, without a full stop. If the message of `error` names a C++ file,
        the str only says that SentencePiece cannot parse the model.
    """
    reason = str(error).removeprefix("INTERNAL: ").rstrip(". ")
    return "SentencePiece cannot parse it" if ".cc(" in reason else reason
