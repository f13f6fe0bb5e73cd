"""Texts, tasks, models and requests of a record, the same at every call."""

import dataclasses
import json
import random
import zlib

import numpy as np

VOCABULARY = 300
LENGTH = 32  # tokens of a sequence
_SYLLABLES = "ba co de fi gu ha je ki lo mu na po ra se ti vo wa ze".split()
_RARE = ["größer", "ΣΟΦΟΣ", "한국", "co-op", "(so)", "£5", '"x"', "犬 "]
HOSTILE = (
    *("", " ", "\t\n", "x" * 300, "9," * 40, "\u2581", "\ufffd", "\x00\x01"),
    "  leading  and\u00a0many \u2003 blanks\u2028here \x1f end\n",
    "``quoted'' text, '''three''' and ```x` ' ' ` `",
    "In 1, 9, 170, and 2,999, 1,1, (9,) x1, 9,9, \u0661, \uff11\uff0c",
    "cafe\u0301 \u0301 a\u0323\u0301b \u1e69 \u212b \u0344 \ufb01ne \u00bd",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \u3392 \ufdfa 東京タワー",
    "ΣΟΦΟΣ ΑΣ. ΣΑ Α\u00adΣ İSTANBUL ı ǅ ẞ ŉ ᾲ Ⅷ 𐐀 Ꭰ",
    "<cls> <eop> <s> </s>a<mask> <sep> <pad> <unk> \u25811, a\u2581b",
    "\ufeffx \u200d \u200bzero \ufe0f \ue000 \U0010ffff 😀 👩\u200d👩",
    "\ud800 a\udfffb",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0939\u093f",
)
_TEXTS = ["ba co fi", "", "größer 70, co <sep>", "je ki " * 30]
_OTHERS = ["co", "fi " * 9, "", "guha ze"]
_OPTIONS = [["co", "ba"], ["fi " * 40, "je"], ["lo", ""], ["a", "b"]]
_CONTEXTS = ["ba co fi guha.", "je ki lo mu na", "po ra se", "ti vo wa " * 20]


def sentences(count, seed=0):
    """Sentences of made-up words, some of them with rare characters."""
    draws = random.Random(seed)
    found = []
    for number in range(count):
        words = [
            "".join(draws.choices(_SYLLABLES, k=draws.randint(1, 4)))
            for _ in range(9)
        ]
        words += [draws.choice(_RARE), f"{number % 23},"]
        draws.shuffle(words)
        found.append(" ".join(words).capitalize() + ".")
    return found


def write(directory):
    """Write the text of the records and the files of the tasks."""
    lines = sentences(400)
    documents = ["\n".join(lines[i : i + 10]) for i in range(0, 400, 10)]
    _write(directory / "text.txt", "\n\n".join(documents))
    for split, count, seed in (("train", 60, 1), ("dev", 20, 2)):
        texts = sentences(count, seed)
        tasks = directory / "tasks"
        rows = [f"{x}\t{'yes' if 'ba' in x else 'no'}" for x in texts]
        _write(
            tasks / "classification" / f"{split}.tsv",
            "\n".join(["text\tlabel", *rows]),
        )
        blocks = [
            "\n".join(
                f"{word}\t{'B-long' if len(word) > 5 else 'O'}"
                for word in text.split()
            )
            for text in texts
        ]
        _write(tasks / "ner" / f"{split}.conll", "\n\n".join(blocks))
        pairs = [f"{text}\t{text.split()[0]}" for text in texts]
        _write(
            tasks / "seq2seq" / f"{split}.tsv",
            "\n".join(["source\ttarget", *pairs]),
        )
        _write(
            tasks / "squad-2.0" / f"{split}-v2.0.json",
            json.dumps({"version": "2.0", "data": [_article(texts)]}),
        )


def _write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


def _article(texts):
    """An article of SQuAD, a quarter of whose questions have no answer."""
    paragraphs = []
    for number, text in enumerate(texts):
        word = text.split()[number % 9]
        answers = [{"text": word, "answer_start": text.index(word)}]
        question = {
            "id": f"question{number}",
            "question": text.split()[1],
            "is_impossible": number % 4 == 3,
            "answers": [] if number % 4 == 3 else answers,
        }
        paragraphs.append({"context": text, "qas": [question]})
    return {"title": "made up", "paragraphs": paragraphs}


@dataclasses.dataclass(frozen=True)
class Model:
    """A model whose outputs, gradients and preset are recorded.

    Args:
        cls: str, public name of the class; None for the backbone itself.
        arguments: dict, of the class.
        backbone: str, "xlnet" or "bert".
        config: dict, further fields of the backbone's config.
        objective: str or None, for features of records.
        preprocessor: dict or None, settings of the class's preprocessor.
        raw: strings for the preprocessor.
        labels: labels for `fit`, or None for no `fit`.
    """

    cls: str | None
    arguments: dict = dataclasses.field(default_factory=dict)
    backbone: str = "xlnet"
    config: dict = dataclasses.field(default_factory=dict)
    objective: str | None = None
    preprocessor: dict | None = None
    raw: object = None
    labels: object = None


def _pretrainer(objective, backbone="xlnet", **others):
    arguments = {"objective": objective} | others.pop("arguments", {})
    return Model(
        "XLNetPretrainer", arguments, backbone, objective=objective, **others
    )


