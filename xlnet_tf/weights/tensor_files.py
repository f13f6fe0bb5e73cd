"""Safe readers of untrusted tensor files: HDF5, safetensors and torch files."""

import contextlib
import hashlib
import io
import pathlib
import pickle
import shutil
import struct
import tempfile
import weakref
import zipfile

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.files import add_bytes
from data_pipeline.base.files import copy_tree
from data_pipeline.base.files import is_below
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import read_json
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import first_line
from data_pipeline.base.limits import shown
from data_pipeline.base.models import as_model_path

WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
# A thousand tensors have a header of 0.1 MB. In memory, a tensor's name takes
# 20 times its length.
_MOST_HEADER_BYTES = 2**24
# First version of torch in which no way around `weights_only` is published.
# Earlier versions have CVE-2025-32434, CVE-2026-24747 and, in 2.10,
# PYSEC-2026-139.
_TORCH = (2, 11)
# Errors that torch's restricted unpickler raises for damaged files.
_TORCH_DAMAGE = (
    pickle.UnpicklingError,
    struct.error,
    AttributeError,
    AssertionError,
    EOFError,
    LookupError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)


class SafetensorsFiles:
    """Reader of safetensors files that reads one tensor at a time."""

    def __init__(self, files):
        from safetensors import SafetensorError
        from safetensors import safe_open

        self.files = files
        self._files = {}
        self.shapes = {}
        for file in files:
            _check_header(file)
            try:
                handle = safe_open(file, framework="numpy", backend="pread")
                for name in handle.keys():
                    self._files[name] = file, handle
                    shape = handle.get_slice(name).get_shape()
                    self.shapes[name] = tuple(shape)
            except (SafetensorError, OSError) as error:
                raise _damaged(file, error) from error

    def read(self, name):
        from safetensors import SafetensorError

        file, handle = self._files[name]
        try:
            return handle.get_tensor(name)
        except SafetensorError as error:
            raise _damaged(file, error) from error
        except (AttributeError, TypeError) as error:  # NumPy lacks this type
            dtype = handle.get_slice(name).get_dtype()
            raise ValueError(
                f"{file}: the tensor {name} is of the type {dtype}, which is "
                "not read. Save the model with float32, float16 or bfloat16 "
                "weights."
            ) from error


