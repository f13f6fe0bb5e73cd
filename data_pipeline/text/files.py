"""Search for text files, and a log for reading these files.

A file is local, in a bucket (`gs://BUCKET/...`) or at a URL that fsspec can
read (`s3://`, `hf://datasets/`, `https://`). It may be compressed as .gz, .bz2,
.xz or .zst.
"""

import collections
import concurrent.futures
import glob
import os

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import refuse_pipe
from data_pipeline.base.files import size_of
from data_pipeline.base.files import with_home
from data_pipeline.text.saved_datasets import find_data_files

_BAD_TEXT = {
    "replaced_characters": "replaced character(s) that were no text",
    "skipped_lines": "skipped line(s) that could not be read",
    "empty_rows": "row(s) without text",
    "empty_files": "file(s) without text",
    "repeated_headers": "row(s) that repeat the header, left out",
    "quoted_texts": "text(s) of a .tsv in quotes, which were kept; where the "
    "file is quoted, name it .csv",
    "dropped_marks": "byte order mark(s) at the beginning of a line, dropped",
}
_REQUESTS = 32  # parallel requests to a bucket


class TextError(ValueError):
    """Error for a file that is not valid text in its format and encoding."""


class ReadLog:
    """Log of reading text files: progress, digests and counts of bad text.

    Args:
        progress: function of a number of bytes, or None. The reader calls this
            function with the number of stored (maybe compressed) bytes that
            were read since the last call.

    Attributes:
        digests: dict of path to str, the SHA-256 of each file read to its end.
        bad_text: collections.Counter of `replaced_characters`,
            `skipped_lines`, `empty_rows`, `empty_files`,
            `repeated_headers`, `quoted_texts` and `dropped_marks`.
    """

    def __init__(self, progress=None):
        self.progress = progress or (lambda size: None)
        self.digests = {}
        self.bad_text = collections.Counter()


def count_bad_text(log, what, number=1):
    """Add `number` to `log.bad_text[what]`; do nothing if `log` is None."""
    if log is not None:
        log.bad_text[what] += number


def describe_bad_text(counts):
    """Describe the text that was skipped or replaced, one line per kind.

    Args:
        counts: dict with the `bad_text` of a ReadLog. Other keys are ignored.

    Returns:
        list of str.
    """
    return [
        f"{counts[name]:,} {what}"
        for name, what in _BAD_TEXT.items()
        if counts.get(name)
    ]


def find_files(patterns):
    """Find the files that match patterns, sorted by name.

    Args:
        patterns: str or path, or a list of these. Each is a file, a directory
            that Hugging Face's `datasets` has saved, or a glob that matches
            such files and directories. `**` matches any number of folders, but
            is not allowed in a bucket.

    Returns:
        list of str. A file with several names or links is listed once.

    Raises:
        FileNotFoundError: a pattern matches no file, or matches a broken link.
        ValueError: a pattern in a bucket has `**`, or a pattern names a pipe, a
            device or a directory without a saved data set. ValueError is also
            raised if a saved data set cannot be read.
    """
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [patterns]
    files_by_path = {}
    for pattern in map(os.fspath, patterns):
        matches = _remote_matches if is_remote(pattern) else _local_matches
        files = matches(pattern)
        if not files:
            _explain_no_match(pattern)
        for file in sorted(files):
            same = file if is_remote(file) else os.path.realpath(file)
            files_by_path.setdefault(same, file)
    return sorted(files_by_path.values())


def _local_matches(pattern):
    pattern = with_home(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    files = []
    for path in _expanded(pattern):
        if os.path.islink(path) and not os.path.exists(path):
            raise FileNotFoundError(
                f"{path}: `input` names this link, and it leads to no file. "
                "Correct or remove the link."
            )
        if os.path.isfile(path):
            files.append(path)
        elif os.path.isdir(path):
            files += map(os.fspath, find_data_files(path) or [])
    return files


def _expanded(pattern):
    """Find the paths that match a glob; `**` never follows links in circles."""
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.glob(pattern)
        return
    place = parts.index("**")
    rest = parts[place + 1 :] or ["*"]
    base = os.sep.join([*parts[:place], ""])
    for top in glob.glob(base) if base else [""]:
        for folder in _folders(top):
            yield from _expanded(os.path.join(glob.escape(folder), *rest))


def _folders(folder, above=frozenset()):
    """Yield a folder and its visible subfolders, at any depth.

    `above` has the real paths of the folders above. A link to one of these
    folders is skipped.
    """
    place = os.path.realpath(folder)
    if place in above:
        return
    yield folder
    for name in sorted(os.listdir(folder or ".")):
        path = os.path.join(folder, name)
        if not name.startswith(".") and os.path.isdir(path):
            yield from _folders(path, above | {place})


def _remote_matches(pattern):
    if "**" in pattern:
        raise ValueError(
            "`**` cannot be used in a bucket. Received: input="
            f"{pattern!r}. Give a pattern with `*` for each depth of folders."
        )
    first = min((pattern.find(x) for x in "*?[" if x in pattern), default=None)
    if pattern.startswith(("http://", "https://")):
        first = None  # the web has no listings, and `?` may be in a URL
    if first is None:
        path = as_path(pattern)
        if path.is_dir():
            return list(map(os.fspath, find_data_files(path) or []))
        return [os.fspath(path)] if path.exists() else []
    folder, _, rest = pattern[:first].rpartition("/")
    paths = as_path(folder).glob(rest + pattern[first:])
    # Requests to a bucket are slow. So assume that a path with a suffix is a
    # file.
    return [
        os.fspath(path) for path in paths if path.suffix or not path.is_dir()
    ]


def _explain_no_match(pattern):
    refuse_pipe(as_path(pattern))
    if as_path(pattern).is_dir():
        raise ValueError(
            f"`input` must name files, not a directory. Received: input="
            f"{pattern!r}. Name the files in it, such as "
            f"{os.path.join(pattern, '*.txt')!r}."
        )
    where = "" if is_remote(pattern) else f", seen from {os.getcwd()}"
    raise FileNotFoundError(
        f"no file matches `input`. Received: input={pattern!r}{where}. Check "
        "the path and the pattern."
    )


def sizes_of(paths):
    """Read the sizes of files in bytes, list of int.

    Args:
        paths: list of str.
    """
    if not any(map(is_remote, paths)):
        return list(map(size_of, paths))
    with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as threads:
        return list(threads.map(size_of, paths))
