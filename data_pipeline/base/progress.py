"""Progress of long work, as a bar on a terminal or as lines in a log."""

import sys
import time

from data_pipeline.base.command_line import print_notes

# Work that ends earlier shows no bar, or prints no lines.
_BAR_SECONDS, _LINE_SECONDS = 2.0, 30.0
_BAR = (
    "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, "
    "{rate_noinv_fmt}]"
)


class Progress:
    """Context manager that shows the progress of work on standard error.

    Args:
        label: str, name of the work, such as "tokenizing".
        unit: str, name of the counted units, such as "rows"; "B" for bytes.
        total: int, number of units of the whole work, or None if unknown.
        initial: int, number of units that are already done. Default 0.
        shown: bool, whether to show anything. Default True.
    """

    def __init__(self, label, unit, total=None, initial=0, shown=True):
        self._label, self._unit = label, unit
        self._total, self._initial, self._done = total, initial, initial
        self._begun = self._told = time.monotonic()
        self._bar = None
        self._has_lines = shown
        if shown and sys.stderr.isatty():
            self._bar, self._has_lines = self._make_bar(), False

    def _make_bar(self):
        import tqdm

        return tqdm.tqdm(
            desc=self._label,
            total=self._total,
            initial=self._initial,
            unit="B" if self._unit == "B" else f" {self._unit}",
            unit_scale=self._unit == "B",
            bar_format=_BAR if self._total else None,
            delay=_BAR_SECONDS,
            dynamic_ncols=True,
            # Remove the bar at the end: an outer bar may use the next line.
            leave=False,
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if self._bar is not None:
            self._bar.close()

    def update(self, count=1):
        """Add newly finished units to the progress.

        Args:
            count: int, number of units. Default 1.
        """
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
        now = time.monotonic()
        if self._has_lines and now - self._told >= _LINE_SECONDS:
            self._told = now
            print_notes(self._line(now - self._begun))

    def _line(self, seconds):
        """Format the progress after a number of seconds as one line, str."""
        done, total = self._done, self._total
        scale, unit = (1e6, "MB") if self._unit == "B" else (1, self._unit)
        if not total:
            count = f"{done / scale:,.0f} {unit}"
            return f"{self._label}: {count} in {duration(seconds)}"
        share = min(done / total, 1.0)
        text = (
            f"{self._label}: {done / scale:,.0f} of {total / scale:,.0f} "
            f"{unit}, {share:.0%}"
        )
        if done > self._initial:
            left = seconds / (done - self._initial) * max(total - done, 0)
            text += f", {duration(left)} left"
        return text


def track(values, label, unit, total=None, initial=0, shown=True):
    """Yield the values of an iterable and show the progress.

    Args:
        values: iterable.
        label, unit, initial, shown: see `Progress`.
        total: int, number of units of the whole work. Default None: the length
            of `values`, if known, plus `initial`.

    Yields:
        the values.
    """
    if total is None and hasattr(values, "__len__"):
        total = len(values) + initial
    with Progress(label, unit, total, initial, shown) as progress:
        for value in values:
            yield value
            progress.update()


def duration(seconds):
    """Format seconds as text, such as 50 s, 12 min or 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
