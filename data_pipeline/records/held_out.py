"""Held-out documents, chosen by a hash of their number.

Examples of fine-tuning are held out by `data_pipeline.tasks.reading.hold_out`.
"""

import collections
import contextlib
import hashlib

from data_pipeline.records.schema import SPLITS
from data_pipeline.text.documents import PartPlanner

_HASHES = 1 << 64


def numbered_parts(documents, threshold, seed):
    """Distribute documents over the splits and group them into parts.

    Args:
        documents: iterable of Document.
        threshold: int of `validation_threshold`, or None.
        seed: int.

    Yields:
        (split, number of the part in the split, list of Document).
    """
    planners = {split: PartPlanner() for split in SPLITS}
    counts = collections.Counter()

    def number_all(split, parts):
        for part in parts:
            yield split, counts[split], part
            counts[split] += 1

    for number, document in enumerate(documents):
        split = split_of(number, threshold, seed)
        yield from number_all(split, planners[split].add(document))
    for split, planner in planners.items():
        yield from number_all(split, planner.finish())


def split_of(number, threshold, seed):
    """Split of a document.

    Args:
        number: int, index of the document in the whole text.
        threshold: int of `validation_threshold`, or None.
        seed: int.

    Returns:
        str.
    """
    held_out = threshold is not None and (
        _document_hash(seed, number) <= threshold
    )
    return SPLITS[held_out]


def validation_threshold(documents, settings):
    """Largest hash of a held-out document, or None to hold out none.

    Documents are read until each split has one.

    Args:
        documents: function that returns an iterator over all documents.
        settings: RecordSettings.

    Returns:
        int or None.

    Raises:
        ValueError: the text is a single document.
    """
    if not settings.validation_fraction:
        return None
    threshold = int(settings.validation_fraction * _HASHES) - 1
    count, lowest, highest, second = 0, _HASHES, -1, -1
    with contextlib.closing(documents()) as stream:
        for number, _ in enumerate(stream):
            count += 1
            value = _document_hash(settings.seed, number)
            lowest = min(lowest, value)
            *_, second, highest = sorted((second, highest, value))
            if lowest <= threshold < highest:
                return threshold
    if count < 2:
        raise ValueError(
            "`validation_fraction` needs at least two documents, one to hold "
            "out and one to train on, and the text is a single one. Is "
            "`text_format` right? Or build a validation set of its own."
        )
    return lowest if threshold < lowest else second


def _document_hash(seed, number):
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")
