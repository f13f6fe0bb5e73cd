"""Held-out documents, chosen by a hash of their number.

Examples of fine-tuning are held out by `data_pipeline.tasks.splitting`.
"""

import collections
import contextlib
import hashlib
import heapq

from data_pipeline.records.schema import SPLITS
from data_pipeline.text.documents import PART_CHARACTERS
from data_pipeline.text.documents import PartPlanner

_HASHES = 1 << 64
# An upper bound of the average in any language: a text of so many characters
# per token always fills a sequence.
_MOST_CHARACTERS_OF_A_TOKEN = 8


def piece_characters(documents, settings):
    """Size of the pieces of a short text with few documents.

    Whole documents could not be held out, or would make the held-out share
    several times the fraction.

    Args:
        documents: function that returns an iterator over all documents.
        settings: RecordSettings.

    Returns:
        int for `Corpus.divided`; None to keep the documents whole, if the
        fraction is at least a quarter of a document, or the text is long.
    """
    fraction = settings.validation_fraction
    if not fraction:
        return None
    count = total = 0
    with contextlib.closing(documents()) as stream:
        for document in stream:
            count, total = count + 1, total + len(document.text)
            if count >= max(2, 0.25 / fraction) or total > PART_CHARACTERS:
                return None
    return max(_enough(settings), int(total * fraction / 2))


def _enough(settings):
    """Number of characters that fill a sequence in any language, int."""
    return _MOST_CHARACTERS_OF_A_TOKEN * settings.sequence_length


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

    At least one sequence is held out, for any fraction, if the text keeps as
    much for training. Documents are read until each split has enough.

    Args:
        documents: function that returns an iterator over all documents.
        settings: RecordSettings.

    Returns:
        int or None.

    Raises:
        ValueError: the text is a single document, too short to divide.
    """
    if not settings.validation_fraction:
        return None
    threshold = int(settings.validation_fraction * _HASHES) - 1
    enough = _enough(settings)
    count, second, highest = 0, -1, -1
    trained_on = held_out = total = 0
    # Documents with the lowest hashes that are long enough together.
    heap, held_in_heap = [], 0
    with contextlib.closing(documents()) as stream:
        for number, document in enumerate(stream):
            count, size = count + 1, len(document.text)
            value = _document_hash(settings.seed, number)
            *_, second, highest = sorted((second, highest, value))
            total += size
            if value <= threshold:
                held_out += size
            else:
                trained_on += size
            if min(held_out, trained_on) >= enough:
                return threshold
            heapq.heappush(heap, (-value, size))
            held_in_heap += size
            while held_in_heap - heap[0][1] >= enough:
                held_in_heap -= heapq.heappop(heap)[1]
    if count < 2:
        raise ValueError(
            "`validation_fraction` needs some text to hold out and some to "
            "train on, and the text is a single short document. Give more "
            "text, or build a validation set of its own."
        )
    least = -max(heap)[0]
    if held_in_heap >= enough and total - held_in_heap >= enough:
        least = -heap[0][0]
    return min(max(threshold, least), second)


def _document_hash(seed, number):
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")
