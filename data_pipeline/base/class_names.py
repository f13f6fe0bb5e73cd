"""Class names of labels; labels that are equal numbers share a name."""

import re

# A whole number that is written as a float.
_WHOLE = re.compile(r"([+-]?\d+)\.0*")


class ClassNames:
    """Map from labels in files to class names.

    Labels that are equal numbers, such as "1" and "1.0", share one class name.
    If no known class is named "1.0", the label "1.0" has the class name "1".

    Args:
        known: tuple of str, the known class names, or None if unknown.
    """

    def __init__(self, known):
        self._known = {name: name for name in known or ()}
        for name in known or ():
            self._known.setdefault(_whole(name), name)

    def name(self, label):
        """Return the class name of a label, str.

        Args:
            label: str, as written in a file.
        """
        if label in self._known:
            return self._known[label]
        whole = _whole(label)
        return self._known.get(whole, whole)


def _whole(label):
    """Remove ".0" from the text of a whole number; keep other text."""
    match = _WHOLE.fullmatch(label)
    whole = match[1] if match else label
    return "0" if whole in ("-0", "+0") else whole
