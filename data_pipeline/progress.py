"""How far a long command is and when it will be done."""

import time

_SECONDS = 30.0


class Progress:
    """A bar where a person looks on, else now and then a line for the log.

    Use as a context manager.

    Args:
        total: int, bytes of work.
        stream: text stream to write to.
        clock: callable that gives seconds.
    """

    def __init__(self, total, stream, clock=time.monotonic):
        self._total = total
        self._stream = stream
        self._clock = clock
        self._bar = None
        self._done = 0
        self._rate = None
        self._last = (clock(), 0)

    def __enter__(self):
        if self._stream.isatty():
            import tqdm

            self._bar = tqdm.tqdm(
                total=self._total,
                unit="B",
                unit_scale=True,
                desc="text done",
                file=self._stream,
            )
        return self

    def __exit__(self, kind, error, traceback):
        if self._bar is not None:
            self._bar.close()

    def update(self, size):
        """Counts work that is done.

        Args:
            size: int, bytes more.
        """
        self._done += size
        if self._bar is not None:
            self._bar.update(size)
            return
        now = self._clock()
        then, before = self._last
        if now - then < _SECONDS:
            return
        rate = (self._done - before) / (now - then)
        # Recent times count most: a restart passes over what is finished.
        self._rate = rate if self._rate is None else (self._rate + rate) / 2
        self._last = (now, self._done)
        left = "unknown"
        if self._rate:
            left = _duration((self._total - self._done) / self._rate)
        self._stream.write(
            f"text done: {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} "
            f"MB, {self._rate / 1e6:.1f} MB/s, time left {left}\n"
        )
        self._stream.flush()


def _duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s"
