"""Writes the files of this directory: what an earlier version leaves behind.

Run with the library of commit b75638d, the last one before the folders of the
library were made anew, from the root of the project:

    python -m tests.golden.earlier.make [PIECE ...]

The files are never written again: they stand for what users have, and the
tests of `tests/house` and `tests/slow/test_earlier_runs.py` hold later versions
to them. Every piece below is made by the commands and the public classes.

What follows from dropout's random numbers is that of the later version that
hashes all 64 bits of a seed: `run.json`, `run_resumed.json` (from the earlier
version's checkpoint on), `run_frozen.json`, `finetuning/results.json` and
`loss_with_dropout` in `answers.json`.
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import sys
import tarfile
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from tests.tokenizer_samples import TEXTS
from tests.tokenizer_samples import random_texts
from tests.tokenizer_samples import tiny_model
from tests.tokenizer_samples import tiny_sentences

import xlnet_tf
from data_pipeline import build_records
from saved_models import export
from tests import finetuning_fixtures
from tests.house import earlier
from xlnet_tf import convert
from xlnet_tf import finetune
from xlnet_tf import train

HERE = pathlib.Path(__file__).parent
LENGTH = 32
MODEL = {
    "vocabulary_size": 300,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "memory_length": 8,
}
LABELS = ["O", "größer", "B-long"]
MORE_TEXTS = (
    "犬 says: 我们在这里。 東京タワー",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0939\u093f",
    "Naïve façade, über Straße; œuvre ½ №5",
    "“curly” ‘quotes’ «guillemets» ''two'' ``backs``",
    "1,000,000 and 70,000, 9,8,7 are 12,3,",
    "tab\tnewline\nreturn\rvertical\x0bform\x0cend",
    "\x02\x03control\x1bcharacters\x9f",
    "x" * 70 + ", 9," * 5,
    "e\u0301\u0301\u0301 o\u0308\u0304 \u0300",
    "<mask> <sep> <pad> <eod> <unk> <cls>",
    "😀 \U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea",
    "Bacode    FI    guhaje1, 22, 9,",
)
RECORDS = {
    "compact": ["--validation-fraction", "0.2"],
    "frozen": ["--validation-fraction", "0.2", "--frozen", "--seed", "3"],
    "both_directions": ["--both-directions", "--reuse-length", "0"],
    "subwords": ["--spans", "subwords", "--tokens-per-target", "5"],
    "lowercase": ["--lowercase", "--permutation-length", "8"],
    "subwords_frozen": ["--spans", "subwords", "--frozen", "--num-predict=7"],
}
KEPT_RECORDS = ("compact", "frozen")
KEPT_EXPORT = "classifier"


def write(name, value):
    """A JSON file of this directory, a line for each of its items."""
    text = json.dumps(value, indent=1)
    (HERE / name).parent.mkdir(parents=True, exist_ok=True)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


def fresh(name):
    """An empty directory of this one."""
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir(parents=True)
    return HERE / name


def run(main, argv, status=0):
    found = main([str(argument) for argument in argv]) or 0
    if found != status:
        raise RuntimeError(f"{main.__module__} {argv}: {found}")


def make_tokens():
    """Two SentencePiece models, and what they make of texts."""
    (HERE / "spiece.model").write_bytes(tiny_model())
    (HERE / "without_comma.model").write_bytes(tiny_model(drop=",", symbols=()))
    texts = [*TEXTS, *MORE_TEXTS, *random_texts(30, seed=22)]
    made = [
        {
            "model": model,
            "lowercase": lowercase,
            "text": text,
            **earlier.tokens(model, lowercase, text),
        }
        for model, lowercase in (
            ("spiece.model", False),
            ("spiece.model", True),
            ("without_comma.model", False),
        )
        for text in texts
    ]
    text = ",\n".join(map(json.dumps, made))  # one text a line
    (HERE / "tokens.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def make_records():
    """Records of all kinds; two sets are kept whole."""
    directory = fresh("records")
    odd = [
        text
        for text in (*TEXTS, *MORE_TEXTS, *random_texts(12, seed=5))
        if text.strip()
        and not any("\ud800" <= c <= "\udfff" or c in "\r\n" for c in text)
    ]
    lines = [*tiny_sentences(70), *odd]
    documents = ["\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
    text = "\n\n".join(documents) + "\n"
    (directory / "text.txt").write_text(text, encoding="utf-8", newline="")
    sets = {}
    for name, options in RECORDS.items():
        options = [
            *("--sequence-length", str(LENGTH)),
            *("--text-format", "sentences"),
            *options,
        ]
        with tempfile.TemporaryDirectory() as temporary:
            output = pathlib.Path(temporary) / "records"
            argv = earlier.record_options(options, HERE, output)
            run(build_records.main, argv)
            sets[name] = {
                "options": options,
                "digests": earlier.digests(output),
            }
            if name in KEPT_RECORDS:
                shutil.copytree(output, directory / name)
    write("records.json", sets)


def make_run():
    """A pretraining run that was stopped at step 3 of 6, and its end."""
    write("run_model.json", {**MODEL, "memory_length": 12})
    write(
        "run_training.json",
        {
            "steps_per_loop": 3,
            "checkpoint_interval": 3,
            "evaluation_interval": 6,
            "evaluation_steps": 2,
            "learning_rate": 0.01,
            "warmup_steps": 2,
        },
    )
    results = []
    for is_stopped in (True, False):
        with tempfile.TemporaryDirectory() as temporary:
            output = pathlib.Path(temporary) / "run"
            records = HERE / "records" / "compact"
            argv = earlier.training_options(HERE, records, output)
            if is_stopped:
                with contextlib.redirect_stderr(StopsAt("step 3/6")):
                    run(train.main, argv, status=143)
                shutil.rmtree(HERE / "run", ignore_errors=True)
                shutil.copytree(
                    output, HERE / "run", ignore=lambda *_: ["train", "eval"]
                )
            run(train.main, argv)
            results.append(earlier.training_result(output))
    if results[0] != results[1]:
        raise RuntimeError("the resumed run differs")
    write("run.json", results[0])
    with tempfile.TemporaryDirectory() as temporary:
        output = pathlib.Path(temporary) / "run"
        argv = earlier.training_options(
            HERE, HERE / "records" / "frozen", output
        )
        run(train.main, argv)
        write("run_frozen.json", earlier.training_result(output)["metrics"])


class StopsAt(io.StringIO):
    """A stream that sends this process SIGTERM when it reads some words."""

    def __init__(self, words):
        super().__init__()
        self._words = words

    def write(self, text):
        if self._words in text:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def randomize(model):
    """Random values for every weight, biases and norms too."""
    random = np.random.default_rng(22)
    for weight in model.trainable_weights:
        value = random.normal(0, 0.25, weight.shape)
        weight.assign((value + (weight.name == "gamma")).astype("float32"))
    return model


def make_presets():
    """A preset of every class, and the same in the formats of others."""
    directory = fresh("presets")
    # A new head's answers are as far apart as those of the kept heads.
    config = xlnet_tf.XLNetConfig(**MODEL, initializer_range=0.25)
    tokenizer = earlier.tokenizer()

    def save(name, model, **settings):
        randomize(model)
        if getattr(model, "preprocessor_cls", None):
            length = settings.pop("length", 16)
            model.preprocessor = model.preprocessor_cls(
                tokenizer, sequence_length=length, **settings
            )
        given = {"tokenizer": tokenizer}
        if model.__dict__.get("preprocessor"):
            given = {}
        model.save_to_preset(directory / name, **given)
        return model

    def backbone():
        keras.backend.clear_session()  # or Keras would number their names
        keras.utils.set_random_seed(7)
        return xlnet_tf.XLNetBackbone(config, seed=3)

    save("backbone", backbone())
    save("pretrainer", xlnet_tf.XLNetPretrainer(backbone()))
    save(
        "pretrainer_next",
        xlnet_tf.XLNetPretrainer(backbone(), next_sentence_weight=0.5),
    )
    classifier = save(
        "classifier",
        xlnet_tf.XLNetTextClassifier(
            backbone(), num_classes=3, labels=["bad", "größer", "good"]
        ),
    )
    save(
        "classifier_memory",
        xlnet_tf.XLNetTextClassifier(
            backbone(), num_classes=2, segment_length=8
        ),
        length=40,
    )
    save("regressor", xlnet_tf.XLNetTextRegressor(backbone()))
    save(
        "tagger",
        xlnet_tf.XLNetTokenClassifier(backbone(), num_classes=3, labels=LABELS),
    )
    save(
        "choice",
        xlnet_tf.XLNetMultipleChoice(backbone()),
        max_question_length=6,
    )
    save("ranker", xlnet_tf.XLNetRanker(backbone()))
    save(
        "questions",
        xlnet_tf.XLNetQuestionAnswering(backbone(), num_starts=3, num_ends=2),
        length=24,
        stride=5,
        max_question_length=6,
    )
    save("spans", xlnet_tf.XLNetSpanClassifier(backbone()))
    classifier.save(directory / "classifier.keras")
    pretrainer = xlnet_tf.XLNetPretrainer.from_preset(directory / "pretrainer")
    keras.utils.set_random_seed(7)
    pretrainer.remember(batch_size=2)
    pretrainer.compile(optimizer=keras.optimizers.AdamW(1e-3), run_eagerly=True)
    pretrainer.train_on_batch(pretraining_batch())
    pretrainer.save(directory / "pretrainer.keras")
    for name in ("pretrainer", "classifier"):
        for form in ("tf1", "hf"):
            run(
                convert.main,
                [
                    *("--from", directory / name, "--format", form),
                    *("--to", directory / f"{name}_{form}"),
                ],
            )


def pretraining_batch():
    """Features of two rows, one of them read backwards and padded."""
    random = np.random.default_rng(4)
    length, targets = 14, 4
    ids = random.integers(9, MODEL["vocabulary_size"], (2, length))
    positions = np.array([[1, 4, 5, 12], [2, 3, 8, 9]])
    rank = np.full((2, length), -1)
    order = np.array([[2, 0, 3, 1], [1, 0, 0, 2]])
    np.put_along_axis(rank, positions, order, axis=1)
    padding = np.ones((2, length))
    padding[0, -1:] = 0
    arrays = {
        "token_ids": ids,
        "segment_ids": np.arange(length)[None] // np.array([[6], [9]]),
        "padding_mask": padding,
        "factorization_rank": rank,
        "target_positions": positions,
        "target_ids": np.take_along_axis(ids, positions, axis=1),
    }
    arrays = {name: value.astype("int32") for name, value in arrays.items()}
    weights = np.ones((2, targets), "float32")
    weights[1, 3] = 0
    return {
        **arrays,
        "target_weights": weights,
        "is_reversed": np.array([False, True]),
        "is_next": np.array([True, False]),
    }


def plain_features(shape):
    """Ids of random rows, with segments and some padding on the left."""
    random = np.random.default_rng(9)
    ids = random.integers(9, MODEL["vocabulary_size"], shape)
    segments = np.broadcast_to(np.arange(shape[-1]) // 5, shape)
    padding = np.ones(shape, int)
    padding[0, ..., :3] = 0
    return {
        "token_ids": ids.tolist(),
        "segment_ids": segments.tolist(),
        "padding_mask": padding.tolist(),
    }


def make_answers():
    """What every kept model answers to raw strings and to features."""
    sentences = list(tiny_sentences(6))
    texts = ["ba co fi", "", sentences[0], "<cls> größer, 70, co <sep>"]
    others = ["co", "fi " * 20, "", "ba"]
    options = [["co", ""], ["fi " * 30, "ba"], ["", ""], ["a", "b"]]
    pairs = {"text": texts, "text_pair": others}
    memories = np.random.default_rng(1).normal(0, 1, (2, 2, 8, 16))
    flat, nested = plain_features((2, 12)), plain_features((2, 3, 12))
    with_memory = {
        **flat,
        "memories": [m.astype("float32").tolist() for m in memories],
        "memory_mask": (np.arange(8)[None] >= [[3], [0]]).tolist(),
    }
    positions = {"target_positions": [[2, 7], [0, 11]]}
    inputs = {
        "features": {
            "backbone": with_memory,
            "pretrainer": {**flat, **positions},
            "classifier": flat,
            "regressor": flat,
            "tagger": flat,
            "choice": nested,
            "ranker": {
                **nested,
                "document_mask": [[1, 1, 1], [1, 1, 0]],
            },
            "questions": {**flat, "class_index": [11, 10]},
            "spans": flat,
            "pretraining": {
                name: value.tolist()
                for name, value in pretraining_batch().items()
            },
        },
        "raw": {
            "classifier": {"strings": texts, "tuple": [texts, others]},
            "regressor": {"strings": texts, "pairs": pairs},
            "tagger": {"strings": [t.split() for t in sentences[:3]]},
            "choice": {
                "strings": {
                    "context": texts,
                    "question": others,
                    "options": options,
                }
            },
            "ranker": {"strings": {"query": texts, "documents": options}},
            "questions": {
                "strings": {
                    "question": ["ba co", "", "fi " * 9, sentences[4]],
                    "context": [
                        sentences[0],
                        "",
                        " ".join(sentences[:3]),
                        sentences[5],
                    ],
                }
            },
        },
    }
    found = {}
    for name in (*earlier.PRESETS, *earlier.KERAS_FILES):
        with tempfile.TemporaryDirectory() as temporary:
            place = pathlib.Path(temporary) / name
            if name in earlier.KERAS_FILES:
                shutil.copyfile(HERE / "presets" / name, place)
                model = keras.models.load_model(place)
            else:
                shutil.copytree(HERE / "presets" / name, place)
                cls = getattr(xlnet_tf, earlier.PRESETS[name])
                model = cls.from_preset(place)
            found[name] = earlier.answers(name, model, inputs)
    text = json.dumps({"inputs": inputs, "answers": found})
    (HERE / "answers.json").write_text(text + "\n", encoding="utf-8")


CASES = (
    ("classification", "classification", {}, "dev.tsv"),
    ("regression", "regression", {}, "dev.tsv"),
    ("ranking", "ranking", {}, "dev.tsv"),
    ("race", "race", {}, ""),
    ("ner", "ner", {}, "dev.conll"),
    ("squad-2.0", "squad-2.0", {}, "dev-v2.0.json"),
    (
        "windows",
        "classification",
        {"long_documents": "windows", "sequence_length": 16, "stride": 6},
        "dev.tsv",
    ),
    ("memory", "classification", {"long_documents": "memory"}, "dev.tsv"),
)


def make_finetuning():
    """Four steps on every kind of task, and their results."""
    directory = fresh("finetuning")
    words = list(tiny_sentences(40))
    cases, results = [], {}
    for name, task, settings, predict in CASES:
        data = directory / "data" / task
        if not data.exists():
            data.mkdir(parents=True)
            for split, texts in (("train", words[:24]), ("dev", words[24:])):
                finetuning_fixtures._WRITERS[task](data, split, texts)
        for file in data.glob("*-v1.1.json"):
            file.unlink()
        training = f"{name}.json"
        settings = {
            **finetuning_fixtures.SETTINGS,
            "steps": 4,
            "learning_rate": 0.005,
            "steps_per_loop": 4,
            "evaluation_interval": 4,
            "checkpoint_interval": 4,
            "seed": 7,
            **settings,
        }
        write(f"finetuning/{training}", settings)
        case = {
            "name": name,
            "task": task,
            "data": task,
            "training": training,
            "predict": predict and f"{task}/{predict}",
        }
        cases.append(case)
        with tempfile.TemporaryDirectory() as temporary:
            copy = pathlib.Path(temporary) / "finetuning"
            shutil.copytree(directory, copy)
            preset = HERE / "presets" / "pretrainer"
            argv = earlier.finetuning_options(case, preset, copy)
            run(finetune.main, argv)
            results[name] = earlier.finetuning_result(copy / "runs" / name)
    write("finetuning/commands.json", cases)
    (directory / "results.json").write_text(
        json.dumps(results) + "\n", encoding="utf-8"
    )


def make_exports():
    """What exports answer; that of the classifier is kept, compressed."""
    sentences = list(tiny_sentences(6))
    texts = ["ba co fi", "", " ".join(sentences[:3]), "<cls> größer, 70, co"]
    ids = plain_features((2, 12))
    filled = ["ba <mask> fi", "<mask>", "größer 70, <mask> co <mask>", "ba"]
    segment = {
        "memories": np.zeros((4, 2, 8, 16)).tolist(),
        "memory_mask": np.zeros((4, 8), int).tolist(),
    }
    questions = {
        "question": ["ba co", "", "fi " * 9, sentences[4]],
        "context": [sentences[0], "", " ".join(sentences[:3]), sentences[5]],
    }
    cases = {
        "pretrainer": {
            "serving_default": {"text": filled},
            "fill_in": {"text": filled},
            "embed": {"text": texts},
            "embed_ids": ids,
            "fill_in_ids": {**ids, "target_positions": [[2, 7], [0, 11]]},
            "document_segment": {"text": texts, **segment},
        },
        "classifier": {
            "serving_default": {"text": texts},
            "pairs": {"text": texts, "text_pair": texts[::-1]},
            "ids": ids,
        },
        "questions": {"serving_default": questions},
    }
    found = {}
    for name, inputs in cases.items():
        with tempfile.TemporaryDirectory() as temporary:
            place = pathlib.Path(temporary) / name
            options = ["--model", HERE / "presets" / name, "--output", place]
            if name == "pretrainer":
                options += ["--sequence-length", LENGTH, "--num-candidates", 3]
            run(export.main, options)
            answers = earlier.ask(place / "1", inputs)
            found[name] = {
                "options": list(map(str, options[4:])),
                "inputs": inputs,
                "answers": answers,
            }
            if name == KEPT_EXPORT:
                with tarfile.open(HERE / earlier.EXPORT_FILE, "w:xz") as file:
                    file.add(place / "1", "1")
    (HERE / "exports.json").write_text(
        json.dumps(found) + "\n", encoding="utf-8"
    )


def make_same():
    """Keeps files that are the same once, and says where they belong."""
    kept = {}
    places = [HERE / "spiece.model"]
    for name in ("presets", "records", "run"):
        places += sorted(p for p in (HERE / name).rglob("*") if p.is_file())
    file = HERE / earlier.SAME_FILE
    same = json.loads(file.read_text()) if file.is_file() else {}
    for place in places:
        if place.stat().st_size < 4096:
            continue
        name = str(place.relative_to(HERE))
        first = kept.setdefault(earlier.digest(place), name)
        if first != name:
            same[name] = first
            place.unlink()
    write(earlier.SAME_FILE, dict(sorted(same.items())))


PIECES = {
    "tokens": make_tokens,
    "records": make_records,
    "presets": make_presets,
    "answers": make_answers,
    "finetuning": make_finetuning,
    "run": make_run,
    "exports": make_exports,
    "same": make_same,
}


if __name__ == "__main__":
    for piece in sys.argv[1:] or PIECES:
        PIECES[piece]()
