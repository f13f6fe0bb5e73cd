"""Rules of the release before and after SentencePiece: cleaning, digit commas.

`preprocess` defines the cleaning. Several blanks become one blank, and `` or ''
becomes a plain quote. If the model drops accents, characters are decomposed
(NFKD) and lose their combining marks. For uncased models, the text is
lowercased.

`compile_cleaning` combines these rules with the model's own character map and
writes the result as the map of the model's normalizer. So SentencePiece itself
cleans the text, both in Python and in a TensorFlow graph.

A rule of a map matches a single character, or a sequence of characters that the
model's own map contains. This has consequences:
- `str.lower` writes a sigma at the end of a word as U+03C2. If the vocabulary
  has U+03C2 or U+03C3, `final_sigma` replaces such sigmas before SentencePiece.
  Limit: a character such as U+2103 decomposes into several characters. If this
  character is between two sigmas, the second sigma may differ from the result
  of `str.lower`.
- The model's map composes the parts of a Hangul syllable, the parts of an Indic
  vowel, and a letter with its kept accent. If the cleaning removes a mark from
  between the parts, the parts are not composed.
- A user-defined symbol that the cleaning changes, such as "É", cannot occur in
  clean text. SentencePiece would search for the symbol before the cleaning. So
  the symbol becomes a normal piece if the model is a unigram model.
- Rules cannot merge several blanks, because a run of blanks may have any
  length. So the model's setting `remove_extra_whitespaces` is always True. This
  setting also merges blanks that the model's own map writes.

Lone surrogates and bytes that are not UTF-8 are replaced by U+FFFD before
SentencePiece.

`DigitCommas` is the digit-comma rule, as a table of ids. A piece that ends with
a digit and a comma, such as "70,", is split into the pieces of the digits and
the comma. If the vocabulary has no comma, a run of unknown characters that ends
with a digit and a comma is split into two unknown pieces.

Shapes: n texts, N ids of all texts together, V pieces of the vocabulary.

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
_CASELESS = ("Lo", "Cn", "Co")  # categories without case
_FEW_ACCENTS = 0.001  # share of characters without a note
# Value in `CommaTable.totals` for the comma after the digits.
COMMA = -2


def preprocess(text, lowercase=False, keep_accents=False):
    """Clean a text as the release does before SentencePiece.

    Args:
        text: str.
        lowercase: bool, whether to lowercase the text. Default False.
        keep_accents: bool, whether to keep accents. Default False. If True,
            this cleaning does not decompose characters. The model's own map,
            which SentencePiece applies later, may decompose or compose
            characters.

    Returns:
        str with single blanks and plain quotes. If accents are not kept, the
        str is decomposed (NFKD) and has no combining marks. A lone surrogate
        becomes U+FFFD.

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
    """Raise TypeError if a text is not a str."""
    if not isinstance(text, str):
        raise TypeError(
            "`text` must be a str. Received: "
            f"text={shown(text)} of type {type(text).__name__}. Decode "
            "bytes first: `text.decode('utf-8')`."
        )


def strip_accents(text):
    """Decompose a text (NFKD) and remove its combining marks."""
    text = unicodedata.normalize("NFKD", text)
    return "".join([c for c in text if not unicodedata.combining(c)])


def count_accents(text):
    """Count the accented characters and the separate accents of a text, int."""
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
    """Write a note for the user about the accents that a tokenizer removes.

    Args:
        accents: int, result of `count_accents`.
        characters: int, number of characters of the same text.

    Returns:
        str, or "" if at most one character in a thousand is affected.
    """
    if accents <= _FEW_ACCENTS * characters:
        return ""
    return (
        f"note: {accents / characters:.2%} of the characters of this text lose "
        "their accent or mark in this tokenizer, as in the released one; "
        "train_tokenizer --keep-accents makes one that keeps them"
    )


def replace_surrogates(text):
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


class CompiledCleaning(typing.NamedTuple):
    """SentencePiece model with compiled cleaning.

    The model replaces the characters in `blanks` by blanks, and removes the
    characters in `dropped` and `marks`.
    """

    model_proto: bytes
    blanks: frozenset  # characters that the cleaning replaces by blanks
    dropped: frozenset  # characters that the model's own map removes
    marks: frozenset  # combining marks, which belong to the letter before them
    has_sigma: bool  # whether texts must go through `final_sigma`
    keep_accents: bool  # setting of the model


