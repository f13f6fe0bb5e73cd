"""Text -> record shards, over many processes.

The text is cut into parts of about four million characters, which are the unit
of work. Each makes its own shards, and all that is random in it follows from
the seed and the part's number, so the output is the same for any number of
processes, to the byte.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading

from data_pipeline import files
from data_pipeline.records import schema as features
from data_pipeline.records import writer as records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.tokenization import symbols

_Job = collections.namedtuple("_Job", "split number part path text_digest")


def build_records(
    pattern,
    tokenizer,
    output,
    settings=None,
    text_format="auto",
    encoding="utf-8",
    processes=1,
    overwrite=False,
    progress=None,
):
    """Builds a set of records from text.

    A build that was stopped, by whatever means, goes on from its finished
    parts when it is asked for again; a finished one is recognised.

    Args:
        pattern: str, a path or a glob of text files.
        tokenizer: Tokenizer.
        output: str or path of the directory to make.
        settings: RecordSettings, or None for the defaults.
        text_format: as in `data_pipeline.text.documents`.
        encoding: str.
        processes: int; the output does not depend on it.
        overwrite: bool, whether to replace a complete set, or a build that
            was stopped and is made from something else.
        progress: callable given the number of bytes of the files whose
            records were finished since its last call, or None.

    Returns:
        Manifest of the set.

    Raises:
        FileNotFoundError: no file matches.
        FileExistsError: there is a set already, made from something else.
        ValueError: settings or text that cannot be used, or not those of the
            build to go on with.
        OSError: the disk is full or the like.
    """
    from data_pipeline.records import restart
    from data_pipeline.text import documents as text_files

    settings = (settings or RecordSettings()).resolved()
    if processes < 1:
        raise ValueError(
            f"`processes` must be at least 1. Received: processes={processes}."
        )
    plan = restart.make_plan(
        text_files.find_files(pattern),
        tokenizer,
        settings,
        text_format,
        encoding,
    )
    progress = _Progress(progress)

    def documents(progress=None):
        return text_files.stream_documents(
            pattern, text_format, encoding, progress
        )

    def build(writer):
        return _build_parts(
            documents, tokenizer, settings, processes, writer, progress
        )

    return make_set(output, plan, tokenizer, settings, overwrite, build)


def make_set(output, plan, tokenizer, settings, overwrite, build):
    """Makes a set of parts, unless it is there.

    Args:
        output: str or path.
        plan: dict of `restart.make_plan`.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        overwrite: bool, as in `build_records`.
        build: callable that is given the RecordSetWriter and returns a list
            of BuiltPart, in order.

    Returns:
        Manifest.

    Raises:
        FileExistsError, ValueError, OSError: as from `build_records`.
    """
    from data_pipeline.records import restart

    if not overwrite:
        finished = restart.find_finished_set(os.fspath(output), plan)
        if finished is not None:
            return finished
    with records.RecordSetWriter(
        output,
        overwrite,
        lambda left: restart.may_go_on(left, plan, overwrite),
    ) as writer:
        try:
            path = writer.temporary_path(restart.PLAN)
            files.write_bytes(path, json.dumps(plan, indent=2).encode())
            manifest, names = make_manifest(build(writer), tokenizer, settings)
            names[restart.PLAN] = restart.PLAN
            writer.finish(manifest, names, tokenizer.model_proto)
        except restart.ChangedTextError:
            writer.keep = True
            raise
        except (OSError, RuntimeError, KeyboardInterrupt):
            # What is wrong is not the text, so another time may go well.
            writer.keep = restart.has_parts(writer.temporary_path(""))
            raise
    return manifest


def _build_parts(documents, tokenizer, settings, processes, writer, progress):
    """list of BuiltPart, of all parts in order."""
    from data_pipeline.records import held_out
    from data_pipeline.records import restart

    threshold = held_out.validation_threshold(documents, settings)
    parts = held_out.numbered_parts(
        documents(progress.read), threshold, settings.seed
    )

    def jobs():
        for split, number, part in parts:
            path = writer.temporary_path(f"{split}-{number}")
            digest = restart.text_digest(part)
            progress.begin_part()
            yield (
                _Job(split, number, part, path, digest),
                restart.load_part(path, digest),
            )

    built = []
    with contextlib.closing(
        _run_jobs(jobs(), tokenizer, settings, processes)
    ) as results:
        for part in results:
            built.append(part)
            progress.end_part()
    progress.end()
    return built


class _Progress:
    """Counts the bytes of a part when its records are there, not when its
    text is read, which runs ahead.

    Args:
        report: callable given a number of bytes, or None.
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

    def _report_up_to(self, place):
        self._report(place - self._reported)
        self._reported = place


def _run_jobs(jobs, tokenizer, settings, processes):
    """Builds parts, some at a time; yields a BuiltPart each, in order.

    Args:
        jobs: iterable of (_Job, BuiltPart or None); what is built already is
            passed through.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        processes: int.
    """
    if processes == 1:
        for job, built in jobs:
            yield built or _build(job, tokenizer, settings)
        return
    context = multiprocessing.get_context("spawn")
    # Closes when this process ends, however it does: then workers end too.
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
        # Waits, so that nobody writes after the temporary files are removed.
        executor.shutdown(cancel_futures=True)
        lifeline.close()


_worker = {}


def _start_worker(tokenizer, settings, lifeline):
    # Ctrl-C reaches the whole process group; the parent decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
    from data_pipeline.records import part as part_building
    from data_pipeline.records import restart

    built = part_building.build_part(*job[:4], tokenizer, settings)
    restart.save_part(job.path, job.text_digest, built)
    return built


def make_manifest(built, tokenizer, settings):
    """Puts together what parts have become.

    Args:
        built: list of BuiltPart, in order.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.

    Returns:
        Manifest, and a dict of each shard's file to its temporary name.

    Raises:
        ValueError: there is not a single record in a split.
    """
    from data_pipeline.records import manifest as manifests

    stored = features.stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    splits, names = {}, {}
    for split in features.SPLITS:
        shards = []
        for direction in settings.directions:
            for part in built:
                for place, *shard in part.shards:
                    if (place, shard[0]) != (split, direction):
                        continue
                    file = f"{split}-{len(shards):05d}.tfrecord"
                    names[file] = os.path.basename(shard[1])
                    shards.append(manifests.Shard(file, *shard[2:], direction))
        if shards:
            splits[split] = tuple(shards)
    totals = {
        "documents": sum(part.documents for part in built),
        "characters": sum(part.characters for part in built),
        "tokens": sum(part.tokens for part in built),
        "unknown_tokens": sum(part.unknown for part in built),
    }
    _check_splits(splits, totals, settings)
    options = dataclasses.asdict(settings)
    for name in ("frozen", "validation_fraction"):
        del options[name]
    return manifests.Manifest(
        **options,
        form=settings.form,
        tokenizer={
            "sha256": tokenizer.digest,
            "vocabulary_size": tokenizer.vocabulary_size,
            "lowercase": tokenizer.lowercase,
            "file": os.path.basename(tokenizer.path or records.TOKENIZER),
        },
        special_ids=symbols.SPECIAL_IDS,
        record_bytes=records.record_bytes(stored),
        features=stored,
        splits=splits,
        totals=totals,
    ), names


def _check_splits(splits, totals, settings):
    if "train" not in splits:
        raise ValueError(
            f"the text is too short for a single sequence: {totals['tokens']} "
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
