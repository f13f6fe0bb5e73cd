"""Checks of output paths before long work begins."""

import glob
import os

from data_pipeline.base import hub
from data_pipeline.base import urls
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_model_of_hub
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import with_home


def check_writable(file, inputs=()):
    """Refuse an output file that cannot be written, before long work begins.

    Args:
        file: str or path. For a path in a bucket, only the scheme is checked.
        inputs: strs or paths, local input files or globs. The output must not
            replace an input file.

    Raises:
        ValueError: the file's scheme is unknown or read only, or `file` names a
            whole model of the Hugging Face Hub, a directory or an input file.
    """
    if is_model_of_hub(file):
        hub.check_names_file(os.fspath(file))
        return
    path = as_path(file)
    if isinstance(path, urls.UrlPath):
        path.check_writable()
    if is_remote(path):
        return
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name a file to write.")
    _check_parents(path)
    for pattern in map(with_home, map(os.fspath, inputs)):
        names = [pattern, *glob.glob(pattern, recursive=True)]
        if path.exists() and any(
            os.path.exists(name) and path.samefile(name) for name in names
        ):
            raise ValueError(
                f"{path} is read too, and would be replaced; name another file "
                "to write."
            )


def check_directory(path):
    """Refuse an output directory that cannot be made, before long work begins.

    Args:
        path: str or path. A path in a bucket is not checked.

    Raises:
        ValueError: the path or one of its parents is a file or a broken link.
    """
    path = as_path(path)
    if is_remote(path):
        return
    _check_link(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; name a directory to write to.")
    _check_parents(path)


def _check_parents(path):
    for around in path.parents:
        _check_link(around)
        if around.exists():
            if not around.is_dir():
                raise ValueError(f"{path} cannot be made: {around} is a file.")
            return


def _check_link(path):
    if path.is_symlink() and not path.exists():
        raise ValueError(
            f"{path} is a link that leads nowhere, and nothing can be written "
            "there. Correct or remove the link."
        )