@functools.lru_cache(maxsize=16)
def compile_cleaning(model_proto, lowercase=False):
    """Compile the released cleaning into a SentencePiece model.

    A call takes about 0.7 s for the first model of a process, and 0.1 s for
    another model with the same character map.

    Args:
        model_proto: bytes, a SentencePiece model. Its field `keep_accents`
            determines whether the cleaning keeps accents. The model's own map
            is applied to the result of the cleaning.
        lowercase: bool, whether to lowercase the text. Default False.

    Returns:
        CompiledCleaning.
    """
    model = model_file.ModelProto.FromString(model_proto)
    model.ClearField("sha256")  # it is the digest before this change
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
        # All other sequences cannot occur in clean text.
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
    """Replace the sigmas at ends of words as `str.lower` does.

    Args:
        text: str before the cleaning.
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
    """Make the patterns of a capital sigma and of a sigma that ends a word.

    Both patterns are valid in Python's `re` and in RE2. The second pattern has
    two groups, before and after the sigma. A letter with case must precede the
    sigma, and no letter with case may follow. Characters that Unicode calls
    case-ignorable may be in between.
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
    # Two equal quotes become a plain quote, which is not case-ignorable.
    quotes = "(?:'(?:`')*`?|`(?:'`)*'?)"
    gap = f"[{ignored}]*(?:{quotes}[{ignored}]+)*{quotes}?"
    return f"[{sigmas}]", (
        f"([{before}]{gap})[{sigmas}]"
        f"({gap}(?:{'|'.join(_QUOTES)}|[^{after}{ignored}`']|$))"
    )


@functools.cache
def blanks_class():
    """Make the RE2 class of the characters that `str.strip` removes."""
    return f"[{_character_ranges([c for c in _characters() if c.isspace()])}]"


def _characters():
    """Yield every character except surrogates, in order."""
    for code in itertools.chain(
        range(0xD800), range(0xE000, sys.maxunicode + 1)
    ):
        yield chr(code)


def _character_ranges(characters):
    """Write sorted characters as ranges for a regular expression."""
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
    """Convert a dict of characters' kinds to ranges, for a binary search.

    Args:
        kinds: dict of the codes of characters to their kinds, int.
        usual: int, the kind of all other characters.

    Returns:
        tuple of two int32 arrays. The first array, [ranges], has the first code
        of each range. The second array, [ranges + 1], has the kind of the codes
        before the first range, then the kind of each range.
    """
    limits, range_kinds = [], [usual]
    for code in sorted(kinds.keys() | {code + 1 for code in kinds}):
        if kinds.get(code, usual) != range_kinds[-1]:
            limits.append(code)
            range_kinds.append(kinds.get(code, usual))
    return np.array(limits, np.int32), np.array(range_kinds, np.int32)


@functools.cache
def _cleaned_characters(lowercase, keep_accents):
    """Return a dict of changed characters to their replacements."""
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
    """Return a dict of replacements to lists of the replaced characters."""
    variants = {}
    for source, to in _cleaned_characters(*options).items():
        variants.setdefault(to, []).append(source)
    return variants


def _sources(sequence, lowercase, keep_accents):
    """List `sequence` and other sequences whose cleaning gives `sequence`.

    If accents are removed and `sequence` has three characters, each other
    sequence is a pair: a character whose cleaning gives the first two
    characters of `sequence`, and the last character of `sequence`.
    """
    variants = _variants(lowercase, keep_accents)
    if len(sequence) == 2 or keep_accents:
        forms = ([c, *variants.get(c, ())] for c in sequence)
        return map("".join, itertools.product(*forms))
    # A composed syllable without its last part, which follows.
    composed = variants.get(sequence[:-1], ())
    return [sequence, *(c + sequence[-1] for c in composed)]


