"""Files of tensors: safetensors and torch's own, whole or in shards."""

import pickle
import zipfile

from safetensors import SafetensorError
from safetensors import safe_open

from xlnet_tf.files import read_json

WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"


class SafetensorsFiles:
    """Tensors of one or several safetensors files, read one at a time."""

    def __init__(self, files):
        self._files = {}
        self.shapes = {}
        for file in files:
            try:
                handle = safe_open(file, framework="numpy", backend="pread")
                for name in handle.keys():
                    self._files[name] = file, handle
                    shape = handle.get_slice(name).get_shape()
                    self.shapes[name] = tuple(shape)
            except (SafetensorError, OSError) as error:
                raise _damaged(file, error) from error

    def read(self, name):
        file, handle = self._files[name]
        try:
            return handle.get_tensor(name)
        except SafetensorError as error:
            raise _damaged(file, error) from error


class TorchFiles:
    """Tensors of torch's own files, mapped into memory, never unpickled."""

    def __init__(self, files):
        try:
            import torch
        except ImportError as error:
            raise ValueError(
                f"{files[0]} is a file of torch's, which is not installed: "
                "pip install torch, or save the model as model.safetensors."
            ) from error
        self._tensors = {}
        for file in files:
            try:
                values = torch.load(
                    file,
                    map_location="cpu",
                    weights_only=True,
                    # What torch wrote before 2020 cannot be mapped.
                    mmap=zipfile.is_zipfile(file),
                )
            except (
                pickle.UnpicklingError,
                RuntimeError,
                OSError,
                EOFError,
                ValueError,
            ) as error:
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
    reason = str(error).strip().splitlines()[0] if str(error).strip() else error
    return ValueError(f"{file} is damaged or not a file of weights: {reason}.")


def open_tensors(path):
    """Opens the weights of a directory, in the order Hugging Face prefers.

    Args:
        path: path of the directory.

    Returns:
        object with `shapes`, dict of str to tuple of int, and `read(name)`,
        which gives an array.

    Raises:
        FileNotFoundError: if there are no weights, or a shard is missing.
        ValueError: if a file is damaged.
    """
    for single, kind in (
        (WEIGHTS_FILE, SafetensorsFiles),
        (TORCH_FILE, TorchFiles),
    ):
        if (path / single).is_file():
            return kind([path / single])
        index = path / f"{single}.index.json"
        if index.is_file():
            files = _files_of(index)
            lost = [name for name in files if not (path / name).is_file()]
            if lost:
                raise FileNotFoundError(
                    f"{index} names files that are not there: "
                    f"{', '.join(lost)}."
                )
            return kind([path / name for name in files])
    raise FileNotFoundError(
        f"{path} has a config.json of Hugging Face's and no weights "
        f"({WEIGHTS_FILE} or {TORCH_FILE})."
    )


def _files_of(index):
    """Names of the shards that an index lists."""
    values = read_json(index)
    names = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{index} does not say which files: no `weight_map`.")
    return sorted(set(names.values()))
