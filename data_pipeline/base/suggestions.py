"""Suggestions of known names for misspelt names."""

import difflib


def closest(name, known, least_similarity=0.72):
    """Find the known name that is most similar to an unknown name.

    Args:
        name: str, the unknown name.
        known: iterable of str, the known names.
        least_similarity: float from 0 to 1, the smallest similarity of a
            suggestion to `name`. Default 0.72.

    Returns:
        str, or "" if no name is similar enough.
    """
    # Remove the dashes, which all options have. Compare only the beginning,
    # because an unknown name may be as long as a file.
    bare = {x.lstrip("-"): x for x in known}
    name = name[:80].lstrip("-")
    matches = difflib.get_close_matches(name, list(bare), 1, least_similarity)
    return bare[matches[0]] if matches else ""


def did_you_mean(name, known):
    """Suggest the closest known name, as text for the end of a sentence.

    Args:
        name: str, the unknown name.
        known: iterable of str, the known names.

    Returns:
        str, such as "; did you mean --steps?", or "" if no name is similar.
    """
    meant = closest(name, known)
    return f"; did you mean {meant}?" if meant else ""
