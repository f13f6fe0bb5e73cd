"""A flipped bit in a file that was written here is found when it is loaded.

Each trial flips one bit of one file and reads it as users do. Either an error
names the file, or what was read equals what was written bit by bit. The second
happens in `.keras` files only: dates, attributes and the like of their zip
directory are covered by no checksum, and nothing reads them.
"""

import functools
import itertools
import json
import pathlib
import shutil
import zipfile
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import saved_models
import xlnet_tf
from data_pipeline.base.files import names_below
from data_pipeline.base.models import read_results
from saved_models.model_card import training_facts
from saved_models.settings import ExportSettings
from tests.support.artefacts import Artefacts
from xlnet_tf.training import finetune
from xlnet_tf.training import loop
from xlnet_tf.training.directory import claim_identity
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.released import save_tf1

TRIALS = 200 * 16
# What a reader may raise; anything else is a bug.
ERRORS = (ValueError, FileNotFoundError)


class Kind(NamedTuple):
    """One kind of artefact.

    Attributes:
        directory: path.
        names: list of str, the files below it whose bits are flipped.
        read: function of the directory to a value that can be compared.
        may_be_harmless: bool, whether the format leaves bits that nothing
            reads.
        places: function of a file to its bytes that are damaged, list of int;
            None for all.
    """

    directory: pathlib.Path
    names: list
    read: object
    may_be_harmless: bool = False
    places: object = None


def trials(count, directory, generator):
    artefacts = Artefacts(directory / "artefacts")
    kinds = kinds_of(
        artefacts.get("finetuned-classification"),
        artefacts.get("exported-classifier"),
        directory,
    )
    yield from flips(kinds, count, generator)


def kinds_of(run, export, directory):
    """dict of name to Kind, in copies.

    Args:
        run: path of a fine-tuning run of a classifier.
        export: path of an export of it.
        directory: path of an empty directory.
    """
    run = shutil.copytree(run, directory / "run")
    export = shutil.copytree(export, directory / "export")
    model = _load(run / "best")
    tokenizer = model.preprocessor.tokenizer
    save_hugging_face(model, directory / "hugging_face")
    save_tf1(model.backbone, directory / "tf1", tokenizer)
    model.save(directory / "model.keras")
    version = export / "1"
    resume = functools.partial(_resume, json.loads(_text(run / "run.json")))

    def all_of(path, read, **options):
        return Kind(path, names_below(path), read, **options)

    keras_file = Kind(
        directory,
        ["model.keras"],
        lambda path: _content(xlnet_tf.load(path / "model.keras")),
        may_be_harmless=True,
    )
    return {
        ".keras": keras_file,
        ".keras, its directory": keras_file._replace(places=_zip_structures),
        "model.keras of a run": Kind(
            run,
            ["model.keras"],
            lambda path: _content(xlnet_tf.load(path)),
            may_be_harmless=True,
        ),
        "preset, best/": all_of(run / "best", _load),
        "Hugging Face": all_of(directory / "hugging_face", _load),
        "TensorFlow 1": all_of(
            directory / "tf1", xlnet_tf.XLNetBackbone.from_preset
        ),
        "run.json, training.json": Kind(
            run, ["run.json", "training.json"], resume
        ),
        "run.json, on export": Kind(run, ["run.json"], training_facts),
        "training.json, as settings": Kind(
            run,
            ["training.json"],
            lambda path: FinetuningSettings.read(path / "training.json"),
        ),
        "best.json": Kind(run, ["best.json"], _best),
        "results.json": Kind(run, ["results.json"], read_results),
        "SHA256SUMS of a run": Kind(
            run, ["SHA256SUMS"], resume, may_be_harmless=True
        ),
        "export, saved_model.pb": Kind(
            version, ["saved_model.pb"], saved_models.load
        ),
        "export, variables": Kind(
            version,
            [x for x in names_below(version) if x.startswith("variables/")],
            saved_models.load,
        ),
        "export, other files": Kind(
            version,
            [
                x
                for x in names_below(version)
                if x != "saved_model.pb" and not x.startswith("variables/")
            ],
            saved_models.load,
        ),
        "export, its settings": Kind(
            version,
            ["assets.extra/settings.json"],
            lambda path: ExportSettings.read(
                path / "assets.extra" / "settings.json"
            ),
        ),
    }


def flips(kinds, count, generator):
    """Yields (label, problem) of one flipped bit after the other.

    Args:
        kinds: dict of name to Kind.
        count: int.
        generator: random.Random.
    """
    # All of them can be read as they are.
    expected = {k: kind.read(kind.directory) for k, kind in kinds.items()}
    names = [itertools.cycle(kind.names) for kind in kinds.values()]
    for number in range(count):
        name, kind = list(kinds.items())[number % len(kinds)]
        file = kind.directory / next(names[number % len(kinds)])
        content = bytearray(file.read_bytes())
        places = range(len(content))
        if kind.places is not None:
            places = kind.places(file)
        bit = 8 * generator.choice(places) + generator.randrange(8)
        content[bit // 8] ^= 1 << bit % 8
        whole, file = file, file.with_name(f".whole-{file.name}")
        whole.rename(file)
        whole.write_bytes(content)
        try:
            problem = _outcome(kind, whole, expected[name])
        finally:
            file.replace(whole)
        yield (
            f"a bit of {name}",
            problem and f"bit {bit} of {whole.name}: {problem}",
        )


def _outcome(kind, file, expected):
    """str, what is wrong with how a damaged file is read, or None."""
    try:
        found = kind.read(kind.directory)
    except ERRORS as error:
        is_named = str(kind.directory) in str(error)
        return None if is_named else f"no file is named: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not kind.may_be_harmless:
        return "not found"
    return None if found == expected else "other values were read"


def _zip_structures(file):
    """Places of the bytes of a zip file that are not those of its members."""
    with zipfile.ZipFile(file) as archive:
        found = set(range(file.stat().st_size))
        for member in archive.infolist():
            with archive.open(member) as data:
                begin = data._orig_compress_start
            found -= set(range(begin, begin + member.compress_size))
    return sorted(found)


def _text(file):
    return file.read_text(encoding="utf-8")


def _load(path):
    return xlnet_tf.XLNetTextClassifier.from_preset(path)


def _content(model):
    """Bytes and values that decide all outputs of a model."""
    weights = {w.path: np.asarray(w.value).tobytes() for w in model.weights}
    return type(model), repr(model.get_config()), weights


def _resume(identity, path):
    settings = FinetuningSettings(
        **identity["training"], output=str(path), quiet=True
    )
    backend = TensorFlow(tf.distribute.get_strategy())
    claim_identity(loop.Run(settings, backend), identity, finetune.KIND)


def _best(path):
    return loop.Best(path, 100, None, True)
