"""Text -> SentencePiece ids exactly as the released preprocessing gives them.

The order of the steps matters and is the release's: blanks, quotes, accents,
case, SentencePiece, and last the comma after a digit.
"""

import hashlib
import os

import numpy as np
import sentencepiece

from data_pipeline.tokenization.cleaning import align
from data_pipeline.tokenization.cleaning import original_span
from data_pipeline.tokenization.cleaning import part_spans
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.cleaning import shorten
from data_pipeline.tokenization.cleaning import split_comma
from data_pipeline.tokenization.flat_encoding import CommaTable
from data_pipeline.tokenization.flat_encoding import preprocess_all
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.symbols import UNKNOWN_ID

PUNCTUATION = frozenset('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
# The released pieces have 18 bytes at most. TensorFlow Text crashes the process
# on one of 200 KB.
MAX_PIECE_BYTES = 1000

_TRAIN = "python -m data_pipeline.train_tokenizer"


class Tokenizer:
    """The released text preprocessing and SentencePiece model.

    Pickles by content, so that workers need not see the file.

    Args:
        path: str or path of a SentencePiece model whose first nine pieces are
            `SPECIAL_SYMBOLS`.
        lowercase: bool, default False. True for weights trained on uncased
            text.

    Attributes:
        path: str, or None if made by `from_model_proto`.
        lowercase: bool.
        model_proto: bytes, the content of the file.
        digest: str, the SHA-256 of `model_proto` in hexadecimal.
        vocabulary_size: int, V.
        starts_word: bool array [V], True where a piece begins a word.
        cuts_at_blanks: bool, whether no piece goes across a blank, so that
            words give the same ids together and apart.
        splits_unknown: bool, whether the digit-comma rule can meet unknown
            pieces: the vocabulary has no comma.

    Raises:
        FileNotFoundError: there is no file at `path`.
        ValueError: the file is not a SentencePiece model, or lacks the special
            symbols.

    Source: `prepro_utils.preprocess_text`, `prepro_utils.encode_pieces`,
        `data_utils._is_start_piece`.
    """

    def __init__(self, path, lowercase=False):
        path = os.fspath(path)
        if os.path.isdir(path):
            raise ValueError(
                "`path` must be a SentencePiece model file, not a directory. "
                f"Received: path={path!r}. Name the file inside it, such as "
                f"{os.path.join(path, 'spiece.model')!r}."
            )
        if not os.path.isfile(path):
            raise FileNotFoundError(
                "`path` must be a SentencePiece model file, and there is none. "
                f"Received: path={path!r}. Train one with `{_TRAIN}`, or use "
                "the `spiece.model` that came with the weights."
            )
        with open(path, "rb") as file:
            model_proto = file.read()
        self._set_up(model_proto, lowercase, path)

    @classmethod
    def from_model_proto(cls, model_proto, lowercase=False):
        """Makes a tokenizer from the bytes of a model file.

        Args:
            model_proto: bytes.
            lowercase: bool, default False.

        Returns:
            Tokenizer, whose `path` is None.

        Raises:
            ValueError: as the constructor.
        """
        self = cls.__new__(cls)
        self._set_up(model_proto, lowercase, None)
        return self

    def __reduce__(self):
        return _restore, (self.model_proto, self.lowercase, self.path)

    def _set_up(self, model_proto, lowercase, path):
        self.path = path
        self.lowercase = bool(lowercase)
        self.model_proto = model_proto
        self.digest = hashlib.sha256(model_proto).hexdigest()
        source = f"path={path!r}" if path else f"{len(model_proto)} bytes"
        self._processor = _load(model_proto, source)
        self.vocabulary_size = self._processor.get_piece_size()
        self._pieces = self._processor.id_to_piece(
            list(range(self.vocabulary_size))
        )
        _check_pieces(self._pieces, source)
        self.starts_word = np.array([_starts_word(p) for p in self._pieces])
        self._blanks = {" ": True}
        self._comma_parts = {}
        for index, piece in enumerate(self._pieces):
            parts = split_comma(piece, self._encode_pieces)
            if parts:
                self._comma_parts[index] = parts
        self._comma_ids = {
            index: [self.piece_to_id(part) for part in parts]
            for index, parts in self._comma_parts.items()
        }
        self._comma_table = CommaTable(self._comma_ids, self.vocabulary_size)
        # A vocabulary without "," merges it into unknown pieces, which the
        # release splits too, though all of them share the id 0. A character
        # for private use stands for the unknown ones.
        last = self._encode_pieces("\U000f00003,")[-1]
        self.splits_unknown = (
            last.endswith(",") and self.piece_to_id(last) == UNKNOWN_ID
        )
        self.cuts_at_blanks = self._processor.normalize(
            "a  b "
        ) == f"{BLANK}a{BLANK}b" and not any(
            BLANK in piece[1:] for piece in self._pieces
        )

    def encode(self, text):
        """Splits a text into pieces of the vocabulary.

        Args:
            text: str.

        Returns:
            list of int.

        Raises:
            TypeError: `text` is not a str.
        """
        text = preprocess(text, self.lowercase)
        return self._split_commas(text, self._processor.encode(text))

    def encode_batch(self, texts, num_threads=None):
        """Splits many texts at once, on several threads.

        Args:
            texts: list or other iterable of str.
            num_threads: int, default None: one a processor core.

        Returns:
            list of lists of int, in the order of `texts`.

        Raises:
            TypeError: `texts` is a single str, or holds something else.
        """
        if isinstance(texts, str):
            raise TypeError(
                "`texts` must be a list of str, not one str. Received: "
                f"texts={shorten(texts)}. Call `encode` for a single text."
            )
        texts = [preprocess(text, self.lowercase) for text in texts]
        rows = self._processor.encode(texts, num_threads=num_threads or -1)
        return [
            self._split_commas(text, ids)
            for text, ids in zip(texts, rows, strict=True)
        ]

    def encode_flat(self, texts):
        """Splits many texts at once on this thread, for whole shards.

        Args:
            texts: list of str.

        Returns:
            ids: int32 array, those of all texts, one after the other.
            lengths: int64 array, how many each text has.
        """
        texts = preprocess_all(texts, self.lowercase)
        rows = self._processor.encode(texts, return_type="numpy", num_threads=1)
        if self.splits_unknown:
            rows = [
                np.array(self._split_commas(text, row.tolist()), np.int32)
                for text, row in zip(texts, rows, strict=True)
            ]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        if self.splits_unknown:
            return ids, lengths
        return self._comma_table.replace(ids, lengths)

    def encode_with_offsets(self, text):
        """Splits a text and says which characters each piece came from.

        Spans leave out the blank before a word; a piece that is nothing but
        that blank has an empty span. Accents that are dropped belong to the
        letter before them. Where one character became several pieces, each of
        them has its span. Begins and ends never decrease.

        Args:
            text: str.

        Returns:
            ids: list of int, as `encode` gives them.
            offsets: list of (begin, end), in characters of `text`.

        Raises:
            TypeError: `text` is not a str.
        """
        normalized, begins, ends = align(text, self.lowercase)
        mapping = self._processor.encode(
            normalized, return_type="offset_mapping"
        )
        ids = []
        offsets = []
        for index, piece, (begin, end) in zip(
            mapping["ids"], mapping["pieces"], mapping["offsets"], strict=True
        ):
            parts = self._comma_parts.get(index)
            if self.splits_unknown and index == UNKNOWN_ID:
                parts = split_comma(piece, self._encode_pieces)
            begin, end = self._trim(normalized, begin, end)
            if not parts:
                ids.append(index)
                offsets.append(original_span(begin, end, begins, ends))
                continue
            ids.extend(self.piece_to_id(part) for part in parts)
            offsets.extend(
                original_span(*span, begins, ends)
                for span in part_spans(parts, begin, end)
            )
        return ids, offsets

    def decode(self, ids):
        """Joins pieces to text; control symbols give nothing.

        Args:
            ids: iterable of int: a list, an array, a tensor of one axis.

        Returns:
            str.

        Raises:
            ValueError: an id is outside of the vocabulary.
        """
        ids = [int(index) for index in ids]
        for index in ids:
            self._check_id(index)
        return self._processor.decode(ids)

    def id_to_piece(self, index):
        """Gives the piece of an id.

        Args:
            index: int.

        Returns:
            str.

        Raises:
            ValueError: `index` is outside of the vocabulary.
        """
        self._check_id(index)
        return self._pieces[index]

    def piece_to_id(self, piece):
        """Gives the id of a piece.

        Args:
            piece: str.

        Returns:
            int, 0 for what the vocabulary lacks.
        """
        return self._processor.piece_to_id(piece)

    def comma_table(self):
        """Gives what the digit-comma rule puts in place of each id.

        Returns:
            list of V lists of int; most hold their own id alone.
        """
        return [
            self._comma_ids.get(index, [index])
            for index in range(self.vocabulary_size)
        ]

    def _encode_pieces(self, text):
        return self._processor.encode(text, return_type=str)

    def _split_commas(self, text, ids):
        if self.splits_unknown and UNKNOWN_ID in ids:
            return [
                self.piece_to_id(part)
                for piece in self._encode_pieces(text)
                for part in (split_comma(piece, self._encode_pieces) or [piece])
            ]
        if self._comma_ids.keys().isdisjoint(ids):
            return ids
        return [
            part
            for index in ids
            for part in self._comma_ids.get(index, (index,))
        ]

    def _trim(self, text, begin, end):
        while begin < end and self._is_blank(text[end - 1]):
            end -= 1
        if begin == end:
            return end, end
        while self._is_blank(text[begin]):
            begin += 1
        return begin, end

    def _is_blank(self, character):
        # SentencePiece's own normaliser turns more than spaces into nothing.
        blank = self._blanks.get(character)
        if blank is None:
            normalized = self._processor.normalize(character)
            blank = not normalized.strip(f"{BLANK} ")
            self._blanks[character] = blank
        return blank

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
        reason = str(error).rstrip(". ")
        raise ValueError(
            "`path` must be a SentencePiece model, and this is not one: "
            f"{reason}. Received: {source}. Copy the file again, or train one "
            f"with `{_TRAIN}`."
        ) from error
    return processor


def _check_pieces(pieces, source):
    size = max(len(piece.encode()) for piece in pieces)
    if size > MAX_PIECE_BYTES:
        raise ValueError(
            "the SentencePiece model has a piece that is too long: expected "
            f"at most {MAX_PIECE_BYTES} bytes a piece. Received: {source} with "
            f"a piece of {size} bytes. The file is damaged; copy it again."
        )
    missing = [
        f"{symbol} at id {index}"
        for index, symbol in enumerate(SPECIAL_SYMBOLS)
        if pieces[index : index + 1] != [symbol]
    ]
    if missing:
        raise ValueError(
            "the SentencePiece model lacks special symbols of XLNet: expected "
            f"{', '.join(missing)}. Received: {source}, which begins with "
            f"{', '.join(pieces[: len(SPECIAL_SYMBOLS)])}. Train one that has "
            f"them with `{_TRAIN}`."
        )


def _restore(model_proto, lowercase, path):
    tokenizer = Tokenizer.from_model_proto(model_proto, lowercase)
    tokenizer.path = path
    return tokenizer
