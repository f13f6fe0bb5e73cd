"""Build of records in several processes of one machine.

A part is a section of the text, see `build`. All random draws of a part depend
only on the seed, the split and the number of the part. So the bytes of a part
do not depend on the number of processes. `beam` builds the same parts on
several machines.
"""

import collections
import concurrent.futures
import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import typing

from data_pipeline.records import held_out
from data_pipeline.records.part import finished_part
from data_pipeline.text.files import ReadLog

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG in Linux


def build_in_processes(
    corpus, tokenizer, settings, directory, processes, report
):
    """Build all parts of a text in several processes.

    Args:
        corpus: Corpus.
        tokenizer: Tokenizer.
        settings: RecordSettings with all defaults filled in.
        directory: str, where the parts are written.
        processes: int, number of processes. The parts do not depend on it.
        report: function of a number of bytes. Each call passes the number of
            bytes of text whose records were written since the last call.

    Returns:
        tuple of a list of BuiltPart, in order, and a ReadLog.
    """
    progress = _Progress(report)
    threshold = held_out.validation_threshold(corpus.documents, settings)
    log = ReadLog(progress.read)
    parts = held_out.numbered_parts(
        corpus.documents(log), threshold, settings.seed
    )

    def jobs():
        for part in parts:
            progress.begin_part()
            yield directory, *part

    built = []
    with contextlib.closing(
        _run_jobs(jobs(), tokenizer, settings, processes)
    ) as results:
        for part in results:
            built.append(part)
            progress.end_part()
    progress.end()
    return built, log


class _Progress:
    """Progress of a build, in bytes of text whose records are written.

    Text is read before its records are built. So the bytes of a part are
    reported only after the records of this part are written.

    Args:
        report: function of a number of bytes.
    """

    def __init__(self, report):
        self._report = report
        self._read = self._reported = 0
        self._begun = collections.deque()

    def read(self, size):
        self._read += size

    def begin_part(self):
        self._begun.append(self._read)

    def end_part(self):
        self._report_up_to(self._begun.popleft())

    def end(self):
        self._report_up_to(self._read)

    def _report_up_to(self, offset):
        self._report(offset - self._reported)
        self._reported = offset


def _run_jobs(jobs, tokenizer, settings, processes):
    """Build parts in several processes and yield each BuiltPart in order.

    Args:
        jobs: iterable of tuples, the first four arguments of `finished_part`.
        tokenizer: Tokenizer.
        settings: RecordSettings with all defaults filled in.
        processes: int.
    """
    if processes == 1:
        for job in jobs:
            yield finished_part(*job, tokenizer, settings)
        return
    context = multiprocessing.get_context("spawn")
    # The pipe closes when this process ends, even after SIGKILL. The workers
    # then exit.
    lifeline, alive = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_start_worker,
        initargs=(tokenizer, settings, lifeline),
    )
    running = collections.deque()
    try:
        for job in jobs:
            running.append(executor.submit(_work, job))
            if len(running) >= 2 * processes:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
        executor.shutdown()
    except concurrent.futures.process.BrokenProcessPool:
        raise RuntimeError(
            "a worker process died, most likely for lack of memory. Run again "
            f"with fewer `processes`. Received: processes={processes}."
        ) from None
    finally:
        alive.close()
        # Wait for the workers, which must not write after the temporary files
        # are removed.
        executor.shutdown(cancel_futures=True)
        lifeline.close()


_worker: dict[str, typing.Any] = {}


def _start_worker(tokenizer, settings, lifeline):
    # Ctrl-C reaches all processes of the group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # On Linux, a worker ends at once with its parent, so that no worker writes
    # to the next build. The thread below may have to wait long until a library
    # returns.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(
        target=_exit_without_parent, args=(lifeline,), daemon=True
    ).start()
    _worker.update(tokenizer=tokenizer, settings=settings)


def _exit_without_parent(lifeline):
    multiprocessing.connection.wait([lifeline])
    os._exit(1)


def _work(job):
    return finished_part(*job, **_worker)
