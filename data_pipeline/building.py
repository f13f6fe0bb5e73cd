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
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import typing

from data_pipeline import features
from data_pipeline import symbols
from data_pipeline.settings import Settings


class BuiltPart(typing.NamedTuple):
    """What one part has become."""

    shards: (
        list  # of (split, direction, temporary path, records, bytes, sha256)
    )
    documents: int
    characters: int
    tokens: int
    unknown: int


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

    Args:
        pattern: str, a path or a glob of text files.
        tokenizer: Tokenizer.
        output: str or path of the directory to make.
        settings: Settings, or None for the defaults.
        text_format: as in `data_pipeline.text_files`.
        encoding: str.
        processes: int; the output does not depend on it.
        overwrite: bool, whether to replace a complete set.
        progress: callable given the number of bytes read, or None.

    Returns:
        Manifest of the set.

    Raises:
        FileNotFoundError: no file matches.
        FileExistsError: there is a set already.
        ValueError: settings or text that cannot be used.
        OSError: the disk is full or the like.
    """
    from data_pipeline import records
    from data_pipeline import splitting
    from data_pipeline import text_files

    settings = (settings or Settings()).resolved()
    if processes < 1:
        raise ValueError(
            f"`processes` must be at least 1. Received: processes={processes}."
        )

    def documents(progress=None):
        return text_files.stream_documents(
            pattern, text_format, encoding, progress
        )

    threshold = splitting.validation_threshold(documents, settings)
    with records.RecordSetWriter(output, overwrite) as writer:
        parts = splitting.numbered_parts(
            documents(progress), threshold, settings.seed
        )
        jobs = (
            (split, number, part, writer.temporary_path(f"{split}-{number}"))
            for split, number, part in parts
        )
        with contextlib.closing(
            _run_jobs(jobs, tokenizer, settings, processes)
        ) as results:
            built = list(results)
        manifest, names = _manifest(built, tokenizer, settings)
        writer.finish(manifest, names, tokenizer.model_proto)
    return manifest


def build_part(split, number, part, path, tokenizer, settings):
    """Tokenizes a part, cuts it into sequences, and writes its shards.

    Args:
        split: str.
        number: int, the part's number in its split.
        part: list of Document.
        path: str, the temporary path that the shards' names begin with.
        tokenizer: Tokenizer.
        settings: Settings, resolved.

    Returns:
        BuiltPart.
    """
    import numpy as np

    from data_pipeline import records
    from data_pipeline import segments

    sentences = [document.sentences() for document in part]
    flat = tokenizer.encode_batch([s for group in sentences for s in group], 1)
    ids = iter(flat)
    stream = segments.token_stream(
        ([next(ids) for _ in group] for group in sentences),
        settings.end_of_document,
    )
    stored = features.stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    shards = []
    for direction in settings.directions:
        values = _record_values(
            stream, split, number, direction, tokenizer.starts_word, settings
        )
        if not len(values["is_next"]):
            continue
        target = f"{path}-{direction}"
        # Split, part and direction take the place of an epoch.
        stream_number = (
            4 * number
            + 2 * features.SPLITS.index(split)
            + features.DIRECTIONS.index(direction)
        )
        chunks = _encoded_chunks(values, stored, stream_number, settings)
        shards.append(
            (split, direction, target, *records.write_shard(target, chunks))
        )
    return BuiltPart(
        shards,
        len(part),
        sum(len(document.text) for document in part),
        len(stream.token_ids),
        int(np.count_nonzero(stream.token_ids == symbols.UNKNOWN_ID)),
    )


def _record_values(stream, split, number, direction, starts_word, settings):
    """The arrays of all records of a part in one direction."""
    import numpy as np

    from data_pipeline import segments
    from data_pipeline import targets

    backward = direction == "backward"
    rng = np.random.default_rng(
        [settings.seed, features.SPLITS.index(split), number, int(backward)]
    )
    if backward:
        stream = segments.reverse_stream(stream)
    sequences = segments.build_sequences(
        stream, settings.sequence_length, settings.reuse_length, rng
    )
    is_target = targets.sample_targets(
        sequences.token_ids,
        starts_word,
        rng,
        settings.reuse_length,
        settings.num_predict,
        settings.tokens_per_target,
        settings.spans,
        is_reversed=backward,
    )
    return {
        **sequences._asdict(),
        "is_target": is_target,
        "is_reversed": np.full(len(is_target), backward, np.uint8),
    }


def _encoded_chunks(values, stored, stream_number, settings):
    from data_pipeline import records

    at_once = records.records_at_once(stored)
    for begin in range(0, len(values["is_next"]), at_once):
        chunk = {
            name: value[begin : begin + at_once]
            for name, value in values.items()
        }
        if settings.frozen:
            chunk |= _frozen(chunk, begin, stream_number, settings)
        yield records.encode_records(chunk, stored)


def _frozen(chunk, first_record, stream_number, settings):
    """Draws the permutations of records for good."""
    import tensorflow as tf

    from data_pipeline import permutation

    token_ids = tf.constant(chunk["token_ids"])
    is_target = tf.constant(chunk["is_target"])
    real = permutation.real_targets(token_ids, is_target)
    index = tf.range(first_record, first_record + len(chunk["token_ids"]))
    rank = permutation.factorization_rank(
        token_ids,
        is_target,
        permutation.draw_shuffles(
            settings.seed,
            tf.fill(index.shape, stream_number),
            index,
            settings.sequence_length,
            settings.reuse_length,
            settings.permutation_length,
        ),
        settings.reuse_length,
    )
    positions, _, weights = permutation.select_targets(
        token_ids, real, settings.num_predict
    )
    return {
        "perm_mask": permutation.perm_mask(rank, real).numpy(),
        "target_mapping": permutation.target_mapping(
            positions, weights, settings.sequence_length
        ).numpy(),
    }


def _run_jobs(jobs, tokenizer, settings, processes):
    """Builds parts, some at a time; yields a BuiltPart each, in order."""
    if processes == 1:
        for job in jobs:
            yield build_part(*job, tokenizer, settings)
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
    return build_part(*job, **_worker)


def _manifest(built, tokenizer, settings):
    """The manifest, and the temporary name of each shard."""
    from data_pipeline import manifest as manifests
    from data_pipeline import records

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
