"""Suggestions of a known name for a misspelt one."""

import difflib


def closest(name, known, least_similarity=0.72):
    """Find the known name that is closest to an unknown one.

    Args:
        name: str, unknown.
        known: iterable of str.
        least_similarity: float from 0 to 1. Default 0.72.

    Returns:
        str, "" if no name is as similar.
    """
    # Without the dashes, which all options share. A name may fill a file, so
    # only its beginning is compared.
    bare = {x.lstrip("-"): x for x in known}
    name = name[:80].lstrip("-")
    matches = difflib.get_close_matches(name, list(bare), 1, least_similarity)
    return bare[matches[0]] if matches else ""


def did_you_mean(name, known):
    """Suggest the closest known name, at the end of a sentence.

    Args:
        name: str, unknown.
        known: iterable of str.

    Returns:
        str, such as "; did you mean --steps?", or "" if no name is close.
    """
    meant = closest(name, known)
    return f"; did you mean {meant}?" if meant else ""
