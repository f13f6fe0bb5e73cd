"""All functions that read untrusted files, each with small valid files."""

import functools
import io
import json
import pathlib
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import yaml

from tests.conftest import ROOT
from tests.support.mutations import edited
from tests.support.mutations import mutated_bytes
from tests.support.mutations import mutated_json
from tests.support.mutations import mutated_safetensors
from tests.support.mutations import mutated_zip
from tests.support.samples import tiny_model
from tests.support.weight_models import ours

GOLDEN = ROOT / "tests" / "golden" / "peers"


class Reader(NamedTuple):
    """A function that reads files, and valid files for it.

    Attributes:
        directory: path.
        changes: dict from the name of a file below `directory` to the function
            that changes the file's content, see `mutations`.
        read: function that reads a directory.
    """

    directory: pathlib.Path
    changes: dict
    read: Callable


def readers(directory, names=None):
    """Readers by name, dict, each with its own folder below a directory."""
    found = {}
    for name in names or SHARES:
        folder = directory / name.replace(" ", "_")
        folder.mkdir()
        changes, read = _MAKERS[name](folder)
        found[name] = Reader(folder, changes, read)
    return found


def _small_vocabulary():
    """Bytes of a SentencePiece model without normalization rules."""
    return tiny_model(normalization_rule_name="identity")


@functools.cache
def _classifier():
    from data_pipeline.tokenization.tokenizer import Tokenizer
    from xlnet_tf import XLNetTextClassifier
    from xlnet_tf import XLNetTextClassifierPreprocessor

    tokenizer = Tokenizer.from_model_proto(_small_vocabulary())
    return ours(
        XLNetTextClassifier,
        dict(vocabulary_size=300, num_layers=1),
        num_classes=2,
        labels=["no", "yes"],
        preprocessor=XLNetTextClassifierPreprocessor(tokenizer, 16),
    )


def _load(path):
    from xlnet_tf import XLNetTextClassifier

    return XLNetTextClassifier.from_preset(path, verify=False)


def _config(path):
    from xlnet_tf.config import config_from_json

    values = _classifier().config.to_dict()
    (path / "ours.json").write_text(json.dumps(values))
    for name in ("hugging_face", "bert"):
        shutil.copy(GOLDEN / name / "config.json", path / f"{name}.json")

    def read(path):
        for file in path.iterdir():
            config_from_json(file)

    names = ("ours.json", "hugging_face.json", "bert.json")
    return dict.fromkeys(names, mutated_json), read


def _preset(path):
    _classifier().save_to_preset(path)
    names = "config task preprocessor tokenizer metadata".split()
    changes = {f"{name}.json": mutated_json for name in names}
    for name in ("model", "task"):
        changes[f"{name}.weights.h5"] = mutated_bytes
    changes["assets/tokenizer/vocabulary.spm"] = _mutated_vocabulary
    return changes, _load


def _hugging_face(path):
    from xlnet_tf.weights.hugging_face.writer import save_hugging_face

    save_hugging_face(_classifier(), path)
    changes = {
        "config.json": mutated_json,
        "model.safetensors": mutated_safetensors,
    }
    return changes, _load


def _bert(path):
    from xlnet_tf import BertBackbone

    for file in (GOLDEN / "bert").iterdir():
        shutil.copy(file, path)
    changes = {
        "config.json": mutated_json,
        "model.safetensors": mutated_safetensors,
    }
    return changes, lambda path: BertBackbone.from_preset(path, verify=False)


def _torch(path):
    import torch
    from safetensors.torch import load_file

    changes, read = _hugging_face(path)
    weights = path / "model.safetensors"
    torch.save(load_file(weights), path / "pytorch_model.bin")
    weights.unlink()
    return {"pytorch_model.bin": mutated_zip}, read


def _tensorflow(path):
    from xlnet_tf.weights.released import save_tf1

    backbone = _classifier().backbone
    save_tf1(backbone, path, _classifier().preprocessor.tokenizer)
    changes = {
        "xlnet_config.json": mutated_json,
        "xlnet_model.ckpt.index": mutated_bytes,
        "xlnet_model.ckpt.data-00000-of-00001": mutated_bytes,
    }
    read = type(backbone).from_preset
    return changes, lambda path: read(path, verify=False)


def _model_garden(path):
    from xlnet_tf import XLNetBackbone

    for file in (GOLDEN / "model_garden").iterdir():
        shutil.copy(file, path)
    changes = {
        "params.yaml": _mutated_yaml,
        "ckpt-1.index": mutated_bytes,
        "ckpt-1.data-00000-of-00001": mutated_bytes,
    }
    return changes, lambda path: XLNetBackbone.from_preset(path)


def _keras(path):
    from xlnet_tf.loading import load

    _classifier().save(path / "model.keras")
    members = {"config.json": mutated_json, "metadata.json": mutated_json}
    change = functools.partial(mutated_zip, changes=members)
    return {"model.keras": change}, lambda path: load(path / "model.keras")


