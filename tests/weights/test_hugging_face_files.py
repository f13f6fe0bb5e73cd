"""How Hugging Face's weights may lie on a disk, and what is said of damage."""

import json
import os
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
from tests.support.checkpoint_fixtures import call
from tests.support.checkpoint_fixtures import config
from tests.support.checkpoint_fixtures import features
from tests.support.checkpoint_fixtures import ours
from tests.support.checkpoint_fixtures import theirs

from tests.conftest import ROOT
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.weights.hugging_face_writer import save_hugging_face

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
    mine = ours(XLNetPretrainer, config())
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
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            _WITHOUT_TORCH,
            str(tmp_path / "safe"),
            str(tmp_path / "bin"),
        ],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=True,
        capture_output=True,
        text=True,
    )
    total, refusal = result.stdout.splitlines()
    expected = sum(float(p.abs().sum()) for p in model.state_dict().values())
    expected -= float(model.lm_loss.weight.detach().abs().sum())  # there twice
    np.testing.assert_allclose(float(total), expected, rtol=1e-5)
    assert "pytorch_model.bin is a file of torch's, which is not" in refusal
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


@pytest.fixture
def saved(model, tmp_path):
    write_whole(model, tmp_path)
    return tmp_path


def edit(directory, change):
    """Changes the tensors of a directory."""
    from safetensors.numpy import load_file
    from safetensors.numpy import save_file

    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def edit_config(directory, **values):
    file = directory / "config.json"
    values = {**json.loads(file.read_text()), **values}
    kept = {name: value for name, value in values.items() if value != "-"}
    file.write_text(json.dumps(kept))


def break_three(tensors):
    del tensors["transformer.layer.0.rel_attn.q"]
    tensors["transformer.layer.7.ff.layer_1.bias"] = np.ones(23, "float32")
    tensors["transformer.mask_emb"] = np.ones((1, 38), "float32")


def test_everything_that_does_not_fit_is_listed_together(saved):
    edit(saved, break_three)
    message = (
        r"missing: transformer.layer.0.rel_attn.q; unexpected: "
        r"transformer.layer.7.ff.layer_1.bias; other shapes: "
        r"transformer.mask_emb has \(1, 38\), not \(1, 1, 38\)"
    )
    with pytest.raises(ValueError, match=message):
        XLNetPretrainer.from_preset(saved)


def test_what_fits_is_loaded_when_asked_for(saved, model):
    edit(saved, break_three)
    names = "in part: missing: .*rel_attn.q; unexp.*layer.7.*; other.*mask_emb"
    with pytest.warns(UserWarning, match=names):
        mine = XLNetPretrainer.from_preset(saved, strict=False)
    expected = model.transformer.layer[0].rel_attn
    attention = mine.backbone.blocks[0].attention
    for here, there, is_equal in (
        (attention.key_projection.kernel, expected.k, True),
        (attention.query_projection.kernel, expected.q, False),
    ):
        same = np.array_equal(as_numpy(here), there.detach().numpy())
        assert same == is_equal


def test_biases_that_are_missing_are_named(saved):
    edit_config(saved, untie_r=False)
    name = "transformer.layer.1.rel_attn.r_w_bias"
    edit(saved, lambda tensors: tensors.pop(name))
    with pytest.raises(ValueError, match=f"missing: {name}"):
        XLNetBackbone.from_preset(saved)


@pytest.mark.parametrize("is_tied", [False, True])
def test_biases_are_tied_only_where_they_are_equal(saved, model, is_tied):
    edit_config(saved, untie_r=False)

    def tie(tensors):
        for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
            first = tensors[f"transformer.layer.0.rel_attn.{name}"]
            tensors[f"transformer.layer.1.rel_attn.{name}"] = first

    if is_tied:
        edit(saved, tie)
        with torch.no_grad():
            for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
                first, second = (
                    getattr(layer.rel_attn, name)
                    for layer in model.transformer.layer
                )
                second.copy_(first)
    mine = XLNetPretrainer.from_preset(saved)
    assert mine.config.untie_biases != is_tied
    assert logits_differ(model, mine) < 1e-5


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights_are_named(saved, share):
    file = saved / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="model.safetensors is damaged or not"):
        XLNetPretrainer.from_preset(saved)


def test_the_model_of_another_architecture_is_named(saved):
    edit_config(saved, model_type="bert")
    with pytest.raises(ValueError, match="a model of the type 'bert', not XLN"):
        XLNetBackbone.from_preset(saved)


def test_a_config_of_2019_names_no_type(saved, model):
    file = saved / "config.json"
    values = json.loads(file.read_text())
    del values["model_type"], values["architectures"]
    file.write_text(json.dumps(values))
    mine = XLNetPretrainer.from_preset(saved)
    assert mine.config.gelu == "erf"
    assert logits_differ(model, mine) < 1e-5


def test_the_weights_of_another_architecture_are_named(saved):
    def rename(tensors):
        for name in list(tensors):
            tensors[name.replace("word_embedding", "wte")] = tensors.pop(name)

    edit(saved, rename)
    with pytest.raises(ValueError, match="does not hold an XLNet: expected on"):
        XLNetBackbone.from_preset(saved)


def test_missing_weights_are_named(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="and no weights .model.safete"):
        XLNetBackbone.from_preset(saved)


def test_a_missing_shard_is_named(model, tmp_path):
    write_shards(model, tmp_path)
    lost = sorted(tmp_path.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=f"not there: {lost.name}"):
        XLNetPretrainer.from_preset(tmp_path)


def test_an_index_without_names_is_refused(model, tmp_path):
    write_shards(model, tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"metadata": {}}')
    with pytest.raises(ValueError, match="index.json does not say .*weight_ma"):
        XLNetPretrainer.from_preset(tmp_path)


def test_a_language_model_head_of_its_own_is_refused(saved):
    edit_config(saved, tie_word_embeddings=False)

    def untie(tensors):
        tensors["lm_loss.weight"] = np.ones((97, 38), "float32")

    edit(saved, untie)
    with pytest.raises(ValueError, match="an LM head of its own .`tie_word_em"):
        XLNetPretrainer.from_preset(saved)
    # It is no part of any other model.
    XLNetBackbone.from_preset(saved)
    XLNetTextClassifier.from_preset(saved, num_classes=2)


def test_a_head_that_is_not_there_needs_its_arguments(saved):
    with pytest.raises(ValueError, match="no head for XLNetTextClassifier, so"):
        XLNetTextClassifier.from_preset(saved)
    keras.utils.set_random_seed(0)
    mine = XLNetTextClassifier.from_preset(saved, num_classes=2)
    assert mine(features()).shape == (3, 2)


def test_an_activation_that_is_not_known_is_named(saved):
    edit_config(saved, ff_activation="silu")
    with pytest.raises(ValueError, match="`activation` must be .*='silu'"):
        XLNetBackbone.from_preset(saved)
