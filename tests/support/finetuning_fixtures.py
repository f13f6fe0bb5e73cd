"""Small tasks of made-up words, and a small model to learn them."""

import json

import numpy as np

import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf import finetune

SETTINGS = {
    "steps": 6,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "sequence_length": 24,
    "steps_per_loop": 2,
    "evaluation_interval": 2,
    "checkpoint_interval": 2,
    "max_question_length": 8,
    "stride": 8,
    "num_documents": 3,
    "n_best_size": 3,
}


def write_preset(directory, **config):
    """A pretrained model of one layer, with its tokenizer."""
    config = xlnet_tf.XLNetConfig(
        **{
            "vocabulary_size": 300,
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 32,
            "intermediate_dim": 24,
            "memory_length": 8,
            "initializer_range": 0.3,
            **config,
        }
    )
    model = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config, seed=3))
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    model.save_to_preset(directory, tokenizer=tokenizer)
    return directory


def write_training(directory, **settings):
    """Write the file for `--training`."""
    file = directory / "training.json"
    file.write_text(json.dumps({**SETTINGS, **settings}))
    return file


def write_task(directory, task):
    """Write the files of a task: train and dev."""
    directory.mkdir(parents=True, exist_ok=True)
    words = list(tiny_sentences(60))
    for split, texts in (("train", words[:40]), ("dev", words[40:])):
        _WRITERS[task](directory, split, texts)
    return directory


def run(*arguments):
    """Run the command; return its exit status."""
    return command_line.run(finetune.main, [str(x) for x in arguments])


def _table(directory, split, header, rows):
    lines = ["\t".join(map(str, row)) for row in [header, *rows]]
    text = "\n".join(lines) + "\n"
    (directory / f"{split}.tsv").write_text(text, encoding="utf-8")


def _classification(directory, split, texts):
    # A text with this word again and again is a "yes".
    word = next(iter(tiny_sentences(1))).split()[0]
    rows = [
        (
            f"{word} {word} {word} {text}" if i % 2 else text,
            ("no", "yes")[i % 2],
        )
        for i, text in enumerate(texts)
    ]
    _table(directory, split, ("text", "label"), rows)


def _multi_label(directory, split, texts):
    """Make texts that contain the words of their classes."""
    rows = [
        (text, "|".join(x for x in ("ba", "co", "fi") if x in text))
        for text in texts
    ]
    _table(directory, split, ("text", "labels"), rows)


def _regression(directory, split, texts):
    rows = [(a, b, len(a) / 10) for a, b in zip(texts, texts[1:], strict=False)]
    _table(directory, split, ("text", "text_pair", "score"), rows)


def _ranking(directory, split, texts):
    rows = [
        (f"q{i // 5}", texts[i // 5], text, int(i % 5 == 0))
        for i, text in enumerate(texts)
    ]
    header = ("query_id", "query", "document", "relevance")
    _table(directory, split, header, rows)


def _choices(directory, split, texts):
    folder = directory / "RACE" / split / "middle"
    folder.mkdir(parents=True)
    for i in range(0, len(texts) - 7, 2):
        article = {
            "id": f"middle{i}.txt",
            "article": texts[i],
            "questions": [texts[i + 1]],
            "options": [texts[i + 2 : i + 6]],
            "answers": ["ABCD"[i // 2 % 4]],
        }
        (folder / f"{i}.txt").write_text(json.dumps(article))


def _tokens(directory, split, texts):
    blocks = [
        "\n".join(
            f"{word}\t{'B-long' if len(word) > 5 else 'O'}"
            for word in text.split()
        )
        for text in texts
    ]
    text = "\n\n".join(blocks) + "\n"
    (directory / f"{split}.conll").write_text(text, encoding="utf-8")


def _questions(directory, split, texts):
    random = np.random.default_rng(0)
    paragraphs = []
    for i, text in enumerate(texts):
        answer = random.choice(text.split())
        is_impossible = i % 4 == 3
        answers = [{"text": answer, "answer_start": text.index(answer)}]
        paragraphs.append(
            {
                "context": text,
                "qas": [
                    {
                        "id": f"{split}{i}",
                        "question": texts[i - 1][:20],
                        "is_impossible": is_impossible,
                        "answers": [] if is_impossible else answers,
                    }
                ],
            }
        )
    for version in ("1.1", "2.0"):
        kept = [
            p
            for p in paragraphs
            if version == "2.0" or not p["qas"][0]["is_impossible"]
        ]
        file = directory / f"{split}-v{version}.json"
        data = [{"title": "made up", "paragraphs": kept}]
        file.write_text(json.dumps({"version": version, "data": data}))


def _pairs(directory, split, texts):
    """Write parallel files; each target is the first word of its source."""
    for ending, lines in (
        ("en", texts),
        ("de", [text.split()[0] for text in texts]),
    ):
        file = directory / f"{split}.{ending}"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


_WRITERS = {
    "seq2seq": _pairs,
    "classification": _classification,
    "multi-label": _multi_label,
    "regression": _regression,
    "ranking": _ranking,
    "race": _choices,
    "ner": _tokens,
    "squad-1.1": _questions,
    "squad-2.0": _questions,
}