def _vocabulary(path):
    from data_pipeline.tokenization.hugging_face import read_tokenizer

    (path / "spiece.model").write_bytes(_small_vocabulary())
    return {"spiece.model": _mutated_vocabulary}, read_tokenizer


def _tokenizer_json(path):
    from data_pipeline.tokenization.hugging_face import read_tokenizer
    from data_pipeline.tokenization.hugging_face import write_tokenizer

    write_tokenizer(_classifier().preprocessor.tokenizer, path)
    (path / "spiece.model").unlink()
    names = ("tokenizer.json", "tokenizer_config.json")
    changes = dict.fromkeys(names, mutated_json)
    return changes, functools.partial(read_tokenizer, verify=False)


def _settings(path):
    from saved_models.settings import ExportSettings
    from xlnet_tf.training.settings import FinetuningSettings
    from xlnet_tf.training.settings import PretrainingSettings

    files = {}
    for cls in (PretrainingSettings, FinetuningSettings, ExportSettings):
        values = {k: v for k, v in cls().to_dict().items() if v is not None}
        values = json.loads(json.dumps(values))
        files[f"{cls.__name__}.json"] = cls, json.dumps(values)
        files[f"{cls.__name__}.yaml"] = cls, yaml.safe_dump(values)
    for name, (_, text) in files.items():
        (path / name).write_text(text)

    def read(path):
        for name, (cls, _) in files.items():
            cls.read(path / name)

    changes = {
        name: mutated_json if name.endswith("json") else _mutated_yaml
        for name in files
    }
    return changes, read


def _run_files(path):
    from data_pipeline.base.models import read_results
    from saved_models.model_card import training_facts
    from xlnet_tf.training.results.summary import make_results
    from xlnet_tf.training.results.summary import write_results

    results = make_results(
        task="rte",
        metrics={"accuracy": 0.5},
        seed=1,
        steps=2,
        examples=3,
        preset=None,
        started_from="random",
        details={"threshold": 0.5},
    )
    write_results(path, results)
    (path / "SHA256SUMS").unlink()
    run = {"format_version": 1, "task": "rte", "training": {"seed": 1}}
    (path / "run.json").write_text(json.dumps(run))
    (path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n' * 3)

    def read(path):
        read_results(path)
        training_facts(path)

    changes = {
        "results.json": mutated_json,
        "run.json": mutated_json,
        "metrics.jsonl": mutated_bytes,
    }
    return changes, read


_SQUAD = {
    "data": [
        {
            "title": "A",
            "paragraphs": [
                {
                    "context": "Who sat on a mat?",
                    "qas": [
                        {
                            "id": f"{i}",
                            "question": "Who?",
                            "is_impossible": i == 1,
                            "answers": [{"text": "sat", "answer_start": 4}],
                        }
                        for i in range(3)
                    ],
                }
            ],
        }
    ]
}
_TABLE = "text\tlabel\n" + "Who sat on a mat?\tno\nIt did.\tyes\n" * 4
_TASK_FILES = {
    "squad-2.0": {"train.json": (json.dumps(_SQUAD), mutated_json)},
    "classification": {
        "train.tsv": (_TABLE, mutated_bytes),
        "train.csv": (_TABLE.replace("\t", ","), mutated_bytes),
        "train.jsonl": (
            '{"text": "Who sat?", "label": "no"}\n' * 3,
            mutated_bytes,
        ),
        "train.json": (
            json.dumps([{"text": "Who sat?", "label": "no"}] * 3),
            mutated_json,
        ),
    },
    "ner": {
        "train.txt": ("He O\nsat O\n\nIn O\nRome B-LOC\n" * 3, mutated_bytes)
    },
}


def _task_files(path):
    from data_pipeline.tasks.reading import read_examples

    files = {
        f"{task}/{name}": (task, *file)
        for task, found in _TASK_FILES.items()
        for name, file in found.items()
    }
    for name, (_, text, _) in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)

    def read(path):
        for name, (task, _, _) in files.items():
            read_examples(task, path / name)

    return {name: change for name, (_, _, change) in files.items()}, read


