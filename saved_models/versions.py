"""Directories of the versions of an export: NAME/1, NAME/2 and so on.

Servers load the largest version. A version is written to a temporary directory,
which is renamed when it is complete.
"""

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import read_json_object
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.formats import check_version

CARD_FILE = "assets.extra/model_card.json"  # path in an export
SAVED_MODEL_FILE = "saved_model.pb"
NETWORK_FILE = "model.xml"  # file of OpenVINO
EXPORT_VERSION = 1  # version of the export format, in the model card

# Folders of this package. In a clone of the project, exports are in the same
# directory.
_RESERVED = ("signatures", "client", "serving")


def is_version(path):
    """Whether a path ends in a version number for TensorFlow Serving."""
    return path.name.isascii() and path.name.isdigit()


def check(directory, overwrite=True):
    """Refuse a directory to which no new version can be written.

    Args:
        directory: path.
        overwrite: bool, whether the version may already exist. Default True.

    Raises:
        FileExistsError: if the version exists and `overwrite` is False.
        ValueError: if the path does not end in a number, or is in a code folder
            of the package `saved_models`.
    """
    directory = as_path(directory)
    if not is_version(directory):
        raise ValueError(
            "the output must end in a version number, which TensorFlow "
            f"Serving looks for: {directory / '1'}. Received: {directory}."
        )
    if not overwrite and directory.exists():
        raise taken(directory)
    if is_remote(directory):
        return
    name = directory.absolute().parent
    if name.name in _RESERVED and (name.parent / "export.py").is_file():
        raise ValueError(
            f"an export must not be named {name.name} in {name.parent}, where "
            "a folder of code has this name. Choose another name."
        )


def taken(directory):
    """Make the FileExistsError for an existing version."""
    return FileExistsError(
        f"{directory} exists. Give the next version, or --overwrite."
    )


def next_version(directory):
    """Path of the next version; a path that ends in a version stays the same.

    Args:
        directory: str or path.

    Returns:
        path that ends in a number.
    """
    directory = as_path(directory)
    if is_version(directory):
        return directory
    versions = [0]
    if directory.is_dir():
        versions += [int(p.name) for p in directory.iterdir() if is_version(p)]
    return directory / str(max(versions) + 1)


def latest_version(directory):
    """Find the path of an export: `directory`, or the largest version inside.

    Args:
        directory: str or path.

    Returns:
        path.

    Raises:
        FileNotFoundError: if the directory has no SavedModel and no OpenVINO
            network.
    """
    directory = as_path(directory)
    if _is_export(directory):
        return directory
    versions = []
    if directory.is_dir():
        versions = [
            path
            for path in directory.iterdir()
            if is_version(path) and _is_export(path)
        ]
    if not versions:
        raise FileNotFoundError(
            f"there is no SavedModel in {directory}; make one with "
            "python -m saved_models.export."
        )
    return max(versions, key=lambda path: int(path.name))


def _is_export(path):
    files = SAVED_MODEL_FILE, NETWORK_FILE
    return any((path / name).is_file() for name in files)


def check_format(directory):
    """Refuse an export whose format does not have version `EXPORT_VERSION`.

    A SavedModel without a model card comes from another program and is allowed.

    Args:
        directory: path of the SavedModel.

    Raises:
        ValueError: if the format's version in the model card differs from
            `EXPORT_VERSION`, or the card is not a JSON object.
    """
    file = directory / CARD_FILE
    if file.is_file():
        version = read_json_object(file).get(FORMAT_VERSION)
        check_version(file, version, EXPORT_VERSION)
