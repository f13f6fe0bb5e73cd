"""Build of a set of records from text.

The unit of work is a part, a section of about four million characters of text.
Each part has its own shards. If the setting `shard_size` is given, the last
step joins shards up to this size.
All random draws of a part depend only on the seed, the split and the number of
the part. So the bytes of the output do not depend on the number of processes.

The directory of a set is in one of three states:

- Complete: it has a manifest. A build without `overwrite` and with the same
  plan (text, tokenizer and settings, see `plan`) returns this set.
- Begun: its temporary directory has finished parts and their plan. A build with
  the same plan continues from these parts.
- Neither of these: a new build begins.

If the directory has another plan than the build, the build is refused. With
`overwrite`, the build begins anew instead.
"""

import dataclasses
import functools
import os

from data_pipeline.base.files import as_path
from data_pipeline.records import held_out
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import Manifest
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.part import count_parts
from data_pipeline.records.part import join_shards
from data_pipeline.records.plan import LIBRARIES
from data_pipeline.records.plan import PLAN
from data_pipeline.records.plan import changed_text
from data_pipeline.records.plan import make_plan
from data_pipeline.records.plan import plan_difference
from data_pipeline.records.plan import read_plan
from data_pipeline.records.plan import write_plan
from data_pipeline.records.processes import build_in_processes
from data_pipeline.records.schema import SPLITS
from data_pipeline.records.schema import RecordSettings
from data_pipeline.records.schema import stored_features
from data_pipeline.records.tfrecord import record_bytes
from data_pipeline.records.writer import TOKENIZER
from data_pipeline.records.writer import RecordSetWriter
from data_pipeline.records.writer import clean_up
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import TextError
from data_pipeline.tokenization.cleaning import accents_note
from data_pipeline.tokenization.symbols import SPECIAL_IDS


def build_records(
    text,
    tokenizer,
    output,
    settings=None,
    processes=1,
    overwrite=False,
    progress=None,
    build_parts=None,
):
    """Build a set of records from text.

    If a build was interrupted, the same call continues from its finished parts.
    If the set is complete, the same call without `overwrite` only returns the
    manifest.

    Args:
        text: path or glob (str or path-like) of text files, a list of these, or
            a Corpus. Files are read as UTF-8 in a guessed format. A Corpus
            chooses the format, the encoding and the treatment of bad text.
        tokenizer: Tokenizer.
        output: path of the directory for the set.
        settings: RecordSettings, or None for the defaults.
        processes: int, number of processes. The output does not depend on it.
        overwrite: bool, whether to replace a complete set, and other files that
            are named like files of a set. True also removes the finished parts
            of an interrupted build with another plan. Default False.
        progress: function of a number of bytes, or None. Each call passes the
            number of bytes of text finished since the last call. Text is
            finished when its records are written. For a complete set, each call
            passes the size of an unchanged text file.
        build_parts: function such as a `beam.Builder`, or None to build in
            processes of this machine. The function maps (corpus, tokenizer,
            settings, directory of the parts) to (list of BuiltPart, ReadLog).

    Returns:
        Manifest of the set.

    Raises:
        FileNotFoundError: no text file is found.
        FileExistsError: the directory contains another set.
        ValueError: the settings or the text cannot be used, or an interrupted
            build has another plan.
        OSError: a system error, such as a full disk.
        RuntimeError: another build writes to the directory, or there is not
            enough memory.
    """
    settings = (settings or RecordSettings()).resolved()
    if processes < 1:
        raise ValueError(
            f"`processes` must be at least 1. Received: processes={processes}."
        )
    corpus = text if isinstance(text, Corpus) else Corpus(text)
    plan = make_plan(corpus, tokenizer, settings)
    progress = progress or (lambda size: None)
    complete = _complete_set(output, plan, corpus, overwrite, progress)
    if complete is not None:
        return complete
    build_parts = build_parts or functools.partial(
        build_in_processes, processes=processes, report=progress
    )
    with RecordSetWriter(output, tokenizer.model_proto, overwrite) as writer:
        _begin(writer, plan, overwrite)
        return _build_set(
            corpus, tokenizer, settings, plan, writer, build_parts
        )


def _complete_set(output, plan, corpus, overwrite, report):
    """Return the manifest of a complete set with the same plan.

    Returns:
        Manifest, or None if there is no complete set or `overwrite` replaces
        the set.

    Raises:
        FileExistsError: the set has another plan, and `overwrite` is False.
    """
    # An earlier call may have been stopped in its last step. Complete its set,
    # also with `overwrite`.
    was_completed = clean_up(output)
    if not (as_path(output) / MANIFEST).exists():
        return None
    if overwrite and not was_completed:
        return None
    before = read_plan(output)
    # A complete set is valid whatever library versions have built it.
    differs = plan_difference(before, plan, LIBRARIES)
    differs = differs or changed_text(before, corpus.files, report)
    if differs is None:
        return read_manifest(output)
    if overwrite:
        return None
    raise FileExistsError(
        f"{output} holds a set of records already, and {differs}. Choose "
        "another `output`, or give `overwrite` (--overwrite)."
    )


