"""Atomic replacement of model directories."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import write_checksums
from data_pipeline.base.files import copy_tree
from data_pipeline.base.files import errors_of_disk
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import names_below
from data_pipeline.base.files import remove
from data_pipeline.base.files import written_whole
from data_pipeline.base.outputs import check_directory


@contextlib.contextmanager
def written_directory(path, is_replaced):
    """Context manager that replaces the model in a directory.

    Files that do not belong to a model stay. A `SHA256SUMS` of the written
    files is added.

    Usually the new directory is written beside `path` and then renamed to
    `path`. These directories are not replaced by a rename: a directory in a
    bucket, a mount point, the working directory and its parents, a directory
    with a read-only parent, and a directory with a folder other than `assets`.
    The files of such a directory are written one by one. `SHA256SUMS` is
    written first, so that readers notice an unfinished directory.

    Args:
        path: path of a directory. It is created if it does not exist.
        is_replaced: function whose argument is the name of a file in the
            directory. It returns True if the file belongs to the model to
            replace.

    Yields:
        pathlib.Path, an empty local directory. Write the model there.

    Raises:
        ValueError: `path` or a parent is a file.
    """
    if not is_remote(path):
        path = path.resolve()  # keep a link to a directory
    check_directory(path)
    if _can_be_renamed(path):
        with written_whole(path, replace_directory=True) as new:
            new.mkdir()
            yield new
            write_checksums(new)
            if path.is_dir():
                _keep_others(path, new, is_replaced)
                shutil.copymode(path, new)
        return
    path.mkdir(parents=True, exist_ok=True)
    folder = None if is_remote(path) else path
    with (
        tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as name,
        errors_of_disk(name, path),
    ):
        new = pathlib.Path(name)
        yield new
        write_checksums(new)
        remove_links(path, names_below(new))
        copy_tree(new / CHECKSUMS_FILE, path / CHECKSUMS_FILE)
        for item in list(path.iterdir()):
            if is_replaced(item.name) and item.name != CHECKSUMS_FILE:
                remove(item)
        copy_tree(new, path)


def remove_links(directory, names):
    """Remove symbolic links at the paths of new files and of their folders.

    Args:
        directory: path. A link at this path itself stays.
        names: list of str, paths of the new files, relative to the directory.
    """
    if is_remote(directory):
        return
    for name in names:
        path = directory
        for part in pathlib.PurePath(name).parts:
            path = path / part
            if path.is_symlink():
                path.unlink()


def _can_be_renamed(path):
    """Whether a new directory can be renamed to this path, bool."""
    if is_remote(path):
        return False
    if not path.is_dir():
        return True
    working_directory = pathlib.Path(os.getcwd())
    return (
        os.access(path.parent, os.W_OK)
        and not os.path.ismount(path)
        and path not in (working_directory, *working_directory.parents)
        and all(
            item.is_symlink() or item.name == "assets"
            for item in path.iterdir()
            if item.is_dir() and not is_unfinished(item)
        )
    )


def _keep_others(old, new, is_replaced):
    """Link into `new` the files of `old` that do not belong to a model."""
    for item in old.iterdir():
        target = new / item.name
        if is_unfinished(item) or is_replaced(item.name):
            continue
        if item.is_dir() and not item.is_symlink():
            target.mkdir(exist_ok=True)
            _keep_others(item, target, lambda name: False)
        elif not os.path.lexists(target):
            try:
                os.link(item, target, follow_symlinks=False)
            except OSError:  # no links on this disk
                shutil.copy2(item, target, follow_symlinks=False)
