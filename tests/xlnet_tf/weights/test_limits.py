"""Small files that ask for much memory are refused before it is taken."""

import bz2
import gzip
import io
import json
import struct
import tarfile
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.base import limits
from data_pipeline.base.files import read_json
from data_pipeline.base.settings import read_file
from data_pipeline.tasks.reading import read_examples
from data_pipeline.text.documents import read_documents
from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.hugging_face import read_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.client.operations import check_operations
from tests.support.samples import tiny_model
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf.config import config_from_json
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.tensor_files import SafetensorsFiles
from xlnet_tf.weights.tensorflow import TensorFlowCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
# Of 100 times that, what was refused would have taken.
MOST_MEMORY = 150 * 2**20


@pytest.fixture(autouse=True)
def little_memory():
    """No test here takes more than 150 MiB of Python's and NumPy's memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY


def sparse(file, size):
    """A file of zeros that takes no disk."""
    with file.open("wb") as handle:
        handle.truncate(size)
    return file


def read_with_a_header_of(directory, size):
    file = directory / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(struct.pack("<Q", size) + content[8:])
    try:
        XLNetBackbone.from_preset(directory, verify=False)
    finally:
        file.write_bytes(content)


def test_files_that_are_too_long_are_not_read(tmp_path):
    gigabyte = 2**30
    save_hugging_face(ours(XLNetBackbone), tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    for name, read in (
        ("a.json", read_json),
        ("config.json", config_from_json),
        ("a.yaml", lambda file: read_file(PretrainingSettings, file)),
        ("settings.json", lambda file: read_file(PretrainingSettings, file)),
        ("spiece.model", Tokenizer),
        ("tokenizer.json", lambda file: read_tokenizer(file.parent)),
        ("saved_model.pb", lambda file: check_operations(file.parent)),
        (
            "x.ckpt.index",
            lambda file: TensorFlowCheckpoint(file.with_suffix("")),
        ),
    ):
        kept = (tmp_path / name).read_bytes() if name == "config.json" else b""
        file = sparse(tmp_path / name, gigabyte)
        with pytest.raises(ValueError, match=f"{name} is too long for what it"):
            read(file)
        file.unlink() if not kept else file.write_bytes(kept)
    for size in (100 * gigabyte, gigabyte, 2**24 + 1):
        with pytest.raises(ValueError, match="header of .*safetensors is too"):
            read_with_a_header_of(tmp_path, size)
    XLNetBackbone.from_preset(tmp_path, verify=False)


def test_types_that_numpy_lacks_are_named(tmp_path):
    file = tmp_path / "model.safetensors"
    for dtype in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        tensor = {"dtype": dtype, "shape": [4], "data_offsets": [0, 4]}
        header = json.dumps({"a": tensor}).encode()
        file.write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
        with pytest.raises(ValueError, match=f"tensor a is .* type {dtype}"):
            SafetensorsFiles([file]).read("a")


def test_yaml_copies_and_runs_nothing(tmp_path):
    file = tmp_path / "a.yaml"
    pairs = ", ".join(f"k{i}: {i}" for i in range(9))
    lines = [f"a0: &a0 {{{pairs}}}"]
    for i in range(1, 12):
        merged = ", ".join([f"*a{i - 1}"] * 9)
        lines.append(f"a{i}: &a{i} {{<<: [{merged}]}}")
    for text, message in (
        ("\n".join(lines), "merge keys copy too many"),
        (f"a: !!python/object/apply:os.mkdir [{tmp_path}/x]", "could not det"),
        ("a: !!bool x", "not a YAML file"),
        ("[" * 100, "nested too deeply"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message) as error:
            read_file(PretrainingSettings, file)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "x").exists()
    # As people write it.
    assert limits.parse_yaml("a: &a {b: 1}\nc: {<<: *a, d: 2}")["c"] == {
        "b": 1,
        "d": 2,
    }


def test_json_of_lists_in_lists(tmp_path):
    file = tmp_path / "a.json"
    for read in (read_json, config_from_json):
        file.write_text("[" * 10**5)
        with pytest.raises(ValueError, match="a.json is not a JSON file"):
            read(file)
    with pytest.raises(ValueError, match="JSON that cannot be read"):
        read_examples("squad-2.0", file)


def test_what_expands_to_far_more_is_not_expanded(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_ALWAYS_ALLOWED", 2**20)
    table = b"text\tlabel\n" + b"a" * 2**22 + b"\tyes\n"
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(table))
    (tmp_path / "a.tsv.bz2").write_bytes(bz2.compress(table))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("train.tsv", table)
    for ending in ("gz", "xz"):
        path = tmp_path / f"a.tar.{ending}"
        with tarfile.open(path, f"w:{ending}") as file:
            entry = tarfile.TarInfo("train.tsv")
            entry.size = len(table)
            file.addfile(entry, io.BytesIO(table))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 5
    for file in files:
        with pytest.raises(ValueError, match=f"{file.name} expands to more"):
            read_examples("classification", file)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(table))
    with pytest.raises(ValueError, match="a.txt.gz expands to more than"):
        list(read_documents(tmp_path / "a.txt.gz"))


def test_members_of_archives_lead_nowhere(tmp_path):
    """Neither is anything written: archives are read in place."""
    secret = tmp_path / "secret.tsv"
    secret.write_text("text\tlabel\nsecret\tyes\n")
    before = sorted(x.name for x in tmp_path.iterdir())
    for kind in (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.FIFOTYPE,
    ):
        for name, target in (
            ("train.tsv", str(secret)),
            ("train.tsv", "../secret.tsv"),
            ("../train.tsv", "x"),
        ):
            with tarfile.open(tmp_path / "a.tar", "w") as file:
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = kind, target
                file.addfile(entry)
            with pytest.raises((ValueError, FileNotFoundError)) as error:
                read_examples("classification", tmp_path / "a.tar")
            assert str(tmp_path / "a.tar") in str(error.value)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name in ("../evil.tsv", f"{tmp_path}/evil.tsv"):
            file.writestr(name, secret.read_text())
    with pytest.raises(FileNotFoundError):
        read_examples("classification", tmp_path / "a.zip")
    after = sorted(x.name for x in tmp_path.iterdir())
    assert after == sorted([*before, "a.tar", "a.zip"])


def test_pieces_that_crash_tensorflow_text_are_refused(tmp_path):
    model = model_file.ModelProto.FromString(tiny_model())
    for size in (1001, 200_000):
        model.pieces[-1].piece = "a" * size
        with pytest.raises(ValueError, match="piece .*too long"):
            Tokenizer.from_model_proto(model.SerializeToString())


def rewritten(path, change):
    """Writes the changed members of a `.keras` file beside it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    broken = path.with_name("broken.keras")
    with zipfile.ZipFile(broken, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return broken


def test_members_of_a_keras_file(tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    ours(XLNetBackbone).save(path)

    def arrays(**options):
        def change(members):
            file = io.BytesIO(members["model.weights.h5"])
            with h5py.File(file, "a") as handle:
                handle.create_dataset("more", **options)
            members["model.weights.h5"] = file.getvalue()

        return change

    def layer(name, arguments):
        def change(members):
            values = json.loads(members["config.json"])
            values["config"]["memory"] = {
                "module": "keras.layers",
                "class_name": name,
                "config": arguments,
                "registered_name": None,
            }
            members["config.json"] = json.dumps(values).encode()

        return change

    def member(name, content):
        return lambda members: members.__setitem__(name, content)

    monkeypatch.setattr(limits, "_ALWAYS_ALLOWED", 2**20)
    for change, message in (
        (
            arrays(shape=(10**6, 10**6), dtype="f4", chunks=(100, 100)),
            "arrays declare 4,000,000,",
        ),
        (
            arrays(
                shape=(1000,), dtype="f4", external=[("/dev/zero", 0, 4000)]
            ),
            "its array '[^']*' keeps its values in other files",
        ),
        (member("assets/x", bytes(2**24)), "what it expands to is too long"),
        (lambda x: x.pop("model.weights.h5"), "no item named 'model.weights"),
        (layer("Dense", {"units": 10**12}), "holds a keras.layers.Dense"),
        (layer("Lambda", {"function": "x"}), "holds a keras.layers.Lambda"),
        (layer("TFSMLayer", {"filepath": "x"}), "keras.layers.TFSMLayer"),
    ):
        with pytest.raises(ValueError, match=message):
            xlnet_tf.load(rewritten(path, change))
    content = bytearray(path.read_bytes())
    content[-len(content) // 3] ^= 1
    (tmp_path / "flipped.keras").write_bytes(content)
    with pytest.raises(ValueError, match="the checksum of model.weights.h5 is"):
        xlnet_tf.load(tmp_path / "flipped.keras")
    with pytest.warns(UserWarning, match="Duplicate name"):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="two members have the same name"):
        xlnet_tf.load(path)


def test_a_checkpoint_with_several_graphs_of_objects_is_refused(tmp_path):
    from xlnet_tf.weights.tensorflow import ObjectGraph

    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "x.ckpt"),
        tensor_names=["_CHECKPOINTABLE_OBJECT_GRAPH"],
        shape_and_slices=[""],
        tensors=[tf.constant(np.array([b"", b""]))],
    )
    checkpoint = TensorFlowCheckpoint(tmp_path)
    with pytest.raises(ValueError, match="several graphs of objects"):
        ObjectGraph(checkpoint)
