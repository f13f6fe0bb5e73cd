"""Text -> record shards, over many processes.

The unit of work is a part: about four million characters of text, which become
shards of their own; at the end these are joined where that is asked for. All
random draws of a part follow from the seed and the number of the part, so the
bytes of the output do not depend on the number of processes.
"""

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import typing

from data_pipeline.records import held_out
from data_pipeline.records import restart
from data_pipeline.records.manifest import Manifest
from data_pipeline.records.manifest import Shard
from data_pipeline.records.part import build_part
from data_pipeline.records.part import few_targets
from data_pipeline.records.part import join_shards
from data_pipeline.records.schema import SPLITS
from data_pipeline.records.schema import RecordSettings
from data_pipeline.records.schema import stored_features
from data_pipeline.records.tfrecord import record_bytes
from data_pipeline.records.writer import TOKENIZER
from data_pipeline.records.writer import RecordSetWriter
from data_pipeline.records.writer import remove_leftovers
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import TextError
from data_pipeline.tokenization.symbols import SPECIAL_IDS

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl

_Job = collections.namedtuple("_Job", "split number part path text_digest")


def build_records(
    text,
    tokenizer,
    output,
    settings=None,
    text_format="auto",
    encoding="utf-8",
    processes=1,
    overwrite=False,
    progress=None,
    on_bad_text="refuse",
    build_parts=None,
):
    """Build a set of records from text.

    The same call resumes an interrupted build from its finished parts, and
    returns the manifest of a finished set.

    Args:
        text: str or path, or several: a file or a glob of text files; or a
            Corpus, which has the format, the encoding and `on_bad_text`.
        tokenizer: Tokenizer.
        output: path of the directory of the set.
        settings: RecordSettings, or None for the defaults.
        text_format: as in `data_pipeline.text.documents`.
        encoding: str.
        processes: int; the output does not depend on it.
        overwrite: bool, whether to replace a complete set or an interrupted
            build that differ in text, tokenizer or settings, and other files
            of the same names.
        progress: function of the number of bytes of text files whose records
            were finished since its last call, or None.
        on_bad_text: as of `Corpus`.
        build_parts: function (corpus, tokenizer, settings, writer,
            may_differ) -> (list of BuiltPart, ReadLog), such as
            `beam.Builder`; None builds in processes of this machine.

    Returns:
        Manifest of the set.

    Raises:
        FileNotFoundError: no file matches.
        FileExistsError: the directory holds another set.
        ValueError: settings or text cannot be used, or differ from those of
            an interrupted build.
        OSError: the disk is full, or another error of the system.
        RuntimeError: another build writes to the directory, or there is not
            enough memory.
    """
    settings = (settings or RecordSettings()).resolved()
    if processes < 1:
        raise ValueError(
            f"`processes` must be at least 1. Received: processes={processes}."
        )
    corpus = text
    if not isinstance(text, Corpus):
        corpus = Corpus(text, text_format, encoding, on_bad_text)
    plan = restart.make_plan(corpus, tokenizer, settings)
    if not overwrite:
        finished = restart.find_finished_set(output, plan)
        if finished is not None:
            remove_leftovers(output)
            return finished
    build_parts = build_parts or functools.partial(
        _build_parts, processes=processes, progress=_Progress(progress)
    )
    with RecordSetWriter(
        output,
        tokenizer.model_proto,
        overwrite,
        lambda directory: restart.can_resume(directory, plan, overwrite),
    ) as writer:
        return _build_set(
            corpus, tokenizer, settings, plan, overwrite, writer, build_parts
        )


def _build_set(
    corpus, tokenizer, settings, plan, overwrite, writer, build_parts
):
    directory = writer.temporary_path("")
    may_differ = restart.begin(directory, plan) or overwrite
    with _finished_parts_kept(writer, plan):
        pieces = held_out.piece_characters(corpus.documents, settings)
        corpus = corpus.divided(pieces)
        built, log = build_parts(
            corpus, tokenizer, settings, writer, may_differ
        )
    _check_splits(built, settings)
    # Keep the parts: an error from here on may not recur in another attempt.
    writer.keep = True
    manifest, names = make_manifest(
        built, tokenizer, settings, corpus, log.bad_text
    )
    digests = [log.digests[path] for path in corpus.files]
    finished = restart.write_finished_plan(directory, plan, digests)
    writer.finish(manifest, names | finished)
    return manifest


@contextlib.contextmanager
def _finished_parts_kept(writer, plan):
    """Context manager that keeps finished parts, whatever stops a build."""
    directory = writer.temporary_path("")
    try:
        yield
    except BaseException as error:
        count = restart.count_parts(directory)
        writer.keep = count > 0
        kept = f"The same command goes on from {count} finished part(s)."
        if isinstance(error, MemoryError):
            raise RuntimeError(
                "there is not enough memory to build records. Run again with "
                f"fewer `processes`. {kept}"
            ) from error
        if isinstance(error, TextError) and count:
            restart.mark_for_repair(directory, plan)
            raise TextError(f"{error} {kept}") from error
        raise


