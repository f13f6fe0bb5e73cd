"""Conversion between Hugging Face's `tokenizer.json` and a SentencePiece model.

The file holds the model's pieces, their scores and the character map of the
normalizer: enough to rebuild the model.

Source: `XLNetConverter` in Hugging Face's `convert_slow_tokenizer.py`.
"""

import base64
import re
import reprlib

from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.cleaning import ends_in_digit_comma
from data_pipeline.tokenization.cleaning import own_normalizer
from data_pipeline.tokenization.cleaning import replace_surrogates
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_PARAGRAPH_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.symbols import UNKNOWN_ID
from data_pipeline.tokenization.symbols import missing_symbols

# Hugging Face subtracts this from the score of a piece such as "3,", so that
# its tokenizer avoids the pieces that the release splits afterwards.
_COMMA_PENALTY = 100
_MAX_FLOAT32 = 3.4028234663852886e38


def to_model(values, file):
    """Rebuild the SentencePiece model behind a `tokenizer.json`.

    Pieces, kinds, scores and ids equal the original's to the bit. Pieces that
    the original marks as unused become ordinary.

    Args:
        values: dict, the content of the file.
        file: path, for the errors.

    Returns:
        ModelProto.

    Raises:
        ValueError: the file is damaged, or belongs to another model.
    """
    unigram = values.get("model")
    vocabulary = _read_vocabulary(unigram, file)
    byte_fallback = bool(unigram.get("byte_fallback"))
    special = {
        token["content"]
        for token in added_tokens(values, file)
        if token.get("special")
    }
    model = model_file.ModelProto()
    penalty = _COMMA_PENALTY if _has_penalty(vocabulary) else 0
    for index, (piece, score) in enumerate(vocabulary):
        # Exact in float64, so this restores the model's float32.
        score += penalty if ends_in_digit_comma(piece) else 0
        entry = model.pieces.add(piece=piece, score=score)
        kind = _kind(index, piece, score, special, byte_fallback)
        if kind != model_file.NORMAL:
            entry.type = kind
    model.trainer_spec.model_type = model_file.UNIGRAM
    model.trainer_spec.vocab_size = len(vocabulary)
    model.trainer_spec.byte_fallback = byte_fallback
    charsmap = _read_charsmap(values, file)
    spec = model.normalizer_spec
    # SentencePiece reads the table; people read the name.
    spec.name = "user_defined" if charsmap else "identity"
    spec.precompiled_charsmap = charsmap
    spec.add_dummy_prefix = True
    spec.remove_extra_whitespaces = True
    spec.escape_whitespaces = True
    return model


def from_model(model, lowercase):
    """Convert a model to the content of a `tokenizer.json`.

    Args:
        model: ModelProto of a Unigram model with XLNet's special symbols; it
            records whether accents are kept.
        lowercase: bool, whether texts are lower-cased first.

    Returns:
        dict.
    """
    blanks = {
        "type": "Metaspace",
        "replacement": BLANK,
        "prepend_scheme": "always",
        "split": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _special_tokens(model),
        "normalizer": _normalizer(model, lowercase),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, blanks],
        },
        "post_processor": _post_processor(),
        "decoder": blanks,
        "model": {
            "type": "Unigram",
            "unk_id": UNKNOWN_ID,
            "vocab": [
                [
                    entry.piece,
                    entry.score - _COMMA_PENALTY
                    if ends_in_digit_comma(entry.piece)
                    else entry.score,
                ]
                for entry in model.pieces
            ],
            "byte_fallback": model.trainer_spec.byte_fallback,
        },
    }


def normalizers(values, file):
    """List the normalizers of a `tokenizer.json`, nested ones too.

    Args:
        values: dict, the content of the file.
        file: path, for the errors.

    Returns:
        list of dict with a "type", in order.

    Raises:
        ValueError: the file is damaged.
    """
    rest = [values.get("normalizer")]
    flat_normalizers = []
    while rest:
        normalizer = rest.pop(0)
        if normalizer is None:
            continue
        if not isinstance(normalizer, dict) or not isinstance(
            normalizer.get("type"), str
        ):
            raise damaged(file, '"normalizer" has an entry without a "type"')
        if normalizer["type"] != "Sequence":
            flat_normalizers.append(normalizer)
            continue
        inner = normalizer.get("normalizers")
        if not isinstance(inner, list):
            raise damaged(file, '"normalizers" is not a list')
        rest = inner + rest
    return flat_normalizers


def added_tokens(values, file):
    """List the added tokens of a `tokenizer.json`, which split texts first.

    Args:
        values: dict, the content of the file.
        file: path, for the errors.

    Returns:
        list of dict with "id" and "content".

    Raises:
        ValueError: the file is damaged.
    """
    tokens = values.get("added_tokens") or []
    if not isinstance(tokens, list) or not all(
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and isinstance(token.get("id"), int)
        for token in tokens
    ):
        raise damaged(file, '"added_tokens" is not a list of tokens')
    return tokens


def damaged(file, reason):
    """Make the error for a file that cannot be read.

    Args:
        file: path.
        reason: str.

    Returns:
        ValueError.
    """
    reason = reason.rstrip(". ")
    return ValueError(f"{file} is damaged: {reason}. Copy the file again.")


