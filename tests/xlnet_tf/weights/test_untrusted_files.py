"""Files that ask for far more memory or trust than a model's."""

import json
import shutil
import sys
import types
import zipfile

import h5py
import keras
import numpy as np
import pytest

import xlnet_tf
from saved_models.export import load_model
from tests.conftest import ROOT
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf import keras_file
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.released import save_tf1
from xlnet_tf.weights.tensor_files import digest_of_weights

MODEL_GARDEN = ROOT / "tests" / "golden" / "peers" / "model_garden"
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def edited(text, **values):
    """The text of a config with other values, at whichever depth."""

    def edit(value):
        if isinstance(value, dict):
            return {k: values.get(k, edit(v)) for k, v in value.items()}
        return value

    return json.dumps(edit(json.loads(text)))


def edit_archive(path, change):
    """Changes the config of a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if name == "config.json":
                content = change(content)
            archive.writestr(name, content)


def test_sizes_are_compared_before_memory_is_taken(tmp_path):
    """A model of these sizes has 10^13 weights, or takes hours to build."""
    cases = [
        ("own", "config.json", ("vocabulary_size", "num_layers")),
        ("hf", "config.json", ("vocab_size", "n_layer")),
        ("tf1", "xlnet_config.json", ("n_token", "n_layer")),
    ]
    model = ours(XLNetPretrainer)
    for (directory, file, names), save in zip(
        cases,
        (XLNetPretrainer.save_to_preset, save_hugging_face, save_tf1),
        strict=True,
    ):
        save(model, tmp_path / directory)
        file = tmp_path / directory / file
        content = file.read_text()
        for name, message in zip(
            names,
            ("a model of [0-9,]+ parameters", "at most 1000"),
            strict=True,
        ):
            file.write_text(edited(content, **{name: 10**12}))
            for options in ({}, {"strict": False}):
                with pytest.raises(ValueError, match=message):
                    XLNetPretrainer.from_preset(
                        file.parent, verify=False, **options
                    )
    task = ours(XLNetTokenClassifier, num_classes=3)
    task.save_to_preset(tmp_path / "task")
    file = tmp_path / "task" / "task.json"
    file.write_text(edited(file.read_text(), num_classes=10**12))
    with pytest.raises(ValueError, match="a model of [0-9,]+ parameters"):
        xlnet_tf.load(file.parent, verify=False)
    path = tmp_path / "run" / "model.keras"
    path.parent.mkdir()
    model = ours(XLNetPretrainer, dict(memory_length=5))
    model.attach_memory(2)
    message = "model.keras does not fit its config: that describes a model of"
    for saved, name, expected in (
        (model, "vocabulary_size", message),
        (model, "batch_size", message),
        (task, "num_classes", message),
        (model, "num_layers", "at most 1000"),
    ):
        saved.save(path)
        edit_archive(path, lambda x, name=name: edited(x, **{name: 10**12}))
        for load in (xlnet_tf.load, load_model):
            with pytest.raises(ValueError, match=expected):
                load(path)


def foreign(name, module, registered=None, **arguments):
    """Config of a layer, with shapes of which Keras would make weights."""
    return {
        "module": module,
        "class_name": name,
        "config": arguments,
        "registered_name": registered,
        "build_config": {"input_shape": [None, 10**7]},
    }


def test_a_file_names_only_classes_of_models(tmp_path):
    """Refused before Keras makes anything: any of these has 10^9 weights."""
    path = tmp_path / "model.keras"
    task = ours(XLNetTextClassifier, num_classes=3)
    task.compile(
        optimizer=keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(1e-3, 100)
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.AUC(), keras.metrics.MeanIoU(3)],
    )
    task.save(path)
    content = path.read_bytes()
    assert type(xlnet_tf.load(path)) is XLNetTextClassifier

    def refused(change, message):
        def edit(text):
            values = json.loads(text)
            change(values)
            return json.dumps(values)

        path.write_bytes(content)
        edit_archive(path, edit)
        with pytest.raises(ValueError, match=message) as error:
            xlnet_tf.load(path)
        assert str(path) in str(error.value)

    for value, message in (
        (foreign("layers.Dense", "keras", units=100), "a keras.layers.Dense,"),
        (foreign("Dense", "keras.layers", units=100), "a keras.layers.Dense,"),
        (foreign("Dense", "keras.src.layers.core.dense", units=100), "src.la"),
        (foreign("Backbone", "keras_hub.models"), "a keras_hub.models.Back"),
        (foreign("Sequential", "keras", layers=[]), "a keras.Sequential,"),
        (foreign("Dense", "mine", "xlnet_tf>AdaptableDense"), "a mine.Dense"),
        (foreign("xlnet_tf>AdaptableDense", None), "AdaptableDense, and"),
        (
            foreign("RelativeAttention", "", "xlnet_tf>RelativeAttention"),
            "a .Re",
        ),
        (foreign("__typespec__", "keras"), "a keras.__typespec__, and files"),
        (foreign("AdamW", "xlnet_tf.optimizer", "xlnet_tf>AdamW"), "a xlnet_t"),
        (foreign("Adam", "keras.optimizers"), "a keras.optimizers.Adam, and"),
    ):
        for place in ("backbone", "preprocessor", "dtype", "memory", "labels"):
            refused(
                lambda x, p=place, v=value: x["config"].update({p: v}), message
            )
        for place in ("optimizer", "loss", "metrics"):
            refused(
                lambda x, p=place, v=value: x["compile_config"].update(
                    {p: [v]}
                ),
                message,
            )
        refused(
            lambda x, v=value: x["config"]["backbone"]["config"].update(
                quantized_layers=[{"mode": "int8", "config": v, "layers": []}]
            ),
            message,
        )
    refused(lambda x: x.update(build_config={"input_shape": [9, 9]}), "holds a")
    for change, message in (
        # No registered name: Keras takes the name of the class for one.
        (
            lambda x: x.update(
                x["config"]["backbone"]["config"].update(vocabulary_size=10**12)
                or {"class_name": x.pop("registered_name")}
            ),
            "a model of [0-9,]+ parameters",
        ),
        (
            lambda x: x["config"].update(
                num_classes=10**12, inner_dim=-(10**12)
            ),
            "a model of [0-9,]+ parameters",
        ),
        *(
            (
                lambda x, name=name, sizes=sizes: x["compile_config"].update(
                    metrics=[
                        {
                            "module": "keras.metrics",
                            "class_name": name,
                            "config": sizes,
                        }
                    ]
                ),
                "a model of [0-9,]+ parameters",
            )
            for name, sizes in (
                ("MeanIoU", {"num_classes": 10**5}),
                ("AUC", {"num_thresholds": 10**10}),
                ("AUC", {"num_thresholds": 10**5, "num_labels": 10**5}),
            )
        ),
        (
            lambda x: x["config"].update(
                labels=[x["config"]["backbone"] for _ in range(9)]
            ),
            "holds [0-9]+ objects and 11 layers, more than",
        ),
        (
            lambda x: x["compile_config"].update(
                metrics=[x["compile_config"]["loss"]] * 1001
            ),
            "holds [0-9]+ objects and 2 layers, more than",
        ),
    ):
        refused(change, message)


def test_a_preset_names_only_classes_of_quantization(tmp_path):
    ours(XLNetBackbone).save_to_preset(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    values["config"]["quantized_layers"] = [
        {
            "mode": "int8",
            "config": foreign("layers.Dense", "keras", units=100),
            "layers": [],
        }
    ]
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="holds a keras.layers.Dense") as error:
        XLNetBackbone.from_preset(tmp_path, verify=False)
    assert str(tmp_path) in str(error.value)


def test_classes_of_users_are_loaded(tmp_path):
    """Their own tasks, optimizers and models, with layers of Keras."""

    @keras.saving.register_keras_serializable(package="mine")
    class Descent(keras.optimizers.SGD):
        pass

    @keras.saving.register_keras_serializable(package="mine")
    class Own(XLNetTextClassifier):
        pass

    @keras.saving.register_keras_serializable(package="mine")
    class Same(keras.layers.Layer):
        def call(self, inputs):
            return inputs

    @keras.saving.register_keras_serializable(package="mine")
    class Around(keras.Model):
        def __init__(self, backbone, dense, **kwargs):
            super().__init__(**kwargs)
            self.backbone, self.dense = backbone, dense

        def call(self, features):
            return self.dense(self.backbone(features)["content"])

        def get_build_config(self):
            pass

        def get_config(self):
            layers = {"backbone": self.backbone, "dense": self.dense}
            return {k: serialize(layer) for k, layer in layers.items()}

        @classmethod
        def from_config(cls, config):
            return cls(**{k: deserialize(v) for k, v in config.items()})

    serialize = keras.saving.serialize_keras_object
    deserialize = keras.saving.deserialize_keras_object
    path = tmp_path / "model.keras"
    task = ours(Own, num_classes=3)
    task.compile(Descent(0.1))
    task.save(path)
    loaded = xlnet_tf.load(path)
    assert type(loaded) is Own and type(loaded.optimizer) is Descent
    model = Around(task.backbone, keras.layers.Dense(2))
    model({"token_ids": np.array([[5, 6]])})
    model.save(path)
    loaded = xlnet_tf.load(path)
    np.testing.assert_array_equal(loaded.dense.kernel, model.dense.kernel)
    # As many layers as they like.
    many = Around(task.backbone, keras.Sequential([Same() for _ in range(20)]))
    many({"token_ids": np.array([[5, 6]])})
    many.save(path)
    assert len(xlnet_tf.load(path).dense.layers) == 20
    # Within a task, and in a backbone within a model, all classes are ours.
    dense = foreign("Dense", "keras.layers", units=100)
    for saved, place in (
        (task, lambda x: x["config"]),
        (model, lambda x: x["config"]["backbone"]["config"]),
    ):
        saved.save(path)

        def change(text, place=place):
            values = json.loads(text)
            place(values)["dtype"] = dense
            return json.dumps(values)

        edit_archive(path, change)
        with pytest.raises(ValueError, match="holds a keras.layers.Dense"):
            xlnet_tf.load(path)


def test_the_count_of_parameters_is_that_of_the_model():
    for config in (
        dict(),
        dict(untie_biases=False),
        dict(head_dim=5, num_layers=3, vocabulary_size=11),
    ):
        model = ours(XLNetBackbone, config)
        count = sum(np.prod(w.shape) for w in model.trainable_weights)
        assert model.config.num_parameters() == count


def test_the_config_of_an_archive_is_read_only_if_it_is_short(
    tmp_path, monkeypatch
):
    path = tmp_path / "model.keras"
    ours(XLNetBackbone).save(path)
    for change, message in (
        (lambda x: x + b" " * 10**6, "config.json is too long .* at most 1,0"),
        (lambda x: b"[" * 10**5, "damaged: its config.json is not JSON"),
        (lambda x: b"{", "damaged: its config.json is not JSON"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(keras_file, "MOST_JSON_BYTES", 10**6)
            broken = shutil.copy(path, tmp_path / "broken.keras")
            edit_archive(broken, change)
            with pytest.raises(ValueError, match=message):
                xlnet_tf.load(broken)
    xlnet_tf.load(path)


def test_arrays_are_not_larger_than_their_file(tmp_path):
    model = ours(XLNetBackbone)
    model.save_to_preset(tmp_path)
    file = tmp_path / "model.weights.h5"
    content = file.read_bytes()
    (tmp_path / "values").write_bytes(bytes(4000))

    def expanded(arrays):
        arrays.create_dataset(
            "more", (1000, 1000), "f4", chunks=(100, 100), compression="gzip"
        )

    def elsewhere(arrays):
        arrays.create_dataset(
            "more", (1000,), "f4", external=[(tmp_path / "values", 0, 4000)]
        )

    def linked(arrays):
        arrays["more"] = h5py.ExternalLink("other.h5", "x")

    for change, message in (
        (expanded, "its arrays declare [0-9,]+ bytes"),
        (elsewhere, "its array 'more' keeps its values in other files"),
        (linked, "its 'more' is a link to another file, 'other.h5'"),
    ):
        with h5py.File(file, "a") as arrays:
            change(arrays)
        message = f"model.weights.h5.* {message}"
        with pytest.raises(ValueError, match=message):
            digest_of_weights(tmp_path)
        with pytest.raises(ValueError, match=message):
            XLNetBackbone.from_preset(tmp_path, verify=False)
        file.write_bytes(content)


def test_aliases_are_not_written_out(tmp_path):
    """Nine of them, each of five of the one before: two million values."""
    path = shutil.copytree(MODEL_GARDEN, tmp_path / "stored")
    lines = ["a0: &a0 [x, x, x, x, x]"]
    for i in range(1, 9):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 5)}]")
    keys = (
        "vocab_size num_layers num_attention_heads hidden_size head_size "
        "inner_size inner_activation memory_length reuse_length bi_data "
        "dropout_rate attention_dropout_rate initializer_range"
    ).split()
    values = ", ".join(f"{key}: *a8" for key in keys)
    for encoder, message in (
        ("type: *a8", "type is <class 'list'>, not 'xlnet'"),
        (f"type: xlnet, xlnet: {{{values}}}", "xlnet.vocab_size must be one"),
        ("type: xlnet, xlnet: *a8", "lacks task.model.encoder.xlnet, a map"),
    ):
        end = f"task: {{model: {{encoder: {{{encoder}}}}}}}"
        (path / "params.yaml").write_text("\n".join([*lines, end]))
        with pytest.raises(ValueError, match=message) as error:
            XLNetBackbone.from_preset(path)
        assert len(str(error.value)) < 1000
    for text, message in (
        ("[" * 10**5, "not a YAML file"),
        (" " * 2**21, "too long for what it should hold: .* 2,097,152 bytes"),
    ):
        (path / "params.yaml").write_text(text)
        with pytest.raises(ValueError, match=message):
            XLNetBackbone.from_preset(path)


def test_an_old_torch_reads_nothing(tmp_path, monkeypatch):
    save_hugging_face(ours(XLNetBackbone), tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    for version in ("2.5.1+cpu", "2.10.0"):
        torch = types.SimpleNamespace(__version__=version)
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(ValueError, match=f"torch {version[:3]}.* even wit"):
            XLNetBackbone.from_preset(tmp_path, verify=False)


def test_shards_lie_in_their_directory(tmp_path):
    path = tmp_path / "hf"
    save_hugging_face(ours(XLNetBackbone), path)
    shutil.move(path / "model.safetensors", tmp_path / "model.safetensors")
    index = path / "model.safetensors.index.json"
    for name in ("../model.safetensors", str(tmp_path / "model.safetensors")):
        index.write_text(json.dumps({"weight_map": {"mask_emb": name}}))
        with pytest.raises(ValueError, match="names files outside its direct"):
            XLNetBackbone.from_preset(path, verify=False)
