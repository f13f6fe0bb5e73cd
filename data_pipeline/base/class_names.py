"""Names of classes, as in files and from users."""

import re

# A whole number written as a float.
_WHOLE = re.compile(r"([+-]?\d+)\.0*")


class ClassNames:
    """Names of classes as written in files.

    Equal numbers are one class: "1.0" is "1", unless the known class is
    written "1.0".

    Args:
        known: tuple of str, the known classes, or None.
    """

    def __init__(self, known):
        self._known = {name: name for name in known or ()}
        for name in known or ():
            self._known.setdefault(_whole(name), name)

    def name(self, label):
        """Class of a label, str.

        Args:
            label: str.
        """
        if label in self._known:
            return self._known[label]
        whole = _whole(label)
        return self._known.get(whole, whole)


def _whole(label):
    """Text of a whole number without its point; other text unchanged."""
    match = _WHOLE.fullmatch(label)
    whole = match[1] if match else label
    return "0" if whole in ("-0", "+0") else whole
