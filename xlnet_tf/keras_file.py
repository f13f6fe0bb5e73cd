"""Loading of `.keras` files, with checks before Keras reads the files."""

import contextlib
import io
import json
import math
import struct
import zipfile
import zlib

import keras

from data_pipeline.base.files import local_copy
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import MOST_JSON_BYTES
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import in_a_line
from data_pipeline.base.limits import most_expanded
from xlnet_tf.model.base_backbone import Backbone
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.tasks.task import Task
from xlnet_tf.weights.classes import objects_in
from xlnet_tf.weights.source import check_size
from xlnet_tf.weights.source import head_parameters
from xlnet_tf.weights.tensor_files import check_arrays

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
# Largest ratio of a file's expanded size to its size. Keras hardly compresses
# its files.
_MOST_EXPANSION = 10
# Errors that zipfile raises for damaged files. It mistakes some damage for a
# password or a newer format.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    LookupError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)

# Errors that Keras raises for a modified config.
_UNFIT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
# Classes of this library whose weights a file may contain.
_LAYERS = (Backbone, Task, StatefulMemory)


def load_keras_file(path):
    """Load the model in a `.keras` file.

    Args:
        path: path of the file.

    Returns:
        A model of the saved class.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or if its config and weights do not
            fit each other.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model at {path}; give the --output of a training "
            "run, a preset directory, or a .keras file."
        )
    with local_copy(path) as local:
        if not zipfile.is_zipfile(local):
            raise ValueError(f"{path} is not a .keras file, or it is cut off.")
        values = _checked_config(local, path)
        try:
            count = _num_parameters(objects_in(values, _LAYERS))
            check_size(path, count, size_of(local))
            return keras.models.load_model(local)
        except _UNFIT as error:
            if str(error).startswith(f"{path} "):
                raise
            raise ValueError(
                f"{path} cannot be loaded, it may be damaged: "
                f"{in_a_line(error)}."
            ) from error
        except MemoryError as error:
            raise ValueError(
                f"{path} needs more memory than there is."
            ) from error


def _checked_config(local, path):
    """Check the checksums and sizes of a `.keras` file, and return its config.

    Without this check Keras would load weights whose checksum is wrong.
    """
    try:
        with zipfile.ZipFile(local) as archive:
            _check_members(archive, size_of(local))
            damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
            text = archive.read(_CONFIG)
            with _opened_weights(archive, local) as (file, size):
                check_arrays(file, size)
    except _DAMAGE as error:
        raise ValueError(
            f"{path} is not a .keras file, or it is damaged: "
            f"{in_a_line(error)}."
        ) from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: its {_CONFIG} is not JSON: {error}."
        ) from error


@contextlib.contextmanager
def _opened_weights(archive, local):
    """Context that opens the file of weights in an archive.

    An uncompressed file is read without zipfile. To move to a position, zipfile
    may have to read all bytes before the position.

    Yields:
        (binary file, int): the file of weights and its size in bytes.
    """
    member = archive.getinfo(_WEIGHTS)
    if member.compress_type != zipfile.ZIP_STORED:
        yield io.BytesIO(archive.read(member)), member.file_size
        return
    with local.open("rb") as file:
        # A member's header holds the lengths of its name and extra field, which
        # precede the data.
        file.seek(member.header_offset + 26)
        begin = member.header_offset + 30
        begin += sum(struct.unpack("<HH", file.read(4)))
        yield _Section(file, begin, member.file_size), member.file_size


class _Section(io.RawIOBase):
    """Read-only binary file with the bytes of a part of another file.

    Args:
        file: the other file, a binary file.
        begin, size: ints, position of the part's first byte, and the part's
            number of bytes.
    """

    def __init__(self, file, begin, size):
        self._file, self._begin, self._size = file, begin, size
        self._place = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._place

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place}
        self._place = max(0, offset + base.get(whence, self._size))
        return self._place

    def readinto(self, buffer):
        left = max(0, self._size - self._place)
        self._file.seek(self._begin + self._place)
        data = self._file.read(min(len(buffer), left))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _check_members(archive, stored_bytes):
    """Refuse an archive that is far larger uncompressed than compressed."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise zipfile.BadZipFile("two members have the same name")
    declared = sum(member.file_size for member in members)
    most = most_expanded(stored_bytes, _MOST_EXPANSION)
    check_length("what it expands to", declared, most)
    check_length(_CONFIG, archive.getinfo(_CONFIG).file_size, MOST_JSON_BYTES)


def _num_parameters(objects):
    """Estimate how many weights the objects of a config have, int.

    Args:
        objects: list of (class of an object, dict with the object's config).
    """
    counts, widths = [], [0]
    for cls, config in objects:
        if issubclass(cls, Backbone):
            names = cls.config_class.field_names()
            backbone = cls.config_class.from_dict(
                {k: v for k, v in config.items() if k in names}
            )
            counts.append(backbone.num_parameters())
            widths.append(backbone.hidden_dim)
        elif issubclass(cls, StatefulMemory):
            sizes = ("batch_size", "memory_length", "hidden_dim", "num_layers")
            counts.append(math.prod(config[name] for name in sizes))
        elif issubclass(cls, keras.Metric):
            counts.append(_numbers_of_metric(**config))
    for cls, config in objects:
        if issubclass(cls, Task):
            counts.append(head_parameters(config, max(widths)))
    return sum(max(0, count) for count in counts)


def _numbers_of_metric(
    num_classes=0, num_thresholds=0, num_labels=None, **others
):
    """Estimate the number of values in a Keras metric's variables, int."""
    return max(num_classes**2, 4 * num_thresholds * (num_labels or 1))