def _check_header(file):
    """Refuse a safetensors file whose header is too large."""
    with file.open("rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
    check_length(f"the header of {file}", size, _MOST_HEADER_BYTES)


class TorchFiles:
    """Reader of torch files that calls `torch.load(weights_only=True)`.

    If a file is a ZIP archive, torch maps the file into memory.
    """

    def __init__(self, files):
        try:
            import torch
        except ImportError as error:
            raise ValueError(
                f"{files[0]} needs torch, which is not installed: "
                "pip install torch, or save the model as model.safetensors."
            ) from error
        version = tuple(map(int, torch.__version__.split(".")[:2]))
        if version < _TORCH:
            raise ValueError(
                f"torch reads {files[0]}, and a file can run code in torch "
                f"{torch.__version__} even with weights_only: pip install "
                f"'torch>={_TORCH[0]}.{_TORCH[1]}', or save the model as "
                "model.safetensors."
            )
        self.files = files
        self._tensors = {}
        for file in files:
            try:
                values = torch.load(
                    file,
                    map_location="cpu",
                    weights_only=True,
                    # Files that torch wrote before 2020 cannot be mapped.
                    mmap=zipfile.is_zipfile(file),
                )
            except _TORCH_DAMAGE as error:
                raise _damaged(file, error) from error
            if not isinstance(values, dict) or not all(
                isinstance(value, torch.Tensor) for value in values.values()
            ):
                raise _damaged(file, "it holds not only tensors")
            self._tensors.update(values)
        self.shapes = {k: tuple(v.shape) for k, v in self._tensors.items()}

    def read(self, name):
        return self._tensors[name].float().numpy()


def _damaged(file, error):
    reason = first_line(error).rstrip(".")
    return ValueError(f"{file} is damaged or not a file of weights: {reason}.")


def open_tensors(path):
    """Open the weight files of a directory in Hugging Face's format.

    Args:
        path: path of the directory.

    Returns:
        SafetensorsFiles, or TorchFiles if the directory has no safetensors
        file. Both have the attribute `shapes`, a dict of tensor names to tuples
        of int, and the method `read(name)`, which returns an array.

    Raises:
        FileNotFoundError: if there are no weights, or a shard is missing.
        ValueError: if a file is damaged.
    """
    for single, kind in (
        (WEIGHTS_FILE, SafetensorsFiles),
        (TORCH_FILE, TorchFiles),
    ):
        if (path / single).is_file():
            return _open_local(kind, path, [single])
        index = path / f"{single}.index.json"
        if index.is_file():
            files = _files_of(index)
            lost = [name for name in files if not (path / name).is_file()]
            if lost:
                raise FileNotFoundError(
                    f"{index} names files that are not there: "
                    f"{', '.join(lost)}."
                )
            return _open_local(kind, path, files)
    raise FileNotFoundError(
        f"{path} has a config.json of Hugging Face's and no weights "
        f"({WEIGHTS_FILE} or {TORCH_FILE})."
    )


def _open_local(kind, path, names):
    if not is_remote(path):
        return kind([path / name for name in names])
    folder = tempfile.mkdtemp()
    copies = [pathlib.Path(folder) / name for name in names]
    for name, copy in zip(names, copies, strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(path / name, copy)
    tensors = kind(copies)
    weakref.finalize(tensors, shutil.rmtree, folder, ignore_errors=True)
    return tensors


def _files_of(index):
    """Read the paths of the weight files that an index file lists."""
    values = read_json(index)
    names = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{index} lists no files: it has no `weight_map`.")
    files = {str(name) for name in names.values()}
    outside = sorted(name for name in files if not is_below(name))
    if outside:
        raise ValueError(
            f"{index} names files outside its directory: {outside[0]}."
        )
    return sorted(files)


@contextlib.contextmanager
def open_arrays(file):
    """Context manager that opens the arrays of an HDF5 file.

    Args:
        file: path.

    Yields:
        dict of str to h5py.Dataset, in the order of the file. All arrays are
        stored in this file, and together they are not larger than the file.

    Raises:
        OSError: if the file is not HDF5.
        ValueError: if the arrays together are larger than the file, or an array
            is stored in another file or has the dtype object.
    """
    import h5py  # imported on use, as in Keras

    with local_copy(file) as local, h5py.File(local, "r") as handle:
        yield _checked_arrays(file, handle, local.stat().st_size)


class _Memory(io.BytesIO):
    """Binary file in memory that Keras accepts as a weight file."""

    def __str__(self):
        return "memory.weights.h5"


@contextlib.contextmanager
def written_arrays(file):
    """Context manager that makes an HDF5 file in memory, then writes the file.

    If HDF5 itself wrote to a full disk, HDF5 would try to write again whenever
    one of its objects is freed, and the process would crash.

    Args:
        file: path of a local file.

    Yields:
        io.BytesIO for h5py and Keras' `save_weights`.
    """
    memory = _Memory()
    yield memory
    file.write_bytes(memory.getbuffer())


class _Archive(io.BufferedWriter):
    """Writable binary file that Keras accepts as a `.keras` file.

    Keras gets this object instead of a path. With a path, Keras would first
    write the weights to a second file if memory is short.
    """

    name = None

    def __str__(self):
        return "archive.keras"


def open_archive(file):
    """Open a `.keras` file for writing.

    Keras makes the HDF5 part of the file in memory.

    Args:
        file: path of a local file.

    Returns:
        io.BufferedWriter for Keras' `save`.
    """
    return _Archive(file.open("wb", buffering=0))


def save_weights(model, file):
    """Write the weights of a Keras model as HDF5.

    Args:
        model: keras.Model.
        file: path of a local file.
    """
    with written_arrays(file) as memory:
        model.save_weights(memory)


def store_as_float16(file):
    """Convert the float32 arrays of an HDF5 file to float16, in place.

    Args:
        file: path of a local weight file of Keras.

    Raises:
        ValueError: if a value is outside float16's range.
    """
    import h5py
    import numpy as np

    def copy(name, item):
        if isinstance(item, h5py.Group):
            added = new.require_group(name)
        else:
            values = item[()]
            if values.dtype == np.float32:
                values = values.astype(np.float16)
                if not np.isfinite(values).all():
                    raise ValueError(
                        f"{name} has values beyond 65,504, which float16 "
                        "does not hold; keep float32."
                    )
            added = new.create_dataset(name, data=values)
        added.attrs.update(item.attrs)

    with written_arrays(file) as memory:
        with h5py.File(file, "r") as old, h5py.File(memory, "w") as new:
            new.attrs.update(old.attrs)
            with np.errstate(over="ignore"):
                old.visititems(copy)


def check_arrays(file, size):
    """Refuse HDF5 files with arrays that `open_arrays` refuses.

    Args:
        file: seekable binary file.
        size: int, size of the file in bytes.

    Raises:
        OSError: if the file is not HDF5.
        ValueError: if the arrays together are larger than the file, or an array
            is stored in another file or has the dtype object.
    """
    import h5py

    with h5py.File(file, "r") as handle:
        _checked_arrays("its file of weights", handle, size)


def _checked_arrays(file, handle, stored_bytes):
    """Check an HDF5 file, and map the array names to h5py.Datasets."""
    import h5py

    arrays, links = {}, {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item

    def add_link(name, link):
        if isinstance(link, h5py.ExternalLink):
            links[name] = link.filename

    try:
        handle.visititems_links(add_link)
        handle.visititems(add)
    # For damaged files, h5py raises errors of many types.
    except (RuntimeError, LookupError, TypeError) as error:
        raise OSError(f"its arrays cannot be listed: {error}") from error
    for name, other in links.items():
        raise ValueError(
            f"{file} is damaged or not a weights file: its {shown(name)} is a "
            f"link to another file, {shown(other)}."
        )
    _check_storage(file, stored_bytes, arrays)
    return arrays


def _check_storage(file, stored_bytes, arrays):
    """Refuse arrays in other files, of dtype object, or too large in total."""
    declared = sum((x.size or 0) * x.dtype.itemsize for x in arrays.values())
    problem = None
    for name, array in arrays.items():
        if array.external or array.is_virtual:
            problem = f"its array {shown(name)} keeps its values in other files"
        elif array.dtype.kind == "O":
            problem = f"its array {shown(name)} has no numbers"
    if problem is None and declared > stored_bytes:
        problem = (
            f"its arrays declare {declared:,} bytes, and it holds "
            f"{stored_bytes:,}"
        )
    if problem is not None:
        raise ValueError(f"{file} is damaged or not a weights file: {problem}.")


def digest_of_weights(path):
    """Compute a short digest of the weight files in a directory.

    Of HDF5 files, the digest covers only the names and values of arrays. Keras
    also writes times and counters, which differ between files of equal weights.
    JSON files, Markdown files, `SHA256SUMS` and folders are ignored.

    Args:
        path: path of a directory, see `from_preset`.

    Returns:
        str, 16 hexadecimal digits.

    Raises:
        ValueError: if `open_arrays` refuses the arrays of an HDF5 file.
    """
    digest = hashlib.sha256()
    files = as_model_path(path).iterdir()
    for file in sorted(files, key=lambda file: file.name):
        is_left_out = (
            file.suffix in (".json", ".md") or file.name == CHECKSUMS_FILE
        )
        if not is_left_out and file.is_file():
            digest.update(file.name.encode())
            if not (file.suffix == ".h5" and _add_values(file, digest)):
                add_bytes(file, digest)
    return digest.hexdigest()[:16]


def _add_values(file, digest):
    """Add an HDF5 file's arrays to a digest; return False for other files."""
    try:
        with open_arrays(file) as arrays:
            for name, array in arrays.items():
                digest.update(f"{name} {array.shape} {array.dtype}".encode())
                digest.update(array[()].tobytes())
    except OSError:
        return False
    return True
