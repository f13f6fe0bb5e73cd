"""A text is split in time linear in its length, whatever it is made of.

A part is repeated to a short text and to some of many times its length, which
may take so many times as long, with room for noise. Time by the square of the
length is several times more than that. Of two parts, one run follows the other.
"""

import pathlib
import time

from data_pipeline.tokenization.graph import graph_of
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import random_texts
from tests.support.samples import tiny_model

TRIALS = 500
# What texts are made of, by what becomes of it.
PARTS = {
    "zero byte": ("\0", "a\0"),
    "of control pieces": ("<", ">", "<s", "/"),
    "special pieces": ("<cls>", "<eop>", "<mask>"),
    "unknown letter": ("字", "字\u0301", "字字 ", "字\u00a0", "a字", "\ue000"),
    "emoji": ("😀", "👩\u200d👧", "🇩🇪", "❤\ufe0f"),
    "mark alone": ("\u0301", "e\u0301", " \u0301", "क्"),
    "blank": (" ", "\t", "\n", "\u00a0", "\u3000", "\u2028", "\u00a8"),
    "block": ("\u2581", "a\u2581", "\u2581字", "\u2581\u0301"),
    "nothing is left": ("\u200b", "\u200d", "\ufeff", "\x01", "\u00ad"),
    "known letter": ("a", "A", "é", "baco", "ba "),
    "digit or comma": ("1", ",", "9,", "70,", "\u0663,", "，", "🄁"),
    "quote": ("'", "`", '"', "'`", "字'`"),
    "several of one": ("\u3392", "\ufb01", "\u2026", "\ufdfa"),
    "composed": ("\u1100\u1161", "\u1112\u1161\u11ab", "\u09c7\u09be"),
    "sigma": ("Σ", "ΑΣ", "Σ\u00ad", "Α'`"),
    "not UTF-8": (b"\xff", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x90a"),
}
# Models that differ in what is unknown, blank or joined.
MODELS = {
    "small": {},
    "no commas, digits or quotes": {"drop": "0123456789,\"'`", "symbols": ()},
    "blocks are letters": {"normalization_rule_name": "identity"},
    "bytes": {"byte_fallback": True, "vocab_size": 600},
    "pieces across blanks": {
        "symbols": ("ba\u2581co",),
        "split_by_whitespace": False,
    },
    "no blank before texts": {"add_dummy_prefix": False},
    "byte pairs": {"model_type": "bpe"},
}
_SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
_SHORT = 8_000  # bytes
_TIMES = 4, 32  # as long; after the first, what is slow need not go on
# How much longer than so many times, and seconds of noise.
_ROOM, _NOISE = 2.5, 0.1


def trials(count, directory, generator):
    """Repeats parts of each kind, and drawn ones; see `tests.torture`."""
    tokenizers = {
        name: Tokenizer.from_model_proto(tiny_model(**settings))
        for name, settings in MODELS.items()
    }
    model = _SHARED / "data" / "spiece" / "spiece.model"
    if model.is_file():
        tokenizers["released"] = Tokenizer(model)
    kinds = [*PARTS, "drawn", "two runs"]
    every = [part for parts in PARTS.values() for part in parts]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        if kind == "drawn":
            parts = [text for text in random_texts(9, number, 6) if text][:1]
        elif kind == "two runs":
            parts = generator.sample(every, 2)
        else:
            parts = [generator.choice(PARTS[kind])]
        name, tokenizer = generator.choice(list(tokenizers.items()))
        problem = next(slow_ways(tokenizer, *parts), None)
        yield kind, problem and f"{parts}, {name}: {problem}"


def slow_ways(tokenizer, *parts):
    """The ways to split texts whose time grows faster than the text.

    Args:
        tokenizer: Tokenizer.
        parts: str or bytes, what texts are made of, one run each.

    Yields:
        str, the way and its times.
    """
    parts = [
        p.encode(errors="surrogatepass") if isinstance(p, str) else p
        for p in parts
    ]

    def text(size):
        runs = [part * (size // len(parts) // len(part)) for part in parts]
        # Blanks at the end alone would be dropped.
        return b"".join(runs) + b"a"

    graph = graph_of(tokenizer)
    for name, split, is_python in (
        ("encode", tokenizer.encode, True),
        ("encode_with_offsets", tokenizer.encode_with_offsets, True),
        ("encode_batch", lambda x: tokenizer.encode_batch([x]), True),
        ("encode_flat", lambda x: tokenizer.encode_flat([x]), True),
        ("graph", lambda x: graph([x]), False),
        ("offsets", lambda x: graph.tokenize_with_offsets([x]), False),
    ):
        short, *others = (
            found.decode(errors="replace") if is_python else found
            for found in (text(_SHORT * times) for times in (1, *_TIMES))
        )
        seconds = min(_seconds(split, short) for _ in range(3))
        for times, long in zip(_TIMES, others, strict=True):
            limit = seconds * times * _ROOM + _NOISE
            # The machine may be busy: once is enough.
            if all(_seconds(split, long) > limit for _ in range(3)):
                yield (
                    f"{name} takes {seconds:.4f} s for {_SHORT} bytes, and "
                    f"more than {limit:.1f} s for {times} times as many"
                )
                break


def _seconds(split, text):
    # Processor time, which other processes change least.
    begun = time.process_time()
    split(text)
    return time.process_time() - begun
