"""The released rules around SentencePiece: cleaning before, commas after.

`preprocess` is the definition of the cleaning: single blanks, plain quotes,
compatibility decomposition without combining marks (unless the model keeps
accents), lower case. `compile_cleaning` writes the same rules, followed by the
model's own, as the character map of the model's normalizer, so that
SentencePiece alone gives the released ids, in Python as in a TensorFlow graph.

A rule matches one character, or a sequence in the model's own map. Therefore:
- `str.lower` writes a sigma that ends a word as U+03C2. `final_sigma` does
  this before SentencePiece, if the vocabulary distinguishes the two.
  Limit: the second of two sigmas around one character that decomposes into
  several, such as U+2103.
- The model's map composes the parts of a Hangul syllable or of an Indic vowel,
  and letters with the accents that are kept, unless a dropped mark stands
  between them.
- A user-defined symbol that the cleaning changes, such as "É", cannot occur in
  clean text: it stays out of the symbols that SentencePiece looks for first.
- Blanks are joined for any settings of the model, also blanks that its own map
  makes.

Lone surrogates and bytes that are not UTF-8 become U+FFFD before SentencePiece.

`DigitCommas` is the digit-comma rule, as a table of ids: a piece that ends with
a digit and a comma, such as "70,", is split again into the pieces of the digits
and a comma. In a vocabulary without a comma, a run of unknown characters is
split too, into two unknown pieces.

Shapes: n texts, N ids of all texts together, V vocabulary.

Source: `prepro_utils.preprocess_text`, `prepro_utils.encode_pieces`.
"""

import functools
import itertools
import re
import sys
import typing
import unicodedata

import numpy as np
import sentencepiece

from data_pipeline.base.limits import shown
from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import UNKNOWN_ID

_SURROGATES = re.compile("[\ud800-\udfff]")
_QUOTES = ("``", "''")
FINAL_SIGMA = "\u03c2"
_SIGMA = "\u03a3"
_CASELESS = ("Lo", "Cn", "Co")  # categories without case, never ignored
_FEW_ACCENTS = 0.001  # share of the characters, not worth a note
# In `CommaTable.totals`, for the part behind the digits.
COMMA = -2


def preprocess(text, lowercase=False, keep_accents=False):
    """Clean a text as the release does before SentencePiece.

    Args:
        text: str.
        lowercase: bool, default False.
        keep_accents: bool, default False. True leaves characters as they are,
            so that only the model's own map changes them.

    Returns:
        str: single blanks, plain quotes, compatibility decomposition without
        combining marks. A lone surrogate becomes U+FFFD.

    Raises:
        TypeError: `text` is not a str.
    """
    check_text(text)
    text = " ".join(text.split())
    text = text.replace("``", '"').replace("''", '"')
    if not text.isascii():
        text = replace_surrogates(text if keep_accents else strip_accents(text))
    return text.lower() if lowercase else text


def check_text(text):
    """Refuse a text that is not a str."""
    if not isinstance(text, str):
        raise TypeError(
            "`text` must be a str. Received: "
            f"text={shown(text)} of type {type(text).__name__}. Decode "
            "bytes first: `text.decode('utf-8')`."
        )


def strip_accents(text):
    """Decompose a text (NFKD) and drop its combining marks."""
    text = unicodedata.normalize("NFKD", text)
    return "".join([c for c in text if not unicodedata.combining(c)])


def count_accents(text):
    """Number of characters that lose an accent or are one, int."""
    if text.isascii():
        return 0
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return int(np.count_nonzero(_is_accented()[codes]))


@functools.cache
def _is_accented():
    is_accented = np.zeros(sys.maxunicode + 1, bool)
    for character in _changing_characters():
        decomposed = unicodedata.normalize("NFKD", character)
        is_accented[ord(character)] = strip_accents(character) != decomposed
    return is_accented


