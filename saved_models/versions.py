"""Versions of an export: NAME/1, NAME/2, ... of which servers take the largest.

A version appears whole: it is written under a temporary name beside its place
and renamed.
"""

import contextlib
import pathlib
import shutil


def is_version(path):
    """Whether a path ends in what TensorFlow Serving takes for a version."""
    return path.name.isascii() and path.name.isdigit()


def next_version(directory):
    """`directory` itself if it ends in a version, else its next version.

    Args:
        directory: str or path.

    Returns:
        path that ends in a number.
    """
    directory = pathlib.Path(directory)
    if is_version(directory):
        return directory
    versions = [0]
    if directory.is_dir():
        versions += [int(p.name) for p in directory.iterdir() if is_version(p)]
    return directory / str(max(versions) + 1)


def latest_version(directory):
    """The SavedModel of a directory: itself, or its largest version.

    Args:
        directory: str or path.

    Returns:
        path.

    Raises:
        FileNotFoundError: if there is no SavedModel.
    """
    directory = pathlib.Path(directory)
    if (directory / "saved_model.pb").is_file():
        return directory
    versions = []
    if directory.is_dir():
        versions = [
            path
            for path in directory.iterdir()
            if is_version(path) and (path / "saved_model.pb").is_file()
        ]
    if not versions:
        raise FileNotFoundError(
            f"there is no SavedModel in {directory}; make one with "
            "python -m saved_models.export."
        )
    return max(versions, key=lambda path: int(path.name))


@contextlib.contextmanager
def written_whole(directory):
    """Gives a temporary directory that becomes `directory` at the end.

    A server that watches the parent never sees half of it, nor a version that
    is being deleted; if the block fails nothing is left of it.

    Args:
        directory: path of the version; what is there is replaced.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = directory.parent / f".{directory.name}.temporary"
    replaced = directory.parent / f".{directory.name}.replaced"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        if directory.exists():
            # A rename aside, so that no server reads a half-deleted one.
            shutil.rmtree(replaced, ignore_errors=True)
            directory.rename(replaced)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
