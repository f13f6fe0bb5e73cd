"""Files of Hugging Face's and torch's own code, of every kind and age."""

import json
import os
import pickle

import numpy as np
import pytest

from tests.slow.peers.hugging_face_models import call
from tests.slow.peers.hugging_face_models import features
from tests.slow.peers.hugging_face_models import theirs
from tests.support.commands import python
from tests.support.oracle import largest_difference
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.weights.hugging_face.writer import save_hugging_face

torch = pytest.importorskip("torch", reason="compares with Hugging Face's code")
pytest.importorskip("transformers", reason="compares with Hugging Face's code")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.fixture
def model():
    return theirs("XLNetLMHeadModel")


def write_config(model, directory):
    directory.mkdir(exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)


def write_bin(model, directory):
    """`pytorch_model.bin`, as that library no longer writes it."""
    write_config(model, directory)
    torch.save(model.state_dict(), directory / "pytorch_model.bin")


def write_old_bin(model, directory):
    """As torch wrote before 2020, and the first XLNets were saved."""
    write_config(model, directory)
    torch.save(
        model.state_dict(),
        directory / "pytorch_model.bin",
        _use_new_zipfile_serialization=False,
    )


def write_sharded_bin(model, directory):
    write_config(model, directory)
    tensors = list(model.state_dict().items())
    weight_map = {}
    for i in range(3):
        name = f"pytorch_model-{i + 1:05d}-of-00003.bin"
        torch.save(dict(tensors[i::3]), directory / name)
        weight_map.update({key: name for key, _ in tensors[i::3]})
    index = {"metadata": {}, "weight_map": weight_map}
    file = directory / "pytorch_model.bin.index.json"
    file.write_text(json.dumps(index))


def write_shards(model, directory):
    model.save_pretrained(directory, max_shard_size="20KB")


def write_whole(model, directory):
    model.save_pretrained(directory)


def write_half(model, directory):
    model.half().save_pretrained(directory)
    model.float()  # of the rounded numbers


def write_bfloat16(model, directory):
    model.bfloat16().save_pretrained(directory)
    model.float()


FORMS = {
    "safetensors": (write_whole, ["model.safetensors"]),
    "shards": (write_shards, ["model.safetensors.index.json"]),
    "bin": (write_bin, ["pytorch_model.bin"]),
    "old bin": (write_old_bin, ["pytorch_model.bin"]),
    "bin shards": (write_sharded_bin, ["pytorch_model.bin.index.json"]),
    "float16": (write_half, ["model.safetensors"]),
    "bfloat16": (write_bfloat16, ["model.safetensors"]),
}


def logits_differ(model, mine):
    inputs = features(targets=True)
    expected = call(model, inputs).logits
    return largest_difference(expected, mine.logits(mine(inputs)["query"]))


@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_store_weights_is_read(model, tmp_path, form):
    write, files = FORMS[form]
    write(model, tmp_path)
    assert all((tmp_path / name).is_file() for name in files)
    mine = XLNetPretrainer.from_preset(tmp_path)
    assert {w.dtype for w in mine.trainable_weights} == {"float32"}
    assert logits_differ(model, mine) < 1e-5


def test_bfloat16_of_torch_is_read_too(model, tmp_path):
    write_bin(model.bfloat16(), tmp_path)
    mine = XLNetPretrainer.from_preset(tmp_path)
    assert logits_differ(model.float(), mine) < 1e-5


def test_safetensors_are_preferred(model, tmp_path):
    write_bin(theirs("XLNetLMHeadModel", seed=1), tmp_path)
    write_whole(model, tmp_path)
    assert logits_differ(model, XLNetPretrainer.from_preset(tmp_path)) < 1e-5


def test_shards_of_ours_are_read_there(tmp_path):
    mine = ours(XLNetPretrainer)
    save_hugging_face(mine, tmp_path, shard_bytes=20_000)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 3
    assert all(file.stat().st_size < 25_000 for file in shards)
    from transformers import XLNetLMHeadModel

    model, report = XLNetLMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report.values()), report
    assert logits_differ(model.eval(), mine) < 1e-5


_WITHOUT_TORCH = """
import sys

class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotInstalled)
import numpy as np
from xlnet_tf import XLNetPretrainer
model = XLNetPretrainer.from_preset(sys.argv[1])
weights = [w.numpy() for w in model.trainable_weights]
print(sum(float(np.abs(weight).sum()) for weight in weights))
try:
    XLNetPretrainer.from_preset(sys.argv[2])
except ValueError as error:
    print(error)
"""


def test_only_files_of_torch_need_torch(model, tmp_path):
    write_bfloat16(model, tmp_path / "safe")
    write_bin(model, tmp_path / "bin")
    result = python("-c", _WITHOUT_TORCH, tmp_path / "safe", tmp_path / "bin")
    total, refusal = result.stdout.splitlines()
    expected = sum(float(p.abs().sum()) for p in model.state_dict().values())
    expected -= float(model.lm_loss.weight.detach().abs().sum())  # there twice
    np.testing.assert_allclose(float(total), expected, rtol=1e-5)
    assert "pytorch_model.bin needs torch, which is not" in refusal
    assert "pip install torch, or save the model as model.safe" in refusal


class Malicious:
    """Makes a directory where a pickle is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_plain", [False, True], ids=["torch", "pickle"])
def test_a_file_of_torch_cannot_run_code(model, tmp_path, is_plain):
    write_bin(model, tmp_path)
    file, made = tmp_path / "pytorch_model.bin", tmp_path / "made"
    bad = {"transformer.mask_emb": Malicious(made)}
    if is_plain:
        file.write_bytes(pickle.dumps(bad))
    else:
        torch.save(bad, file)
    with pytest.raises(
        ValueError, match="bin is damaged or not a file of we"
    ) as e:
        XLNetBackbone.from_preset(tmp_path)
    assert len(str(e.value).splitlines()) == 1
    assert not made.exists()


def test_a_file_of_torch_that_is_no_model_is_named(model, tmp_path):
    write_bin(model, tmp_path)
    torch.save({"epoch": 3}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="bin is damaged .*: it holds not on"):
        XLNetBackbone.from_preset(tmp_path)