def accents_note(accents, characters):
    """A line about accents that a tokenizer drops, for the commands.

    Args:
        accents: int, as `count_accents` counts them.
        characters: int, number of characters of the same text.

    Returns:
        str, empty for up to one character in a thousand.
    """
    if accents <= _FEW_ACCENTS * characters:
        return ""
    return (
        f"note: {accents / characters:.2%} of the characters of this text lose "
        "their accent or mark in this tokenizer, as in the released one; "
        "train_tokenizer --keep-accents makes one that keeps them"
    )


def replace_surrogates(text):
    """Replace lone surrogates, which UTF-8 cannot express, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


class CompiledCleaning(typing.NamedTuple):
    """A SentencePiece model that cleans text, and the characters it drops."""

    model_proto: bytes
    blanks: frozenset  # characters that the cleaning turns into blanks alone
    dropped: frozenset  # characters that the model's own map drops
    marks: frozenset  # combining marks, which belong to the letter before them
    has_sigma: bool  # whether texts must go through `final_sigma`
    keep_accents: bool  # the model's setting


@functools.lru_cache(maxsize=16)
def compile_cleaning(model_proto, lowercase=False):
    """Compile the released cleaning into a SentencePiece model.

    Takes about 0.7 s for the first model of a process, 0.1 s for another one
    with the same character map.

    Args:
        model_proto: bytes, a SentencePiece model; its own map is applied to
            the result of the cleaning. It records whether accents are kept.
        lowercase: bool, default False.

    Returns:
        CompiledCleaning.
    """
    model = model_file.ModelProto.FromString(model_proto)
    model.ClearField("sha256")  # the digest of the unchanged model
    options = lowercase, model.keep_accents
    cleaned = _cleaned_characters(*options)
    spec = model.normalizer_spec
    singles, sequences = _own_sources(
        spec.precompiled_charsmap, model.keep_accents
    )
    normalize = own_normalizer(model)
    rules = {
        source: normalize(cleaned.get(source, source))
        for source in cleaned.keys() | singles
    }
    rules = {source: to for source, to in rules.items() if to != source}
    for sequence in sequences:
        # Other sequences do not occur in clean text.
        if cleaned.keys().isdisjoint(sequence):
            to = normalize(sequence)
            for source in _sources(sequence, *options):
                rules[source] = to
    for quotes in _QUOTES:
        rules[quotes] = normalize('"')
    _keep_clean_symbols(model, options)
    spec.precompiled_charsmap = _compile(rules)
    spec.remove_extra_whitespaces = True
    silent = {
        source: to
        for source, to in {" ": " ", BLANK: BLANK, **rules}.items()
        if len(source) == 1 and not to.strip(f" {BLANK}")
    }
    marks = frozenset(source for source, to in cleaned.items() if not to)
    vocabulary = {c for entry in model.pieces for c in entry.piece}
    return CompiledCleaning(
        model_proto=model.SerializeToString(),
        blanks=frozenset(source for source, to in silent.items() if to),
        dropped=frozenset(s for s, to in silent.items() if not to) - marks,
        marks=marks,
        has_sigma=lowercase
        and (
            not vocabulary.isdisjoint("\u03c3\u03c2")
            or model.trainer_spec.byte_fallback
        ),
        keep_accents=model.keep_accents,
    )


def final_sigma(text, keep_accents=False):
    """Write the sigmas that end a word as `str.lower` does.

    Args:
        text: str, before the cleaning.
        keep_accents: bool, see `preprocess`.

    Returns:
        str of the same length.
    """
    sigmas, pattern = final_sigma_patterns(keep_accents)
    if not re.search(sigmas, text):
        return text
    return re.sub(pattern, rf"\1{FINAL_SIGMA}\2", text)


@functools.cache
def final_sigma_patterns(keep_accents):
    """Patterns of a capital sigma, and of a sigma that ends a word.

    Both are for Python's `re` and for RE2. The second has two groups, before
    and behind the sigma: a letter with case precedes it, and none follows.
    Characters that Unicode calls case-ignorable may stand between.
    """
    sigmas, before, after, ignored = [], [], [], []
    changing = set(_changing_characters())
    for character in _characters():
        if character not in changing and unicodedata.category(character) in (
            _CASELESS
        ):
            continue
        clean = character if keep_accents else strip_accents(character)
        if clean == _SIGMA:
            sigmas.append(character)
        if f"{clean}{_SIGMA}".lower()[-1] == FINAL_SIGMA:
            before.append(character)
        elif f"A{clean}{_SIGMA}".lower()[-1] == FINAL_SIGMA:
            if character not in "`'":
                ignored.append(character)
        if f"A{_SIGMA}{clean}".lower()[1] != FINAL_SIGMA:
            after.append(character)
    sigmas, before, after, ignored = map(
        _character_ranges, (sigmas, before, after, ignored)
    )
    # Two equal quotes become one that is not ignored.
    quotes = "(?:'(?:`')*`?|`(?:'`)*'?)"
    gap = f"[{ignored}]*(?:{quotes}[{ignored}]+)*{quotes}?"
    return f"[{sigmas}]", (
        f"([{before}]{gap})[{sigmas}]"
        f"({gap}(?:{'|'.join(_QUOTES)}|[^{after}{ignored}`']|$))"
    )


@functools.cache
def blanks_class():
    """RE2 class of the characters that `str.strip` removes."""
    return f"[{_character_ranges([c for c in _characters() if c.isspace()])}]"


def _characters():
    """Every character but surrogates, in order."""
    for code in itertools.chain(
        range(0xD800), range(0xE000, sys.maxunicode + 1)
    ):
        yield chr(code)


def _character_ranges(characters):
    """Sorted characters as the inside of a class of a regular expression."""
    ranges = []
    for character in characters:
        if ranges and ord(character) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(
        f"{re.escape(first)}-{re.escape(last)}"
        if first < last
        else re.escape(first)
        for first, last in ranges
    )


def kind_ranges(kinds, usual):
    """First codes of ranges, and the kind of character before and in each.

    Args:
        kinds: dict of a character's code to its kind, an int.
        usual: int, the kind of all other characters.

    Returns:
        int32 arrays [ranges] and [ranges + 1], for a binary search.
    """
    limits, range_kinds = [], [usual]
    for code in sorted(kinds.keys() | {code + 1 for code in kinds}):
        if kinds.get(code, usual) != range_kinds[-1]:
            limits.append(code)
            range_kinds.append(kinds.get(code, usual))
    return np.array(limits, np.int32), np.array(range_kinds, np.int32)


@functools.cache
def _cleaned_characters(lowercase, keep_accents):
    """Characters that the cleaning changes, with their replacements."""
    cleaned = {}
    for character in _changing_characters():
        to = character if keep_accents else strip_accents(character)
        to = " " if character.isspace() else to
        to = to.lower() if lowercase else to
        if to != character:
            cleaned[character] = to
    return cleaned


@functools.cache
def _variants(*options):
    """dict of each cleaned text to the characters that become it."""
    variants = {}
    for source, to in _cleaned_characters(*options).items():
        variants.setdefault(to, []).append(source)
    return variants


def _sources(sequence, lowercase, keep_accents):
    """Sequences that the cleaning turns into `sequence`, except rare ones.

    Where accents are dropped, mixed forms of three characters are left out.
    """
    variants = _variants(lowercase, keep_accents)
    if len(sequence) == 2 or keep_accents:
        forms = ([c, *variants.get(c, ())] for c in sequence)
        return map("".join, itertools.product(*forms))
    # A syllable that is composed before its last part follows.
    composed = variants.get(sequence[:-1], ())
    return [sequence, *(c + sequence[-1] for c in composed)]


@functools.cache
def _changing_characters():
    # 19,000 of 1.1 million characters change: most blocks are skipped whole.
    changing = []
    characters = iter(_characters())
    while block := "".join(itertools.islice(characters, 256)):
        if (
            block != unicodedata.normalize("NFKD", block)
            or block != block.lower()
            or any(map(unicodedata.combining, block))
            or block.split() != [block]
        ):
            changing.extend(block)
    return changing


@functools.lru_cache(maxsize=16)
def _own_sources(charsmap, keep_accents):
    """Single characters and sequences that a model's own map changes."""
    if not charsmap:
        return frozenset(), ()
    spec = model_file.ModelProto().normalizer_spec
    spec.precompiled_charsmap = charsmap
    rules = sentencepiece.SentencePieceNormalizer(
        normalizer_spec=spec
    ).decompile()
    accented = _cleaned_characters(False, keep_accents).keys()
    return (
        frozenset(source for source, _ in rules if len(source) == 1),
        tuple(
            source
            for source, _ in rules
            if len(source) > 1 and accented.isdisjoint(source)
        ),
    )