def _kind(index, piece, score, special, byte_fallback):
    if index == UNKNOWN_ID:
        return model_file.UNKNOWN
    if index < END_OF_PARAGRAPH_ID:
        return model_file.CONTROL
    if index == END_OF_PARAGRAPH_ID:
        # The release gives it another kind than the other symbols, though
        # Hugging Face calls it special too.
        return model_file.USER_DEFINED
    if byte_fallback and re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return model_file.BYTE
    if score:
        return model_file.NORMAL
    # A learnt piece has a log-probability as its score; these pieces do not. A
    # "." that a user's settings call special must stay part of texts.
    if piece in special and piece.startswith("<"):
        return model_file.CONTROL
    return model_file.USER_DEFINED


def _read_vocabulary(unigram, file):
    if not isinstance(unigram, dict):
        raise damaged(file, 'it has no "model"')
    vocabulary = unigram.get("vocab")
    # Older files do not name the type.
    kind = unigram.get("type", "Unigram")
    if kind != "Unigram" or isinstance(vocabulary, dict):
        raise ValueError(
            f"{file} is the tokenizer of another kind of model: expected "
            f"Hugging Face's Unigram tokenizer of an XLNet model. Received: a "
            f"tokenizer of type {reprlib.repr(kind)} with a vocabulary of type "
            f"{type(vocabulary).__name__!r}. Give the directory of an XLNet "
            "model, or put its spiece.model there."
        )
    if not isinstance(vocabulary, list):
        raise damaged(file, '"vocab" is not a list of pieces')
    for index, entry in enumerate(vocabulary):
        if not (
            isinstance(entry, list)
            and [type(value) for value in entry] in ([str, float], [str, int])
            # NaN gives False too.
            and abs(entry[1]) <= _MAX_FLOAT32
            and entry[0] == replace_surrogates(entry[0])
        ):
            raise damaged(
                file, f'entry {index} of "vocab" is not a piece and its score'
            )
    _check_symbols([piece for piece, _ in vocabulary], unigram, file)
    return vocabulary


def _check_symbols(pieces, unigram, file):
    missing = missing_symbols(pieces)
    if unigram.get("unk_id", UNKNOWN_ID) != UNKNOWN_ID:
        missing.append(f"unk_id={UNKNOWN_ID}")
    if missing:
        raise ValueError(
            f"{file} is not the tokenizer of an XLNet model: expected "
            f"{', '.join(missing)}. Received: {len(pieces)} pieces, which "
            f"begin with {', '.join(pieces[: len(SPECIAL_SYMBOLS)])}. Give "
            "the directory of an XLNet model, or put its spiece.model there."
        )


def _has_penalty(vocabulary):
    # `transformers` lowers these scores in `XLNetConverter`. Version 5 reads
    # the pieces from a SentencePiece model without this converter.
    scores = [s for piece, s in vocabulary if ends_in_digit_comma(piece)]
    return bool(scores) and max(scores) <= -_COMMA_PENALTY


def _read_charsmap(values, file):
    for normalizer in normalizers(values, file):
        if normalizer["type"] == "Precompiled":
            charsmap = normalizer.get("precompiled_charsmap") or ""
            try:
                return base64.b64decode(charsmap, validate=True)
            except (ValueError, TypeError) as error:
                raise damaged(
                    file, f'"precompiled_charsmap" is not base64: {error}'
                ) from error
    return b""


def _normalizer(model, lowercase):
    steps = [
        {"type": "Replace", "pattern": {"String": quote}, "content": '"'}
        for quote in ("``", "''")
    ]
    if not model.keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        steps.append({"type": "Lowercase"})
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        charsmap = base64.b64encode(charsmap).decode()
        table = {"type": "Precompiled", "precompiled_charsmap": charsmap}
        # SentencePiece's table composes a letter and its accents. Hugging Face
        # applies the table to the letter alone, or drops the accents.
        compose = []
        if model.keep_accents and own_normalizer(model)("o\u0308") == "\u00f6":
            compose = [{"type": "NFC"}]
        steps += [*compose, table, *compose]
    return {"type": "Sequence", "normalizers": steps}


def _special_tokens(model):
    # User-defined pieces, such as ".", are not special tokens: the text after a
    # special token begins a new word.
    return [
        {
            "id": index,
            "content": entry.piece,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, entry in enumerate(model.pieces)
        if index < len(SPECIAL_SYMBOLS) or entry.type == model_file.CONTROL
    ]


def _post_processor():
    """Template that puts "<sep> <cls>" behind a text, as the release does."""

    def text(name, segment):
        return {"Sequence": {"id": name, "type_id": segment}}

    def symbol(index, segment):
        name = SPECIAL_SYMBOLS[index]
        return {"SpecialToken": {"id": name, "type_id": segment}}

    end = symbol(CLS_ID, 2)
    first = [text("A", 0), symbol(SEP_ID, 0)]
    return {
        "type": "TemplateProcessing",
        "single": [*first, end],
        "pair": [*first, text("B", 1), symbol(SEP_ID, 1), end],
        "special_tokens": {
            SPECIAL_SYMBOLS[index]: {
                "id": SPECIAL_SYMBOLS[index],
                "ids": [index],
                "tokens": [SPECIAL_SYMBOLS[index]],
            }
            for index in (CLS_ID, SEP_ID)
        },
    }