def _begin(writer, plan, overwrite):
    """Keep parts of the same plan; refuse or remove parts of another plan."""
    directory = writer.building
    count, differs = count_parts(directory), None
    if count:
        differs = plan_difference(read_plan(directory), plan)
    if differs and not overwrite:
        raise ValueError(
            f"{directory} holds {count} finished part(s) of a build that was "
            f"stopped, and {differs}. Give the same command as then, with the "
            "same libraries, to go on with it, `overwrite` (--overwrite) to "
            "start again, or another `output`."
        )
    if differs or not count:
        writer.clear()
    write_plan(directory, plan)


def _build_set(corpus, tokenizer, settings, plan, writer, build_parts):
    """Build the parts, complete the set and return its Manifest."""
    directory = os.fspath(writer.building)
    kept = "The same command goes on from {} finished part(s)"
    try:
        pieces = held_out.piece_characters(corpus.documents, settings)
        corpus = corpus.divided(pieces)
        built, log = build_parts(corpus, tokenizer, settings, directory)
    except MemoryError as error:
        raise RuntimeError(
            "there is not enough memory to build records. Run again with "
            f"fewer `processes`. {kept.format(count_parts(directory))}."
        ) from error
    except TextError as error:
        count = count_parts(directory)
        if not count:
            raise
        raise TextError(
            f"{error} {kept.format(count)}; after a change of the text, "
            "`overwrite` (--overwrite) begins anew."
        ) from error
    try:
        _check_splits(built, settings)
    except ValueError:
        writer.clear()  # these parts cannot be used
        raise
    manifest, names = make_manifest(
        directory, built, tokenizer, settings, corpus, log.bad_text
    )
    digests = [log.digests[path] for path in corpus.files]
    write_plan(directory, plan, digests)
    writer.finish(manifest, {**names, PLAN: PLAN})
    return manifest


def make_manifest(directory, built, tokenizer, settings, corpus, bad_text):
    """Join the shards of the built parts, and make the manifest of the set.

    Args:
        directory: str, directory of the parts. Joined shards are written there.
        built: list of BuiltPart, in order.
        tokenizer: Tokenizer.
        settings: RecordSettings with all defaults filled in.
        corpus: Corpus.
        bad_text: dict of counts of bad text, see ReadLog.

    Returns:
        tuple of a Manifest and a dict. The keys of the dict are the final names
        of the shards, and the values are their temporary names.
    """
    stored = stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
        settings.form,
    )
    splits, names = _placed_shards(directory, built, settings)
    totals = {
        "documents": sum(part.documents for part in built),
        "sentences": sum(part.sentences for part in built),
        "characters": sum(part.characters for part in built),
        "tokens": sum(part.tokens for part in built),
        "unknown_tokens": sum(part.unknown for part in built),
        **bad_text,
    }
    written = sum(part.written_unknown for part in built)
    # The text <unk> gives one to three unknown tokens. Store the count if these
    # tokens are a large share of all unknown tokens.
    if 5 * written > totals["unknown_tokens"]:
        totals["written_unknown"] = written
    accents = sum(part.dropped_accents for part in built)
    # Store the count only if the command prints a note about it.
    if accents_note(accents, totals["characters"]):
        totals["dropped_accents"] = accents
    targets = sum(part.targets for part in built)
    num_records = sum(x.records for part in built for x in part.shards)
    # Store the count if fewer than half of the possible targets exist.
    if 2 * targets < settings.num_predict * num_records:
        totals["targets"] = targets
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
            "keep_accents": tokenizer.keep_accents,
            "file": os.path.basename(tokenizer.path or TOKENIZER),
        },
        special_ids=SPECIAL_IDS,
        record_bytes=record_bytes(stored),
        features=stored,
        splits=splits,
        totals=totals,
        text_format=corpus.reader.text_format,
    ), names


def _placed_shards(directory, built, settings):
    """Join the shards of each split and choose their final names."""
    splits, names = {}, {}
    for split in SPLITS:
        shards = []
        for direction in settings.directions:
            separate = [
                shard
                for part in built
                for shard in part.shards
                if (part.split, shard.direction) == (split, direction)
            ]
            for shard in join_shards(directory, separate, settings.shard_bytes):
                file = f"{split}-{len(shards):05d}.tfrecord"
                names[file] = shard.file
                shards.append(dataclasses.replace(shard, file=file))
        if shards:
            splits[split] = tuple(shards)
    return splits, names


def _check_splits(built, settings):
    splits = {part.split for part in built if part.shards}
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