def own_normalizer(model):
    """The model's own map, which keeps blanks unchanged.

    Args:
        model: ModelProto.

    Returns:
        callable, str -> str.
    """
    bare = model_file.ModelProto()
    bare.CopyFrom(model)
    bare.normalizer_spec.add_dummy_prefix = False
    bare.normalizer_spec.remove_extra_whitespaces = False
    bare.normalizer_spec.escape_whitespaces = False
    return sentencepiece.SentencePieceProcessor(
        model_proto=bare.SerializeToString()
    ).normalize


def _compile(rules):
    sentencepiece.set_min_log_level(1)  # else it prints the map's size
    made = sentencepiece.SentencePieceNormalizer(norm_map=list(rules.items()))
    spec = model_file.ModelProto().normalizer_spec
    spec.ParseFromString(made.serialized_normalizer_spec())
    return spec.precompiled_charsmap


def _keep_clean_symbols(model, options):
    """Make symbols that the cleaning changes ordinary pieces.

    SentencePiece looks for user-defined symbols before it applies the map; the
    release looks for them after the cleaning. The pieces keep the scores of
    user-defined symbols.
    """
    if model.trainer_spec.model_type != model_file.UNIGRAM:
        return
    highest = max(
        (e.score for e in model.pieces if e.type == model_file.NORMAL),
        default=0.0,
    )
    for entry in model.pieces:
        piece = entry.piece
        if entry.type == model_file.USER_DEFINED and (
            preprocess(piece, *options) != piece or set(piece) & set("`'")
        ):
            entry.type = model_file.NORMAL
            entry.score = len(piece.encode()) * highest - 0.1


