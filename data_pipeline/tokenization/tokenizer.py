"""Tokenizer with the same ids as the released preprocessing.

The steps and their order are the same as in the release: blanks, quotes,
accents, case, SentencePiece, commas after digits. The first four steps are
compiled into the SentencePiece model, see `cleaning`.
"""

import hashlib
import itertools
import os
import re

import numpy as np
import sentencepiece

from data_pipeline.base.files import as_path
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import shown
from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.cleaning import DigitCommas
from data_pipeline.tokenization.cleaning import check_text
from data_pipeline.tokenization.cleaning import compile_cleaning
from data_pipeline.tokenization.cleaning import final_sigma
from data_pipeline.tokenization.cleaning import replace_surrogates
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.symbols import missing_symbols

PUNCTUATION = frozenset('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
# Released pieces have at most 18 bytes. TensorFlow Text crashes the process if
# a piece has 200 KB.
MAX_PIECE_BYTES = 1000
# The released model has 0.8 MB. A model with 250,000 pieces has 5 MB.
_MOST_BYTES = 2**26

# Lines that a `vocab.txt` of BERT contains.
_WORD_PIECES = re.compile(rb"^\[(UNK|CLS|SEP)\]\r?$", re.MULTILINE)
_TRAIN = "python -m data_pipeline.train_tokenizer"


class Tokenizer:
    """SentencePiece tokenizer with the released text preprocessing.

    A pickled tokenizer contains the model and the compiled cleaning, so worker
    processes need no file and start quickly.

    Args:
        path: path of a SentencePiece model. Its first nine pieces must be
            `SPECIAL_SYMBOLS`.
        lowercase: bool, whether to lowercase texts, for uncased models. Default
            False.

    Attributes:
        path: str, or None for a tokenizer from `from_model_proto`.
        lowercase: bool, the argument.
        keep_accents: bool, whether texts keep accents. `train_tokenizer` stores
            this setting in the file.
        model_proto: bytes, the content of the file.
        digest: str, the SHA-256 of `model_proto` in hexadecimal.
        vocabulary_size: int, V.
        starts_word: bool array [V], True for a piece that begins a word. False
            for a byte piece such as <0xE4>, which is one byte of a character.
        cuts_at_blanks: bool, True if every word of a cleaned text has one blank
            before it, and no piece has a blank after its first character. A
            word then has the same ids in a text and alone.
        cleaning: CompiledCleaning. Its `model_proto` is a version of the model
            that also cleans the text, and `encode` uses this version.
        commas: DigitCommas.

    Example:

    ```python
    from data_pipeline import Tokenizer
    from data_pipeline.train_tokenizer import train_tokenizer
    lines = [f"{i} red apples and {i + 1} green pears." for i in range(99)]
    train_tokenizer(lines, "spiece.model", vocabulary_size=40)
    tokenizer = Tokenizer("spiece.model", lowercase=False)
    ids, offsets = tokenizer.encode_with_offsets("27 pears")
    ```

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a SentencePiece model, lacks the special
            symbols, or was changed after `train_tokenizer` wrote it.

    Source: `prepro_utils.preprocess_text`, `prepro_utils.encode_pieces`,
        `data_utils._is_start_piece`.
    """

    def __init__(self, path: str | os.PathLike, lowercase: bool = False):
        file, path = as_path(path), os.fspath(path)
        if file.is_dir():
            raise ValueError(
                "`path` must be a SentencePiece model file, not a directory. "
                f"Received: path={path!r}. Name the file inside it, such as "
                f"{os.path.join(path, 'spiece.model')!r}."
            )
        if not file.is_file():
            raise FileNotFoundError(
                "`path` must be a SentencePiece model file, and there is none. "
                f"Received: path={path!r}. Train one with `{_TRAIN}`, or use "
                "the `spiece.model` that came with the weights."
            )
        check_length(path, size_of(file), _MOST_BYTES)
        self._set_up(file.read_bytes(), lowercase, path)

    @classmethod
    def from_model_proto(cls, model_proto: bytes, lowercase: bool = False):
        """Make a tokenizer from the content of a model file.

        Args:
            model_proto: bytes.
            lowercase: bool, see `Tokenizer`. Default False.

        Returns:
            Tokenizer. Its `path` is None.
        """
        self = cls.__new__(cls)
        self._set_up(model_proto, lowercase, None)
        return self

    def __repr__(self):
        size = f"{self.vocabulary_size:,} pieces"
        return (
            f"<Tokenizer: {size}, lowercase={self.lowercase}, "
            f"keep_accents={self.keep_accents}>"
        )

    def __reduce__(self):
        content = self.model_proto, self.lowercase, self.path, self.cleaning
        return _restore, content

    def _set_up(self, model_proto, lowercase, path, cleaning=None):
        self.path = path
        self.lowercase = bool(lowercase)
        self.model_proto = model_proto
        self.digest = hashlib.sha256(model_proto).hexdigest()
        source = f"path={path!r}" if path else f"{len(model_proto)} bytes"
        if model_file.is_damaged(model_proto):
            raise ValueError(
                "the SentencePiece model is damaged: its bytes are not those "
                "that `train_tokenizer` wrote, whose SHA-256 it begins with. "
                f"Received: {source}. Copy the file again."
            )
        processor = _load(model_proto, source)
        self.vocabulary_size = processor.get_piece_size()
        ids = list(range(self.vocabulary_size))
        try:
            self._pieces = processor.id_to_piece(ids)
        except UnicodeDecodeError as error:
            raise _unfit(source, f"a piece is not UTF-8: {error}") from error
        _check_pieces(self._pieces, source)
        self.cleaning = cleaning or compile_cleaning(
            model_proto, self.lowercase
        )
        self.keep_accents = self.cleaning.keep_accents
        self._processor = _load(self.cleaning.model_proto, source)
        self._unseen = self.cleaning.blanks | self.cleaning.marks
        self._silent = self._unseen | self.cleaning.dropped
        # A piece such as <0xE4> is a single byte of a character.
        self._is_byte = processor.is_byte(ids)
        self.starts_word = np.array(
            [
                _starts_word(piece) and not is_byte
                for piece, is_byte in zip(
                    self._pieces, self._is_byte, strict=True
                )
            ]
        )
        self.commas = DigitCommas(
            self._pieces,
            lambda text: self._processor.encode(text, return_type=str),
        )
        self.cuts_at_blanks = self._processor.normalize(
            "a  b "
        ) == f"{BLANK}a{BLANK}b" and not any(
            BLANK in piece[1:] for piece in self._pieces
        )

    def encode(self, text: str) -> list[int]:
        """Tokenize a text into ids of the vocabulary.

        Args:
            text: str.

        Returns:
            list of int.

        Raises:
            TypeError: `text` is not a str.
        """
        if self.commas.splits_unknown:
            return self.encode_with_offsets(text)[0]
        return self.commas.replace(self._processor.encode(self._valid(text)))

    def encode_batch(self, texts, num_threads: int | None = None):
        """Tokenize many texts at once, on several threads.

        Args:
            texts: iterable of str, such as a list.
            num_threads: int, or None (default) for one thread per processor
                core.

        Returns:
            list of lists of int, in the order of `texts`.

        Raises:
            TypeError: `texts` is a single str, or a text is not a str.
        """
        if isinstance(texts, str):
            raise TypeError(
                "`texts` must be a list of str, not one str. Received: "
                f"texts={shown(texts)}. Call `encode` for a single text."
            )
        if self.commas.splits_unknown:
            return [self.encode(text) for text in texts]
        texts = [self._valid(text) for text in texts]
        rows = self._processor.encode(texts, num_threads=num_threads or -1)
        return [self.commas.replace(ids) for ids in rows]

    def encode_flat(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize many texts at once on this thread, into flat arrays.

        Args:
            texts: list of str.

        Returns:
            ids: int32 array, the ids of all texts, one text after the other.
            lengths: int64 array, number of ids of each text.
        """
        if self.commas.splits_unknown:
            rows = list(map(self.encode, texts))
        else:
            rows = self._processor.encode(
                list(map(self._valid, texts)), num_threads=1
            )
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        # Quicker than an array for each text.
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
        if self.commas.splits_unknown:
            return ids, lengths
        return self.commas.replace_flat(ids, lengths)

    def encode_with_offsets(self, text: str) -> tuple[list, list]:
        """Tokenize a text and find the place of each piece.

        The span of a piece does not include the blank before a word. A piece
        that is only this blank has an empty span after the preceding text.
        Removed accents belong to the span of the letter before them. The
        cleaning replaces some characters, such as U+2026, by several
        characters. A piece inside such a replacement has the span of the
        replaced character. If a piece begins before a replacement and ends
        inside it, the span ends before the replaced character. From each piece
        to the next, begin and end never decrease.

        Args:
            text: str.

        Returns:
            ids: list of int, as from `encode`.
            offsets: list of (begin, end), in characters of `text`.

        Raises:
            TypeError: `text` is not a str.
        """
        text = self._valid(text)
        mapping = self._processor.encode(text, return_type="offset_mapping")
        parts = []
        seen = (i for i, c in enumerate(text) if c not in self._unseen)
        blank = 0, next(seen, len(text))
        pieces = zip(
            *(mapping[key] for key in ("ids", "pieces", "offsets")), strict=True
        )
        for place, (index, piece, (begin, end)) in enumerate(pieces):
            is_blank = not self._pieces[index].strip(BLANK)
            # At the beginning of the text, the blank also has no character.
            is_inside = place > 0 and begin == end
            if is_blank and not is_inside:
                blank = begin, self._blank_place(text, begin, *blank)
                parts.append((index, blank[1:] * 2))
                continue
            begin, comma, end = self._span(text, begin, end)
            parts += self.commas.replace_with_spans(
                index, piece, begin, comma, end
            )
        return [index for index, _ in parts], [span for _, span in parts]

    def decode(self, ids) -> str:
        """Join the pieces of ids to a text, without control symbols.

        Args:
            ids: iterable of int, such as a list, an array or a tensor with one
                axis.

        Returns:
            str.

        Raises:
            ValueError: an id is outside of the vocabulary.
        """
        ids = [int(index) for index in ids]
        for index in ids:
            self._check_id(index)
        return self._processor.decode(ids)

    def id_to_piece(self, index: int) -> str:
        """Return the piece of an id.

        Args:
            index: int.

        Returns:
            str.

        Raises:
            ValueError: `index` is outside of the vocabulary.
        """
        self._check_id(index)
        return self._pieces[index]

    def piece_bytes(self, index: int) -> bytes:
        """Return the UTF-8 bytes of an id's piece in a text.

        A byte piece such as <0xE4> is one byte, which alone may be no valid
        UTF-8. The sign of a word's beginning is a blank.

        Args:
            index: int.

        Returns:
            bytes.

        Raises:
            ValueError: `index` is outside of the vocabulary.
        """
        piece = self.id_to_piece(index)
        if self._is_byte[index]:
            return bytes([int(piece[3:5], 16)])
        return piece.replace(BLANK, " ").encode()

    def piece_to_id(self, piece: str) -> int:
        """Return the id of a piece.

        Args:
            piece: str.

        Returns:
            int, or 0 (the id of <unk>) for a piece that the vocabulary lacks.
        """
        return self._processor.piece_to_id(piece)

    def _valid(self, text):
        """Make a text valid for SentencePiece without changing its length."""
        check_text(text)
        if text.isascii():
            return text
        text = replace_surrogates(text)
        if not self.cleaning.has_sigma:
            return text
        return final_sigma(text, self.keep_accents)

    def _span(self, text, begin, end):
        """Find the span of a piece, without blanks, and its last character.

        Returns:
            (begin, comma, end), see `DigitCommas.replace_with_spans`.
        """
        # If no character is left, SentencePiece ended inside the next
        # character.
        limit = end
        while begin < len(text) and text[begin] in self._silent:
            begin += 1
        if begin >= limit:
            return begin, begin, min(begin + 1, len(text))
        while text[limit - 1] in self._silent:
            limit -= 1
        last = limit - 1
        while limit < end and text[limit] in self.cleaning.marks:
            limit += 1
        return begin, last, limit

    def _blank_place(self, text, begin, last_begin, last_place):
        """Find the position directly after the text that precedes a blank.

        Args:
            text: str.
            begin: int, begin of the blank's span in SentencePiece.
            last_begin: int, `begin` of the previous blank. The text before
                `last_begin` is not read again.
            last_place: int, position of the previous blank.
        """
        place = begin
        while place > last_begin and text[place - 1] in self._silent:
            place -= 1
        if place == last_begin:
            place = last_place
        while place < begin and text[place] in self.cleaning.marks:
            place += 1
        return place

    def _check_id(self, index):
        if not 0 <= index < self.vocabulary_size:
            raise ValueError(
                "`ids` must lie in the vocabulary: expected 0 <= id < "
                f"{self.vocabulary_size}. Received: id={index}. Were they made "
                "with another SentencePiece model?"
            )


def _starts_word(piece):
    return piece.startswith((BLANK, "<")) or piece in PUNCTUATION


def _load(model_proto, source):
    processor = sentencepiece.SentencePieceProcessor()
    try:
        if not model_proto:
            raise RuntimeError("the file is empty")
        processor.LoadFromSerializedProto(model_proto)
    except RuntimeError as error:
        reason = model_file.refusal(error)
        if _WORD_PIECES.search(model_proto):
            reason = "it is the vocabulary of a WordPiece tokenizer, as BERT's"
        raise _unfit(source, reason) from error
    return processor


def _unfit(source, reason):
    return ValueError(
        "`path` must be a SentencePiece model, and this is not one: "
        f"{reason}. Received: {source}. Copy the file again, or train one "
        f"with `{_TRAIN}`."
    )


def _check_pieces(pieces, source):
    size = max(len(piece.encode()) for piece in pieces)
    if size > MAX_PIECE_BYTES:
        raise ValueError(
            "the SentencePiece model has a piece that is too long: expected "
            f"at most {MAX_PIECE_BYTES} bytes a piece. Received: {source} with "
            f"a piece of {size} bytes. The file is damaged; copy it again."
        )
    missing = missing_symbols(pieces)
    if missing:
        raise ValueError(
            "the SentencePiece model lacks special symbols of XLNet: expected "
            f"{', '.join(missing)}. Received: {source}, which begins with "
            f"{pieces[: len(SPECIAL_SYMBOLS)]}. Train one that has them with "
            f"`{_TRAIN}`."
        )


def _restore(*content):
    tokenizer = Tokenizer.__new__(Tokenizer)
    tokenizer._set_up(*content)
    return tokenizer