def _archives(path):
    from data_pipeline.tasks.reading import read_examples

    with zipfile.ZipFile(path / "data.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for split in ("train", "dev"):
            file.writestr(f"{split}.tsv", _TABLE)
    for ending in ("", ".gz", ".bz2", ".xz"):
        mode = f"w:{ending[1:]}"
        with tarfile.open(path / f"data.tar{ending}", mode) as file:
            for split in ("train", "dev"):
                entry = tarfile.TarInfo(f"{split}.tsv")
                entry.size = len(_TABLE)
                file.addfile(entry, io.BytesIO(_TABLE.encode()))
    names = sorted(file.name for file in path.iterdir())

    def read(path):
        for name in names:
            read_examples("classification", path / name)

    changes = dict.fromkeys(names, mutated_bytes)
    return {**changes, "data.zip": mutated_zip}, read


def _texts(path):
    import bz2
    import gzip
    import lzma

    from data_pipeline.text.documents import read_documents

    text = "Who sat on a mat? It did.\n\n" * 20
    line = json.dumps({"text": "Who sat on a mat? It did."}) + "\n"
    (path / "a.txt").write_text(text)
    (path / "b.jsonl").write_text(line * 5)
    (path / "c.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (path / "d.txt.bz2").write_bytes(bz2.compress(text.encode()))
    (path / "e.txt.xz").write_bytes(lzma.compress(text.encode()))
    names = sorted(file.name for file in path.iterdir())

    def read(path):
        for name in names:
            for _ in read_documents(path / name):
                pass

    return dict.fromkeys(names, mutated_bytes), read


def _tables(path):
    import pyarrow

    from data_pipeline.tasks.reading import read_examples
    from data_pipeline.text.documents import read_documents
    from tests.support.table_files import save_dataset
    from tests.support.table_files import write_all

    content = pyarrow.table(
        {
            "text": ["Who sat on a mat?", None, "It did."] * 20,
            "label": pyarrow.array(["no", "a", "yes"] * 20).dictionary_encode(),
            "a": [{"b": "c"}, None, {"b": None}] * 20,
            "score": [1.5, 2.0, 0.0] * 20,
        }
    )
    names = [file.name for file in write_all(content, path)]
    names.append(save_dataset(content, path / "saved").name)
    text = b"Who sat on a mat? It did.\n\n" * 20
    (path / "f.txt.zst").write_bytes(
        pyarrow.compress(text, "zstd", asbytes=True)
    )

    def read(path):
        for name in [*names, "f.txt.zst"]:
            for _ in read_documents(path / name):
                pass
        for name in names:
            columns = {"text": "label"}
            read_examples("classification", path / name, columns=columns)

    changes = dict.fromkeys([*names[:-1], "f.txt.zst"], mutated_bytes)
    changes["saved/state.json"] = mutated_json
    changes["saved/data-00000-of-00002.arrow"] = mutated_bytes
    return changes, read


def _operations(path):
    import tensorflow as tf

    from saved_models.client.operations import check_operations

    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0])
    module.call = tf.function(
        lambda x: x * module.weight,
        input_signature=[tf.TensorSpec([None], tf.float32)],
    )
    tf.saved_model.save(module, str(path))
    return {"saved_model.pb": mutated_bytes}, check_operations


def _mutated_vocabulary(content, generator):
    from data_pipeline.tokenization import model_file

    if generator.random() < 0.5:
        return mutated_bytes(content, generator)
    model = model_file.ModelProto.FromString(content)
    entry = generator.choice(model.pieces)
    kind = generator.randrange(9)
    if kind == 0:
        entry.piece = generator.choice(("", " ", "a" * 300_000, "\0", "<s>"))
    elif kind == 1:
        entry.score = generator.choice((float("nan"), 1e30, -1e30, 0.0))
    elif kind == 2:
        entry.type = generator.randrange(-2, 9)
    elif kind == 3:
        model.pieces.remove(entry)
    elif kind == 4:
        model.pieces.add().CopyFrom(entry)
    elif kind == 5:
        model.normalizer_spec.precompiled_charsmap = generator.randbytes(
            generator.choice((1, 4, 1000))
        )
    elif kind == 6:
        model.trainer_spec.model_type = generator.randrange(-1, 6)
    elif kind == 7:
        model.normalizer_spec.escape_whitespaces = False
    else:
        del model.pieces[generator.randrange(len(model.pieces)) :]
    return model.SerializeToString()


def _mutated_yaml(content, generator):
    if generator.random() < 0.4:
        return mutated_bytes(content, generator)
    if generator.random() < 0.1:
        tag = generator.choice(
            (
                "!!python/object/apply:os.system [id]",
                "!!bool x",
                "!!int x",
                "*a",
            )
        )
        return content + b"\nx: " + tag.encode()
    value = edited(yaml.safe_load(content), generator)
    # JSON is YAML, and can hold all of the values.
    try:
        return json.dumps(value).encode()
    except RecursionError:  # nested too often to be written
        return mutated_bytes(content, generator)


_MAKERS = {
    "config": _config,
    "settings": _settings,
    "run files": _run_files,
    "task files": _task_files,
    "archives": _archives,
    "texts": _texts,
    "tables": _tables,
    "operations": _operations,
    "tokenizer.json": _tokenizer_json,
    "vocabulary": _vocabulary,
    "hugging face": _hugging_face,
    "bert": _bert,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "model garden": _model_garden,
    "preset": _preset,
    "keras": _keras,
}
# Shares of 100 trials; readers that take longest have fewest.
SHARES = {
    **dict.fromkeys(("config", "run files", "task files", "operations"), 14),
    **dict.fromkeys(("settings", "archives", "texts", "tables"), 8),
    **dict.fromkeys(
        ("tokenizer.json", "vocabulary", "hugging face", "bert"), 3
    ),
    **dict.fromkeys(("torch", "tensorflow", "model garden"), 2),
    **dict.fromkeys(("preset", "keras"), 1),
}
