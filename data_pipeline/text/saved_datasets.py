"""Directories that `save_to_disk` of Hugging Face's `datasets` writes.

The directory of a data set has a state.json, which lists the .arrow files in
order. The directory of several splits has a dataset_dict.json and a directory
for each split.
"""

import posixpath

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_path
from data_pipeline.base.files import read_json_object

STATE = "state.json"
INFO = "dataset_info.json"
_SPLITS = "dataset_dict.json"
_MOST_CHARACTERS = 200  # in a name


def find_data_files(directory):
    """Find the .arrow files of the data set in a directory.

    Args:
        directory: str or path.

    Returns:
        list of paths, or None if the directory has no data set.

    Raises:
        ValueError: the directory has several splits, or is damaged.
    """
    directory = as_path(directory)
    if (directory / _SPLITS).is_file():
        content = read_json_object(directory / _SPLITS)
        splits = content.get("splits")
        if not isinstance(splits, list) or not all(map(_is_name, splits)):
            raise ValueError(
                f"{directory / _SPLITS} does not name the splits of a data "
                "set. Save the data set again."
            )
        if len(splits) != 1:
            raise ValueError(
                f"{directory} holds the splits {', '.join(splits)} of a data "
                f"set. Name one, such as {directory / splits[0]}."
                if splits
                else f"{directory} holds a data set without a split."
            )
        return find_data_files(directory / splits[0])
    if not is_saved(directory):
        return None
    state = directory / STATE
    names = names_of_state(read_json_object(state), str(state))
    return [directory / name for name in names]


def is_saved(directory):
    """Whether a directory is a data set without splits, bool."""
    return all((directory / name).is_file() for name in (STATE, INFO))


def names_of_state(state, place):
    """Read the names of the .arrow files from the content of a state.json.

    Args:
        state: the parsed JSON of the file.
        place: str, path of the file, for messages.

    Returns:
        list of str, in order.

    Raises:
        ValueError: the content is not the state of a data set, or the data set
            is a selection or reordering of the rows in its files.
    """
    try:
        names = [entry["filename"] for entry in state["_data_files"]]
        indices = state.get("_indices_data_files") or state.get(
            "_indices_files"
        )
    except (AttributeError, LookupError, TypeError):
        names, indices = [], None
    if not names or not all(map(_is_name, names)):
        raise ValueError(
            f"{place} does not name the .arrow files of a data set. Save the "
            "data set again by `save_to_disk`."
        )
    if indices:
        raise ValueError(
            f"{place}: the data set selects or reorders the rows of its files. "
            "Call `flatten_indices` and save it again."
        )
    return names


def _is_name(value):
    return (
        isinstance(value, str)
        and value not in ("", ".", "..")
        and len(value) <= _MOST_CHARACTERS
        and posixpath.basename(value) == value
        and "\\" not in value
        and is_path(value)
    )