MODELS = {
    "backbone": Model(None),
    "bert": Model(None, backbone="bert"),
    "permutation": _pretrainer("permutation"),
    "next sentence": _pretrainer(
        "permutation", arguments={"next_sentence_weight": 0.5}
    ),
    "causal": _pretrainer("causal", config={"attention_type": "causal"}),
    "masked": _pretrainer("masked"),
    "masked bert": _pretrainer("masked", "bert"),
    "pseudo_masked": _pretrainer(
        "pseudo_masked", "bert", config={"relative_position_buckets": 8}
    ),
    "classifier": Model(
        "XLNetTextClassifier",
        {"num_classes": 3, "labels": ["bad", "größer", "good"]},
        preprocessor={},
        raw={"text": _TEXTS, "text_pair": _OTHERS},
        labels=np.array([0, 2, 1, 2]),
    ),
    "classifier with memory": Model(
        "XLNetTextClassifier",
        {"num_classes": 2, "segment_length": 8},
        config={"memory_length": 8},
        preprocessor={},
        raw={"text": _TEXTS},
        labels=np.array([0, 1, 1, 0]),
    ),
    "several": Model(
        "XLNetMultiLabelClassifier",
        {"num_classes": 2},
        preprocessor={},
        raw={"text": _TEXTS},
        labels=np.array([[0, 1], [1, 1], [0, 0], [1, 0]]),
    ),
    "regressor": Model(
        "XLNetTextRegressor",
        preprocessor={},
        raw={"text": _TEXTS},
        labels=np.array([0.5, -1.0, 2.0, 0.0], "float32"),
    ),
    "choice": Model(
        "XLNetMultipleChoice",
        preprocessor={"max_question_length": 8},
        raw={"context": _TEXTS, "question": _OTHERS, "options": _OPTIONS},
        labels=np.array([0, 1, 1, 0]),
    ),
    "ranker": Model(
        "XLNetRanker",
        preprocessor={},
        raw={"query": _OTHERS, "documents": _OPTIONS},
        labels=[[1, 0], [0, 1], [1, 1], [0, 2]],
    ),
    "tagger": Model(
        "XLNetTokenClassifier",
        {"num_classes": 3},
        preprocessor={},
        raw=[["ba", "cofi"], ["größer"], ["je", "ki", "lo"], ["70,"]],
        labels=[[0, 1], [2], [0, 0, 1], [1]],
    ),
    "questions": Model(
        "XLNetQuestionAnswering",
        {"num_starts": 3, "num_ends": 2},
        preprocessor={"stride": 8, "max_question_length": 8},
        raw={"question": _OTHERS, "context": _CONTEXTS},
        labels={
            "answer_start": np.array([3, 0, 3, 3]),
            "answer_text": ["co", "je", "ra", "vo"],
        },
    ),
    "spans": Model(
        "XLNetSpanClassifier",
        labels={
            "start_positions": np.array([3, 4, 1]),
            "end_positions": np.array([4, 9, 2]),
        },
    ),
    "seq2seq": Model(
        "XLNetSeq2Seq",
        preprocessor={"target_length": 8},
        raw=_TEXTS,
        labels=_OTHERS,
    ),
}
# The fine-tuning runs export the other classes.
EXPORTED = (
    *("backbone", "causal", "several", "regressor", "choice", "ranker"),
    "classifier with memory",
)


def features(rows=3):
    """Features of sequences whose first row has padding."""
    draws = np.random.default_rng(3)
    padding = np.ones((rows, LENGTH), "int32")
    padding[0, :5] = 0
    segments = np.arange(LENGTH)[None] // np.array([[12], [16], [20]])
    return {
        "token_ids": draws.integers(9, VOCABULARY, (rows, LENGTH), "int32"),
        "segment_ids": np.minimum(segments, 1).astype("int32"),
        "padding_mask": padding,
    }


def request(name, dtype, shape, rows=3):
    """Input of a signature: text, or numbers that depend on its name.

    Args:
        name: str.
        dtype: NumPy dtype; object is text.
        shape: list of int, -1 where any size may stand.
        rows: int.
    """
    draws = np.random.default_rng(zlib.crc32(name.encode()))
    if np.dtype(dtype).kind == "O":
        if len(shape) == 2:
            return _OPTIONS[:rows]
        texts = {"context": _CONTEXTS, "text_pair": _OTHERS}
        texts = texts.get(name, ["ba <mask> fi <mask>", *_TEXTS[2:]])
        return texts[:rows]
    sizes = [rows, *(x if x > 0 else LENGTH for x in shape[1:])]
    if len(sizes) == 3 and name != "memories":
        sizes[1] = 2  # options
    if name in ("target_positions", "document_mask"):
        sizes[1] = 2
    if name.endswith("token_ids"):
        return draws.integers(9, VOCABULARY, sizes).astype(dtype)
    if name.endswith(("_positions", "class_index")):
        return draws.integers(0, LENGTH, sizes).astype(dtype)
    if name.endswith("_mask"):
        return np.ones(sizes, dtype)
    if name.endswith("segment_ids"):
        return np.zeros(sizes, dtype)
    if name == "memories":
        return draws.normal(size=sizes).astype(dtype)
    raise ValueError(f"there is no value for the input {name!r}: {shape}")
