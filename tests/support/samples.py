"""Texts and a tiny SentencePiece model for the tests of the tokenizers."""

import io
import json
import random
import unicodedata

import pytest
import sentencepiece

from data_pipeline.tokenization.model_file import with_accents
from data_pipeline.tokenization.tokenizer import Tokenizer
from data_pipeline.train_tokenizer import CONTROL_SYMBOLS
from data_pipeline.train_tokenizer import USER_DEFINED_SYMBOLS

# Pieces that the digit-comma rule splits: inside, at and without the start of
# a word.
COMMA_PIECES = ("70,", "\u25811,", "9,")

TEXTS = (
    "",
    " ",
    "\t\n",
    "Bacode fi, guha.",
    "  leading  and\u00a0many \u2003 blanks\u2028here \x1f end\n",
    "``quoted'' text, '''three''' and ```x` ' ' ` `",
    "In 1, 9, 170, and 2,999, 1,1, (9,) x1, 9,9, 70,70,",
    "\u0661, \u00b2, \u2460, 1\uff0c 9\uff0c 7\u00b2,",
    "caf\u00e9 cafe\u0301 \u0301 a\u0323\u0301b \u1e69 \u212b \u0344",
    "\ufb01ne \u00bd \u2026 \u3392 \u32cf \ufdfa \u00a8x \u00b4",
    "\ud55c\uad6d\uc5b4 \uac01 \u1112\u1161\u11ab",
    "ΣΟΦΟΣ ΑΣ. ΣΑ Σ Α.Σ ΑΣ' Α\u00adΣ ΑΣ\u00adΑ Α1Σ \U0001d6ba\u0391\u03a3",
    "İSTANBUL ı I ǅ ẞ Ω K ß ŉ ᾲ Ⅷ Ⓐ 𐐀 Ꭰ",
    "<cls> <eop> <s> </s>a<mask> \u25811, \u2581 a\u2581b \u2581",
    "a\x00b \x01 \x7f \ufeffx \u200d \u200bzero \ufe0f",
    "\ufffd \ue000x \U0010ffff",
    "\ud800 a\udfffb",
    "犬 犭3, 犭犭 q犭9, 🜁🜂 👩\u200d👩",
)

# German, Thai, Hindi, Japanese, Vietnamese, Greek: alike without their marks.
ACCENT_PAIRS = (
    ("schön", "schon"),
    ("ป่า", "ปา"),
    ("पढ़ना", "पढना"),
    ("がき", "かき"),
    ("mấy", "may"),
    ("πότε", "ποτε"),
)


def tiny_sentences(size=600):
    """Sentences from which a vocabulary of 300 pieces can be trained."""
    generator = random.Random(0)
    syllables = "ba co de fi gu ha je ki lo mu na po ra se ti vo wa ze".split()
    fixed = ["größer", "ΣΟΦΟΣ", "σοφος", "한국", "co-op", "(so)", "£5", '"x"']
    for number in range(size):
        line = [
            "".join(generator.choices(syllables, k=generator.randint(1, 4)))
            for _ in range(9)
        ]
        line += [generator.choice(fixed), f"{number % 23},", f"{number},"]
        generator.shuffle(line)
        yield " ".join(line).capitalize() + "."


def accented_sentences(size=600):
    """Sentences of the words of `ACCENT_PAIRS`."""
    generator = random.Random(0)
    words = [*sum(ACCENT_PAIRS, ()), "Äpfel", "ΣΟΦΌΣ", "σοφός", "ガ", "9,"]
    for _ in range(size):
        yield " ".join(generator.choices(words, k=9))


def accented_texts():
    """The accented words unchanged, decomposed and in capitals."""
    words = [*sum(ACCENT_PAIRS, ()), "ÄPFEL", "ΣΟΦΌΣ ΌΣ\u0301", "ｶﾞｷ ﾊﾟ ガ"]
    words += [word.upper() for word in words]
    texts = [*words, " ".join(words)]
    forms = ("NFC", "NFD", "NFKD")
    return [unicodedata.normalize(form, x) for form in forms for x in texts]


def accented_model(**settings):
    """Bytes of a model that keeps accents."""
    settings = {"vocab_size": 70, "sentences": accented_sentences, **settings}
    return with_accents(tiny_model(**settings))


def tiny_model(
    drop="", symbols=COMMA_PIECES, sentences=tiny_sentences, **settings
):
    """Bytes of a model that is trained without the characters in `drop`."""
    file = io.BytesIO()
    settings = {
        "vocab_size": 300,
        "control_symbols": list(CONTROL_SYMBOLS),
        "user_defined_symbols": [*USER_DEFINED_SYMBOLS, *symbols],
        **settings,
    }
    table = str.maketrans("", "", drop)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.translate(table) for line in sentences()),
        model_writer=file,
        minloglevel=2,
        **settings,
    )
    return file.getvalue()


def random_texts(count, seed, max_length=40):
    """Texts from all Unicode planes, many characters with special rules."""
    generator = random.Random(seed)
    frequent = [
        *" \t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u202f\u3000",
        *"``''\"\u2581.,-()£",
        *"0123456789\u00b2\u0661\u2460\uff11\uff0c",
        *"\u0300\u0301\u0323\u0344\u05b0\u3099\U0001d165\U0001e944",
        *"ΣσςΑα\u00ad'·\u0345ʰİIıßẞǅﬁ½…",
        *"\ud55c\uac00\u1112\u1161\u11ab犬\u200b\u200d\ufeff\ufffd\x00\x01",
        "1,",
        "9,",
        "70,",
        " ba",
        "code",
        "<cls>",
        "<eop>",
    ]
    planes = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x2FFF), (0x3000, 0xD7FF)]
    planes += [(0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    for _ in range(count):
        parts = [
            generator.choice(frequent)
            if generator.random() < 0.6
            else chr(generator.randint(*generator.choice(planes)))
            for _ in range(generator.randint(0, max_length))
        ]
        yield "".join(parts)


def released_ids(model_proto, text, lowercase=False):
    """Token ids by the released preprocessing, in plain Python."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    text = " ".join(text.strip().split())
    text = text.replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    if lowercase:
        text = text.lower()
    pieces = []
    for piece in processor.encode(text, return_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            current = processor.encode(
                piece[:-1].replace("\u2581", ""), return_type=str
            )
            if piece[0] != "\u2581" and current[0][0] == "\u2581":
                if len(current[0]) == 1:
                    current = current[1:]
                else:
                    current[0] = current[0][1:]
            pieces.extend(current + [piece[-1]])
        else:
            pieces.append(piece)
    return [processor.piece_to_id(piece) for piece in pieces]


def released_tokenizers(shared):
    """The released tokenizer, cased and uncased."""
    model = shared / "data" / "spiece" / "spiece.model"
    if not model.is_file():
        pytest.skip(f"there is no {model.name} beside the project")
    return [Tokenizer(model, lowercase) for lowercase in (False, True)]


def released_texts(shared):
    """The released tokenizers, each with examples of texts and their ids."""
    reference = shared / "reference" / "tokenization.json"
    if not reference.is_file():
        pytest.skip(f"there is no {reference.name} beside the project")
    examples = json.loads(reference.read_text(encoding="utf-8"))
    return [
        (t, [e for e in examples if e["uncased"] == t.lowercase])
        for t in released_tokenizers(shared)
    ]