class CommaTable(typing.NamedTuple):
    """Flat table of the S ids that the rule splits, and their parts.

    Attributes:
        pieces: int32 array [S + 1], the ids in order; a larger number last,
            for a run of unknown characters.
        splits: int32 array [S + 2], index of the first part of each id.
        ids: int32 array [parts].
        begins, widths: int32 arrays [parts], in characters of the piece
            without its blank.
        totals: int32 array [parts], number of characters of all digits, -1 if
            not known; COMMA for the part behind the digits.
    """

    pieces: np.ndarray
    splits: np.ndarray
    ids: np.ndarray
    begins: np.ndarray
    widths: np.ndarray
    totals: np.ndarray


class DigitCommas:
    """Rule that splits commas off the digits before them.

    Args:
        pieces: list of V str.
        encode_pieces: callable, str -> list of str: the model without the rule.

    Attributes:
        table: CommaTable.
        splits_unknown: bool, True if the vocabulary has no comma. Then runs of
            unknown characters can end with one.
    """

    def __init__(self, pieces, encode_pieces):
        self._ids = {}
        self._widths = {}
        numbers = {piece: index for index, piece in enumerate(pieces)}
        # A private-use character stands for unknown characters.
        last = encode_pieces("\U000f00003,")[-1]
        self.splits_unknown = last.endswith(",") and last not in numbers
        for index, piece in enumerate(pieces):
            parts = split_comma(piece, encode_pieces)
            if parts:
                self._ids[index] = [
                    numbers.get(part, UNKNOWN_ID) for part in parts
                ]
                self._widths[index] = [
                    len(part.removeprefix(BLANK)) for part in parts[:-1]
                ]
        self.table = self._make_table()
        self._is_split = np.zeros(len(pieces), bool)
        self._is_split[list(self._ids)] = True

    def replace(self, ids):
        """Replace each id that the rule splits by its parts.

        Args:
            ids: list of int.

        Returns:
            list of int.
        """
        if self._ids.keys().isdisjoint(ids):
            return ids
        return [p for index in ids for p in self._ids.get(index, (index,))]

    def replace_flat(self, ids, lengths):
        """Replace the ids that the rule splits, in many texts at once.

        Args:
            ids: int32 array [N] of texts one after the other.
            lengths: int64 array [n], number of ids of each text.

        Returns:
            tuple of ids and lengths, likewise.
        """
        places = np.flatnonzero(self._is_split[ids])
        if not len(places):
            return ids, lengths
        table = self.table
        rows = np.searchsorted(table.pieces, ids[places])
        begins, counts = table.splits[rows], np.diff(table.splits)[rows]
        ends = np.cumsum(counts, dtype=np.int64)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        # Position of each id's first part among the new ids.
        target = places + (ends - counts) - np.arange(len(places))
        repeats = np.ones(len(ids), np.int64)
        repeats[places] = counts
        result = np.repeat(ids, repeats)
        result[np.repeat(target, counts) + within] = table.ids[
            np.repeat(begins, counts) + within
        ]
        text = np.searchsorted(np.cumsum(lengths), places, side="right")
        more = np.bincount(text, counts - 1, len(lengths)).astype(np.int64)
        return result, lengths + more

    def replace_with_spans(self, index, piece, begin, comma, end):
        """Split one id and its characters.

        Args:
            index: int.
            piece: str, the piece that SentencePiece matched.
            begin: int, the first character.
            comma: int, the last character before any marks on it.
            end: int, exclusive.

        Returns:
            list of (id, (begin, end)).
        """
        is_unknown = self.splits_unknown and index == UNKNOWN_ID
        if is_unknown and ends_in_digit_comma(piece):
            return [(index, (begin, comma)), (index, (comma, end))]
        if index not in self._ids:
            return [(index, (begin, end))]
        widths = self._widths[index]
        if sum(widths) == comma - begin:
            limits = begin + np.cumsum([0, *widths])
            limits = limits.tolist()
            spans = list(zip(limits[:-1], limits[1:], strict=True))
        else:
            spans = [(begin, comma)] * len(widths)
        return list(zip(self._ids[index], [*spans, (comma, end)], strict=True))

    def _make_table(self):
        pieces = sorted(self._ids)
        parts = []
        splits = [0]
        for index in pieces:
            *digits, comma = self._ids[index]
            widths = self._widths[index]
            parts += [
                (part, sum(widths[:place]), widths[place], sum(widths))
                for place, part in enumerate(digits)
            ]
            parts.append((comma, 0, 0, COMMA))
            splits.append(len(parts))
        parts += [(UNKNOWN_ID, 0, 0, -1), (UNKNOWN_ID, 0, 0, COMMA)]
        columns = np.array(parts, np.int32).reshape(-1, 4).T
        return CommaTable(
            np.array([*pieces, np.iinfo(np.int32).max], np.int32),
            np.array([*splits, len(parts)], np.int32),
            *columns,
        )


def split_comma(piece, encode_pieces):
    """Split the comma off a piece that ends with a digit and a comma.

    Args:
        piece: str.
        encode_pieces: callable, str -> list of str: the model without the rule.

    Returns:
        list of str, or None if the rule does not apply.
    """
    if not ends_in_digit_comma(piece):
        return None
    parts = encode_pieces(piece[:-1].replace(BLANK, ""))
    if parts and piece[0] != BLANK and parts[0][0] == BLANK:
        parts = ([parts[0][1:]] if len(parts[0]) > 1 else []) + parts[1:]
    return [*parts, ","]


@functools.cache
def digit_comma_pattern():
    """RE2 pattern of the pieces that the rule splits."""
    digits = [c for c in map(chr, range(0x20000)) if c.isdigit()]
    return f"(?s).*[{_character_ranges(digits)}],"


def ends_in_digit_comma(piece):
    """Whether the rule splits a piece, such as "70,", bool."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
