"""A server answers every text under load as it does one text alone."""

import unicodedata

import numpy as np

from tests.slow.native_server.serving_program import ask_program
from tests.slow.native_server.serving_program import ask_under_load
from tests.support.export_fixtures import shared_export

TRIALS = 10_000  # requests
_CLIENTS = 32
_DISTINCT = 500  # requests, which are repeated
_ROWS = 4  # of a request at most
_UNBROKEN = 200_000  # bytes without a blank
_GROWTH = 1.05  # of memory, from the middle of the requests to their end

_MARKS = [chr(x) for x in range(0x300, 0x1000) if unicodedata.combining(chr(x))]
# What texts are made of, by kind.
_PARTS = {
    "special pieces": "<mask> <cls> <sep> <pad> <unk> <s> </s> <eod> ba",
    "right to left": "\u05d0\u05d1 \u0627\u0628 \u202eba\u202c \u2067co\u2069",
    "emoji": "\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "blanks": "\t \n \r \x0b \x85 \u00a0 \u2003 \u2028 \u3000 \u2581 \u200b a",
    "several of one": "\ufb01 \u2026 \u3392 \ufdfa \u0130 \u03a3",
    "ordinary": "ba co fi gu <mask> größer σοφος 9, 1,9, (so) in.",
}
_UNBROKEN_PARTS = ("a", "\u5b57", "e\u0301", "\u200b", "<mask>", "9,", "baco")


def trials(count, directory, generator):
    """Sends `count` requests; see `tests.torture`."""
    drawn = [_request(generator) for _ in range(min(count, _DISTINCT))]
    labels, requests = zip(*drawn, strict=True)
    texts = list(dict.fromkeys(text for rows in requests for text in rows))
    export = shared_export()
    answers = ask_program(export, [_fill_in([x]) for x in texts], directory)
    alone = dict(zip(texts, answers, strict=True))
    joined, load = ask_under_load(
        export, list(map(_fill_in, requests)), directory, count, _CLIENTS
    )
    problems = [
        _difference([alone[text] for text in rows], answer)
        for rows, answer in zip(requests, joined, strict=True)
    ]
    other = set(load["other"])
    for number in range(count):
        place = number % len(requests)
        problem = problems[place]
        if number in other:
            problem = "the answer under load is not the one without"
        yield labels[place], problem
    memory = load["resident_mb"]
    # Fewer requests do not fill the allocators, of which each thread has one.
    if count >= TRIALS and memory[-1] > _GROWTH * max(memory[4:6]):
        yield "memory of the process", f"it grew, in MB: {memory}"


def _request(generator):
    """A kind of text, and a request of bytes of that kind."""
    kind, make = generator.choice(list(_KINDS.items()))
    rows = 1 if make is _unbroken else generator.randint(1, _ROWS)
    return kind, [make(generator) for _ in range(rows)]


def _of_parts(parts):
    parts = parts.split(" ")

    def make(generator):
        separator = generator.choice(["", " "])
        drawn = generator.choices(parts, k=generator.randint(1, 200))
        return separator.join(drawn).encode()

    return make


def _bytes(generator):
    return generator.randbytes(generator.randint(1, 500))


def _marks(generator):
    letter = generator.choice(["", "e", "\u05d0"])
    return (letter + "".join(generator.choices(_MARKS, k=300))).encode()


def _codes(generator):
    codes = (generator.randrange(0x110000) for _ in range(100))
    return "".join(map(chr, codes)).encode(errors="surrogatepass")


def _unbroken(generator):
    part = generator.choice(_UNBROKEN_PARTS).encode()
    return part * (_UNBROKEN // len(part))


_KINDS = {
    **{kind: _of_parts(parts) for kind, parts in _PARTS.items()},
    "empty": lambda generator: b" " * generator.randint(0, 3),
    "zero bytes": lambda generator: b"\0" * generator.randint(1, 9) + b"ba",
    "random bytes": _bytes,
    "random characters": _codes,
    "marks alone": _marks,
    "200 KB without a blank": _unbroken,
}


def _fill_in(rows):
    return "fill_in", {"text": np.array(rows, object)}


def _difference(alone, joined):
    """How the answers of rows differ from those of their texts alone."""
    for row, answer in enumerate(alone):
        if isinstance(answer, str) or isinstance(joined, str):
            return f"refused: {answer if isinstance(answer, str) else joined}"
        (count,) = answer["count"]
        if joined["count"][row] != count:
            return f"{joined['count'][row]} blanks, alone {count}"
        both = (
            joined["log_probabilities"][row, :count],
            (answer["log_probabilities"][0]),
        )
        if not np.allclose(*both, rtol=0, atol=1e-5):
            return (
                f"log_probabilities differ by {np.abs(both[0] - both[1]).max()}"
            )
    return None