@functools.cache
def _changing_characters():
    # Only 19,000 of 1.1 million characters change, so most blocks are skipped.
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
    """List the characters and the sequences that a model's own map changes."""
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
    """Make a function that applies a model's own map and keeps all blanks.

    Args:
        model: ModelProto.

    Returns:
        function of a str that returns a str.
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
    sentencepiece.set_min_log_level(1)  # hide a message
    made = sentencepiece.SentencePieceNormalizer(norm_map=list(rules.items()))
    spec = model_file.ModelProto().normalizer_spec
    spec.ParseFromString(made.serialized_normalizer_spec())
    return spec.precompiled_charsmap


def _keep_clean_symbols(model, options):
    """Turn user-defined symbols that the cleaning changes into normal pieces.

    SentencePiece searches for user-defined symbols before it applies the map,
    but the release searches after the cleaning. The converted pieces get the
    scores that SentencePiece gives to user-defined symbols.
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
    """Flat table of the ids that the digit-comma rule splits.

    The parts of an id are the ids of the digits' pieces, and the id of the
    comma.

    Attributes:
        pieces: int32 array [S + 1], the S ids that the rule splits, in
            ascending order. The last value is larger than all ids and stands
            for a run of unknown characters.
        splits: int32 array [S + 2], index of the first part of each entry in
            `pieces`, then the number of all parts.
        ids: int32 array [parts], ids of the parts.
        begins, widths: int32 arrays [parts], offset and length of each part, in
            characters of the piece without its blank.
        totals: int32 array [parts]. COMMA if the part is the comma, -1 if the
            part is the run of unknown characters before the comma. Otherwise
            the number of the piece's characters before the comma.
    """

    pieces: np.ndarray
    splits: np.ndarray
    ids: np.ndarray
    begins: np.ndarray
    widths: np.ndarray
    totals: np.ndarray


class DigitCommas:
    """Digit-comma rule: split a comma from the digits before it.

    Args:
        pieces: list of V str.
        encode_pieces: function of a str that returns a list of str, the pieces
            from the model without the rule.

    Attributes:
        table: CommaTable.
        splits_unknown: bool, True if the vocabulary has no comma. Runs of
            unknown characters may then end with a comma.
    """

    def __init__(self, pieces, encode_pieces):
        self._ids = {}
        self._widths = {}
        numbers = {piece: index for index, piece in enumerate(pieces)}
        # This private-use character is unknown to any vocabulary.
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
        """Replace each id that the rule splits by the ids of its parts.

        Args:
            ids: list of int.

        Returns:
            list of int.
        """
        if self._ids.keys().isdisjoint(ids):
            return ids
        return [p for index in ids for p in self._ids.get(index, (index,))]

    def replace_flat(self, ids, lengths):
        """Replace ids as `replace` does, in many texts at once.

        Args:
            ids: int32 array [N], the ids of all texts, one text after the
                other.
            lengths: int64 array [n], number of ids of each text.

        Returns:
            tuple of the new `ids` and the new `lengths`.
        """
        places = np.flatnonzero(self._is_split[ids])
        if not len(places):
            return ids, lengths
        table = self.table
        rows = np.searchsorted(table.pieces, ids[places])
        begins, counts = table.splits[rows], np.diff(table.splits)[rows]
        ends = np.cumsum(counts, dtype=np.int64)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        # Position among the new ids of each split id's first part.
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
        """Apply the digit-comma rule to one piece and its span in the text.

        Args:
            index: int, id of the piece.
            piece: str, the piece that SentencePiece matched.
            begin: int, index of the piece's first character in the text.
            comma: int, index in the text of the piece's last character that is
                no blank, no combining mark and no removed character. If the
                rule applies, this character is the comma.
            end: int, end of the piece in the text, exclusive.

        Returns:
            list of (id, (begin, end)), one entry per part.
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
    """Split the comma from a piece that ends with a digit and a comma.

    Args:
        piece: str.
        encode_pieces: see `DigitCommas`.

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
    """Make the RE2 pattern of the texts that the digit-comma rule splits."""
    digits = [c for c in map(chr, range(0x20000)) if c.isdigit()]
    return f"(?s).*[{_character_ranges(digits)}],"


def ends_in_digit_comma(piece):
    """Whether a piece ends with a digit and a comma, as "70," does, bool."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
