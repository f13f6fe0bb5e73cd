"""Counts of rows, lines and labels that a reader skips or changes."""

import warnings

from data_pipeline.text.lines import BYTE_ORDER_MARK

MARKS_DROPPED = (
    "lines begin with a byte order mark, as in joined files, which is dropped"
)


class Counted:
    """Counts of the skipped or changed values of a file, for warnings.

    All readers of tasks use this class: each row either becomes part of an
    example or is counted in a warning.

    Args:
        place: str, path of the file, for messages.
    """

    def __init__(self, place):
        self.place = place
        self._counts = {}  # message -> [number, first place]

    def add(self, what, where, number=1):
        """Count values that a reader skips or changes for the same reason.

        Args:
            what: str, description that follows the count in messages, such as
                "rows repeat the header and are left out".
            where: str or int, place of the value. An int is a row number.
            number: int, number to add. Default 1.
        """
        if isinstance(where, int):
            where = f"row {where}"
        self._counts.setdefault(what, [0, where])[0] += number

    def lines(self):
        """List the messages about all counts, list of str."""
        return [
            f"{number:,} {what}; the first is {where}"
            for what, (number, where) in self._counts.items()
        ]

    def tell(self):
        """Issue a warning for each count, then reset the counts."""
        for line in self.lines():
            warnings.warn(f"{self.place}: {line}", stacklevel=3)
        self._counts.clear()


def without_marks(lines, counted):
    """Yield lines without byte order marks at the beginning; count the marks.

    A line has such a mark where several files were joined into one.

    Args:
        lines: iterable of str.
        counted: Counted.

    Yields:
        str.
    """
    for number, line in enumerate(lines, start=1):
        if line.startswith(BYTE_ORDER_MARK):
            counted.add(MARKS_DROPPED, number)
            line = line.lstrip(BYTE_ORDER_MARK)
        yield line