def _build_parts(
    corpus, tokenizer, settings, writer, may_differ, processes, progress
):
    """Build all parts; returns a list of BuiltPart in order, and a ReadLog."""
    threshold = held_out.validation_threshold(corpus.documents, settings)
    log = ReadLog(progress.read)
    parts = held_out.numbered_parts(
        corpus.documents(log), threshold, settings.seed
    )

    def jobs():
        for split, number, part in parts:
            path = writer.temporary_path(f"{split}-{number}")
            digest = restart.text_digest(part)
            progress.begin_part()
            yield (
                _Job(split, number, part, path, digest),
                restart.load_part(path, digest, may_differ),
            )

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
    """Progress in bytes of text whose records are finished.

    Text is read ahead of that, so the bytes of a part are reported when its
    records are written.

    Args:
        report: function of a number of bytes, or None.
    """

    def __init__(self, report):
        self._report = report or (lambda size: None)
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
    """Build parts, in `processes` processes; yields BuiltParts in order.

    Args:
        jobs: iterable of (_Job, BuiltPart of a stopped build or None); only
            jobs with None are run.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        processes: int.
    """
    if processes == 1:
        for job, built in jobs:
            yield built or _build(job, tokenizer, settings)
        return
    context = multiprocessing.get_context("spawn")
    # The pipe closes when this process ends, even by SIGKILL, and workers
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
        for job, built in jobs:
            if built is None:
                running.append(executor.submit(_work, job))
            else:
                running.append(concurrent.futures.Future())
                running[-1].set_result(built)
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
        # Wait, so that no worker writes after temporary files are removed.
        executor.shutdown(cancel_futures=True)
        lifeline.close()


_worker: dict[str, typing.Any] = {}


def _start_worker(tokenizer, settings, lifeline):
    # Ctrl-C reaches the whole process group; the parent alone handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Die with the parent at once, so that no worker writes into the next build:
    # the thread below may wait long for a library to return. Only on Linux.
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
    return _build(job, **_worker)


def _build(job, tokenizer, settings):
    built = build_part(*job[:4], tokenizer, settings)
    restart.save_part(job.path, job.text_digest, built)
    return built


def make_manifest(built, tokenizer, settings, corpus, bad_text):
    """Manifest of the set that consists of the given parts.

    Args:
        built: list of BuiltPart, in order.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        corpus: Corpus.
        bad_text: dict of counts, as of ReadLog.

    Returns:
        tuple of Manifest and dict of each shard's file to its temporary name.
    """
    stored = stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    splits, names = {}, {}
    for split in SPLITS:
        shards = []
        for direction in settings.directions:
            found = [
                (path, written)
                for part in built
                for *kind, path, written in part.shards
                if kind == [split, direction]
            ]
            for path, written, starts in join_shards(
                found, settings.shard_bytes
            ):
                file = f"{split}-{len(shards):05d}.tfrecord"
                names[file] = os.path.basename(path)
                values = {**written._asdict(), "starts": starts}
                shards.append(Shard(file, direction=direction, **values))
        if shards:
            splits[split] = tuple(shards)
    totals = {
        "documents": sum(part.documents for part in built),
        "characters": sum(part.characters for part in built),
        "tokens": sum(part.tokens for part in built),
        "unknown_tokens": sum(part.unknown for part in built),
        **bad_text,
    }
    written = sum(part.written_unknown for part in built)
    # Each gives one to three tokens; the manifest has the field if many are
    # unknown because of it.
    if 5 * written > totals["unknown_tokens"]:
        totals["written_unknown"] = written
    totals |= few_targets(built, settings.num_predict)
    options = dataclasses.asdict(settings)
    for name in ("frozen", "validation_fraction", "shard_size"):
        del options[name]
    return Manifest(
        **options,
        form=settings.form,
        tokenizer={
            "sha256": tokenizer.digest,
            "vocabulary_size": tokenizer.vocabulary_size,
            "lowercase": tokenizer.lowercase,
            "file": os.path.basename(tokenizer.path or TOKENIZER),
        },
        special_ids=SPECIAL_IDS,
        record_bytes=record_bytes(stored),
        features=stored,
        splits=splits,
        totals=totals,
        text_format=corpus.reader.text_format,
    ), names


def _check_splits(built, settings):
    splits = {split for part in built for split, *_ in part.shards}
    if "train" not in splits:
        tokens = sum(part.tokens for part in built)
        raise ValueError(
            f"the text is too short for a single sequence: {tokens} "
            "tokens, and more than `sequence_length` = "
            f"{settings.sequence_length} are needed. Give more text, or a "
            "smaller --sequence-length."
        )
    if settings.validation_fraction and "validation" not in splits:
        raise ValueError(
            "the held-out text is too short for a single sequence of "
            f"{settings.sequence_length} tokens. Received: validation_fraction="
            f"{settings.validation_fraction}; use a larger one, or 0."
        )
