"""Choice of held-out documents by a hash of their index in the text.

For fine-tuning, `data_pipeline.tasks.splitting` holds out examples.
"""

import collections
import contextlib
import hashlib
import heapq

from data_pipeline.records.schema import SPLITS
from data_pipeline.text.documents import PART_CHARACTERS
from data_pipeline.text.documents import PartPlanner

_HASHES = 1 << 64
# Upper bound of the average number of characters per token, in any language. A
# text with at least this number of characters per token of a sequence fills the
# sequence.
_MOST_CHARACTERS_OF_A_TOKEN = 8


def piece_characters(documents, settings):
    """Compute the size of the pieces into which a short text is cut.

    A short text with few documents is cut into pieces. Otherwise the held-out
    documents could be several times the requested fraction of the text.

    Args:
        documents: function that returns an iterator over all documents.
        settings: RecordSettings.

    Returns:
        int, minimum characters of a piece for `Corpus.divided`, or None to keep
        the documents whole. Documents stay whole if nothing is held out, if the
        text is long, or if the number of documents is at least 2 and at least
        0.25 / `validation_fraction`.
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
    """Number of characters that suffice for a sequence in any language, int."""
    return _MOST_CHARACTERS_OF_A_TOKEN * settings.sequence_length


def numbered_parts(documents, threshold, seed):
    """Assign documents to splits, and group each split's documents into parts.

    A part is a section of the text with its own shards, see `records.build`.

    Args:
        documents: iterable of Document.
        threshold: int from `validation_threshold`, or None.
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
    """Choose the split of a document.

    Args:
        number: int, index of the document in the whole text.
        threshold: int from `validation_threshold`, or None.
        seed: int.

    Returns:
        str.
    """
    held_out = threshold is not None and (
        _document_hash(seed, number) <= threshold
    )
    return SPLITS[held_out]


def validation_threshold(documents, settings):
    """Compute the threshold of the hash; documents up to it are held out.

    At least one document is held out, and at least one is kept for training. If
    the fraction is too small to hold out text for a sequence, it is raised, as
    far as the text allows. Documents are read until both splits have text for a
    sequence.

    Args:
        documents: function that returns an iterator over all documents.
        settings: RecordSettings.

    Returns:
        int, or None to hold out no documents.

    Raises:
        ValueError: the text is a single document that is too short to divide.
    """
    if not settings.validation_fraction:
        return None
    threshold = int(settings.validation_fraction * _HASHES) - 1
    enough = _enough(settings)
    count, second, highest = 0, -1, -1
    trained_on = held_out = total = 0
    # The documents with the lowest hashes that together have enough text.
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
