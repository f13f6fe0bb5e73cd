"""A small run of the train command: text, tokenizer, records, options."""

import json

from data_pipeline.base import command_line
from data_pipeline.records.build import build_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf import train

LENGTH = 32


def write_records(directory, settings=None, seed=0, num_sentences=400):
    """Text of made-up words -> records with a held-out split."""
    directory.mkdir(parents=True, exist_ok=True)
    text = directory / "text.txt"
    lines = list(tiny_sentences(num_sentences))
    documents = ["\n".join(lines[i : i + 10]) for i in range(0, len(lines), 10)]
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    model = directory / "tiny.model"
    model.write_bytes(tiny_model())
    build_records(
        str(text),
        Tokenizer(model),
        str(directory / "records"),
        settings
        or RecordSettings(
            sequence_length=LENGTH, validation_fraction=0.2, seed=seed
        ),
        processes=1,
    )
    return directory / "records"


def write_configs(directory, **training):
    """A config of 1 layer and settings that make a short run."""
    directory.mkdir(parents=True, exist_ok=True)
    model = {
        "vocabulary_size": 300,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 16,
        "intermediate_dim": 24,
    }
    training = {
        "steps_per_loop": 2,
        "evaluation_interval": 4,
        "evaluation_steps": 3,
        "checkpoint_interval": 2,
        "learning_rate": 0.01,
        **training,
    }
    (directory / "model.json").write_text(json.dumps(model))
    (directory / "training.json").write_text(json.dumps(training))
    return [
        "--config",
        str(directory / "model.json"),
        "--training",
        str(directory / "training.json"),
    ]


def arguments(records, output, *more, steps=4, batch_size=4):
    return [
        "--records",
        str(records),
        "--output",
        str(output),
        "--steps",
        str(steps),
        "--batch-size",
        str(batch_size),
        "--strategy",
        "one_device",
        *map(str, more),
    ]


def run_train(*argv):
    """Exit status of the train command in this process."""
    return command_line.run(train.main, list(argv))


def one_line(capfd):
    """The error that a command printed, which must be a single line."""
    error = capfd.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error, error
    return error
