"""Conversion between `tokenizer.json` files and SentencePiece models.

Hugging Face's `tokenizer.json` contains the pieces of a model, their scores and
the character map of the normalizer. This is enough to rebuild the model.

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

# Hugging Face subtracts this number from the score of a piece such as "3,". So
# its tokenizer avoids the pieces that the release splits afterwards.
_COMMA_PENALTY = 100
_MAX_FLOAT32 = 3.4028234663852886e38


def to_model(values, file):
    """Rebuild the SentencePiece model of a `tokenizer.json`.

    The original model is the model from which the file was made. The result has
    exactly the pieces, kinds, scores and ids of the original model. One
    exception: unused pieces of the original model become ordinary pieces.

    Args:
        values: dict, content of the file.
        file: path, for messages.

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
        # The sum is exact in float64, so it restores the model's float32 score.
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
    # SentencePiece uses only the table. The name is for people.
    spec.name = "user_defined" if charsmap else "identity"
    spec.precompiled_charsmap = charsmap
    spec.add_dummy_prefix = True
    spec.remove_extra_whitespaces = True
    spec.escape_whitespaces = True
    return model


def from_model(model, lowercase):
    """Convert a SentencePiece model to the content of a `tokenizer.json`.

    Args:
        model: ModelProto of a Unigram model with XLNet's special symbols. Its
            field `keep_accents` decides whether the result keeps accents.
        lowercase: bool, whether texts are lowercased before tokenization.

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
    """List the normalizers of a `tokenizer.json`, including nested normalizers.

    Args:
        values: dict, content of the file.
        file: path, for messages.

    Returns:
        list of dict with the key "type", in order.

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
    """List the added tokens of a `tokenizer.json`.

    Args:
        values: dict, content of the file.
        file: path, for messages.

    Returns:
        list of dict with the keys "id" and "content".

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
    """Make the error for a damaged file.

    Args:
        file: path.
        reason: str, the fault of the file.

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
        # In the release, <eop> has another kind than the other symbols,
        # although Hugging Face marks all of them as special.
        return model_file.USER_DEFINED
    if byte_fallback and re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return model_file.BYTE
    if score:
        return model_file.NORMAL
    # Learnt pieces have log-probabilities as scores, other pieces have 0. If a
    # user's settings mark "." as special, "." must still be part of texts.
    if piece in special and piece.startswith("<"):
        return model_file.CONTROL
    return model_file.USER_DEFINED


def _read_vocabulary(unigram, file):
    if not isinstance(unigram, dict):
        raise damaged(file, 'it has no "model"')
    vocabulary = unigram.get("vocab")
    # Older files have no type.
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
            # This comparison is also False for NaN.
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
    # `XLNetConverter` of `transformers` lowers these scores. Version 5 reads a
    # SentencePiece model without this converter.
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
        # SentencePiece's table composes a letter with its accents. Hugging Face
        # applies the table only to the letter, or removes the accents.
        compose = []
        if model.keep_accents and own_normalizer(model)("o\u0308") == "\u00f6":
            compose = [{"type": "NFC"}]
        steps += [*compose, table, *compose]
    return {"type": "Sequence", "normalizers": steps}


def _special_tokens(model):
    # User-defined pieces such as "." must not be special tokens, because the
    # text after a special token would begin a new word.
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
    """Make the template that adds "<sep> <cls>" after a text."""

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
