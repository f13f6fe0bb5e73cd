"""A small run of the train command: text, tokenizer, records, options."""

import json

from data_pipeline.base import command_line
from data_pipeline.records.build import build_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support import artefacts
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf import train

LENGTH = 32


def write_records(directory, settings=None, seed=0, num_sentences=400):
    """Write records with a held-out split, from text of made-up words."""
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


def write_configs(directory, model=(), **training):
    """Write files for a one-layer model and a short run; return the options.

    Args:
        directory: path for the files.
        model: dict of fields of the config.
        **training: settings.
    """
    directory.mkdir(parents=True, exist_ok=True)
    training = {
        "steps_per_loop": 2,
        "evaluation_interval": 4,
        "evaluation_steps": 3,
        "checkpoint_interval": 2,
        "learning_rate": 0.01,
        **training,
    }
    files = directory / "model.json", directory / "training.json"
    files[0].write_text(json.dumps({**artefacts.MODEL, **dict(model)}))
    files[1].write_text(json.dumps(training))
    return ["--config", str(files[0]), "--training", str(files[1])]


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
    """Run the train command in this process; return its exit status."""
    return command_line.run(train.main, list(argv))
