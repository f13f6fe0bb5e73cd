"""Questions to the models that an earlier version wrote, and its answers.

The files are in `tests/golden/earlier`; `make.py` there wrote them. Everything
here goes through the public surface, so that it runs on any version.
"""

import functools
import hashlib
import json
import pathlib
import shutil

import keras
import numpy as np

import xlnet_tf
from data_pipeline import Tokenizer

EARLIER = pathlib.Path(__file__).parents[1] / "golden" / "earlier"
# Files that several directories hold alike are kept once; path -> kept path.
SAME_FILE = "same.json"
# The export of the classifier, version 1, as it was written.
EXPORT_FILE = "classifier_export.tar.xz"

TOLERANCE = 1e-5

# name of a directory of `presets` -> class that reads it
PRESETS = {
    "backbone": "XLNetBackbone",
    "pretrainer": "XLNetPretrainer",
    "pretrainer_next": "XLNetPretrainer",
    "classifier": "XLNetTextClassifier",
    "classifier_memory": "XLNetTextClassifier",
    "regressor": "XLNetTextRegressor",
    "tagger": "XLNetTokenClassifier",
    "choice": "XLNetMultipleChoice",
    "ranker": "XLNetRanker",
    "questions": "XLNetQuestionAnswering",
    "spans": "XLNetSpanClassifier",
    "pretrainer_tf1": "XLNetPretrainer",
    "pretrainer_hf": "XLNetPretrainer",
    "classifier_tf1": "XLNetTextClassifier",
    "classifier_hf": "XLNetTextClassifier",
}
KERAS_FILES = ("classifier.keras", "pretrainer.keras")
PRETRAINERS = (
    "pretrainer",
    "pretrainer_next",
    "pretrainer_tf1",
    "pretrainer_hf",
    "pretrainer.keras",
)


def read(name):
    """What a JSON file of `tests/golden/earlier` holds."""
    return json.loads((EARLIER / name).read_text(encoding="utf-8"))


@functools.cache
def _same():
    return read(SAME_FILE)


def restore(name, target):
    """Copies a file or directory, with those of its files kept elsewhere.

    Args:
        name: str, below `tests/golden/earlier`.
        target: path, not yet there.

    Returns:
        path, `target`.
    """
    source = EARLIER / name
    if source.is_file():
        shutil.copyfile(source, target)
        return target
    target.mkdir(parents=True)
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path, kept in _same().items():
        if path.startswith(f"{name}/"):
            copy = target / path.removeprefix(f"{name}/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(EARLIER / kept, copy)
    return target


def load(name, directory):
    """The model of a preset or of a .keras file, by its name."""
    if name in KERAS_FILES:
        return keras.models.load_model(restore(f"presets/{name}", directory))
    cls = getattr(xlnet_tf, PRESETS[name])
    return cls.from_preset(restore(f"presets/{name}", directory))


def tokenizer(name="spiece.model", lowercase=False):
    """The Tokenizer of a kept SentencePiece model."""
    return Tokenizer(EARLIER / name, lowercase=lowercase)


def tokens(model, lowercase, text):
    """What a tokenizer makes of one text, as JSON has it."""
    made = tokenizer(model, lowercase)
    ids, offsets = made.encode_with_offsets(text)
    return {
        "ids": made.encode(text),
        "ids_with_offsets": list(ids),
        "offsets": [list(map(int, span)) for span in offsets],
        "decoded": made.decode(ids),
    }


def answers(name, model, inputs):
    """All that a model answers to what there is for it in `inputs`.

    Args:
        name: str, of `PRESETS` or `KERAS_FILES`.
        model: the model.
        inputs: dict, "features" and "raw" of `answers.json`.

    Returns:
        dict, as JSON has it.
    """
    kind = name.split(".")[0].split("_")[0]
    features = {k: np.array(v) for k, v in inputs["features"][kind].items()}
    found = {"features": as_json(model(features))}
    if name in PRETRAINERS:
        found["loss"] = pretraining_loss(name, model, inputs)
    if getattr(model, "preprocessor", None) is None:
        return found
    model.compile(run_eagerly=True)  # tracing takes longer
    for what, x in inputs["raw"].get(kind, {}).items():
        x = tuple(x) if what == "tuple" else x
        found[what] = as_json(model.predict(x, verbose=0))
    if kind == "questions":
        x = inputs["raw"][kind]["strings"]
        found["answers"] = model.answer(
            x["question"], x["context"], n_best=3, max_answer_length=9
        )
    return as_json(found)


def pretraining_loss(name, model, inputs):
    """The loss with and without dropout, and sums of every gradient."""
    import tensorflow as tf

    features = {
        k: np.array(v) for k, v in inputs["features"]["pretraining"].items()
    }
    features["target_weights"] = features["target_weights"].astype("float32")
    seed = np.array([3, 5], "int32")
    dropped = model({**features, "dropout_seed": seed}, training=True)
    with tf.GradientTape() as tape:
        outputs = model(features, training=False)
    weights = model.trainable_variables
    gradients = tape.gradient(outputs["loss"], [w.value for w in weights])
    found = {
        "loss": outputs["loss"],
        "token_loss": outputs["token_loss"],
        "token_correct": outputs["token_correct"],
        "loss_with_dropout": dropped["loss"],
        "gradients": {
            weight_name(weight): sums(tf.convert_to_tensor(gradient))
            for weight, gradient in zip(weights, gradients, strict=True)
            if gradient is not None
        },
    }
    if "next_sentence_loss" in outputs:
        found["next_sentence_loss"] = outputs["next_sentence_loss"]
    return as_json(found)


def weight_name(weight):
    """A weight's path without the model's own name, which Keras numbers."""
    parts = weight.path.split("/")
    while parts[0].startswith("xl_net"):
        parts = parts[1:]
    return "/".join(parts)


def sums(array):
    """[sum, sum of absolute values], added up in float64."""
    array = np.asarray(keras.ops.convert_to_numpy(array), "float64")
    return [float(array.sum()), float(np.abs(array).sum())]


def as_json(value):
    """Tensors, arrays and their containers as JSON has them."""
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "shape"):
        value = np.asarray(value)
        if value.dtype.kind in "OS":
            return _decoded(value.tolist())
        return value.tolist()
    return _decoded(value)


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def check(found, wanted, tolerance=TOLERANCE, where=""):
    """Compares what JSON holds: floats by tolerance, the rest exactly.

    Args:
        found: may have more names than `wanted`.
        wanted: what was recorded.
        tolerance: float, both absolute and relative.
        where: str, for the message.
    """
    if isinstance(wanted, dict):
        for name, item in wanted.items():
            assert name in found, f"{where}/{name} is missing"
            check(found[name], item, tolerance, f"{where}/{name}")
        return
    flat = _flat(wanted)
    if flat and all(isinstance(item, (int, float)) for item in flat):
        array = np.array(wanted)
        other = np.array(found)
        assert other.shape == array.shape, where
        if array.dtype.kind == "f":
            np.testing.assert_allclose(
                other, array, rtol=tolerance, atol=tolerance, err_msg=where
            )
        else:
            np.testing.assert_array_equal(other, array, err_msg=where)
        return
    if isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            check(one, other, tolerance, f"{where}/{number}")
        return
    assert found == wanted, where


def _flat(value):
    """The numbers of an array in nested lists, [] where it is none."""
    if not isinstance(value, list):
        return [value]
    shapes = {len(item) if isinstance(item, list) else -1 for item in value}
    if len(shapes) > 1:
        return []
    parts = [_flat(item) for item in value]
    if not all(parts):
        return []
    return [item for part in parts for item in part]


def json_lines(file):
    """The objects of a file of JSON lines."""
    return [json.loads(x) for x in file.read_text("utf-8").splitlines()]


def digest(file):
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digests(directory):
    """SHA-256 of all files of a directory, by their paths in it."""
    return {
        str(file.relative_to(directory)): digest(file)
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def record_options(options, directory, output):
    """The command line of `build_records`, for text and model kept here."""
    return [
        *("--input", str(directory / "records/text.txt")),
        *("--tokenizer", str(directory / "spiece.model")),
        *("--output", str(output)),
        *("--processes", "1"),
        *options,
    ]


def training_options(directory, records, output):
    """The command line of the kept pretraining run."""
    return [
        *("--config", str(directory / "run_model.json")),
        *("--training", str(directory / "run_training.json")),
        *("--records", str(records)),
        *("--output", str(output)),
        *("--steps", "6", "--batch-size", "4", "--strategy", "one_device"),
    ]


def training_result(output):
    """What a pretraining run that is done has to say, as JSON has it."""
    names = ("kind", "step", "loss", "accuracy", "bits_per_token")
    names += ("gradient_norm", "learning_rate")
    model = xlnet_tf.XLNetPretrainer.from_preset(output / "preset")
    return {
        "metrics": [
            {name: line[name] for name in names if name in line}
            for line in json_lines(output / "metrics.jsonl")
        ],
        "weights": {
            weight_name(w): sums(w.value) for w in model.trainable_variables
        },
    }


def finetuning_options(case, preset, directory):
    """The command line of a kept fine-tuning run.

    Args:
        case: dict of `finetuning/commands.json`.
        preset: path.
        directory: path of a copy of `finetuning`.
    """
    argv = [
        *("--task", case["task"]),
        *("--data", str(directory / "data" / case["data"])),
        *("--preset", str(preset)),
        *("--output", str(directory / "runs" / case["name"])),
        *("--training", str(directory / case["training"])),
        *("--strategy", "one_device"),
    ]
    if case["predict"]:
        argv += ["--predict", str(directory / "data" / case["predict"])]
    return argv


def finetuning_result(output):
    """What a fine-tuning run that is done has to say, as JSON has it."""
    results = json.loads((output / "results.json").read_text("utf-8"))
    for name in ("preset", "versions"):
        results.pop(name)
    found = {"results": results}
    for file in sorted(output.glob("*predictions*.json*")):
        text = file.read_text("utf-8")
        if file.suffix == ".jsonl":
            found[file.name] = json_lines(file)
        else:
            found[file.name] = json.loads(text)
    return found


def ask(directory, inputs):
    """What the signatures of a SavedModel answer, as JSON has it.

    Args:
        directory: path of the version.
        inputs: dict of signature to dict of input to value.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers SentencePiece's ops

    loaded = tf.saved_model.load(str(directory))
    found = {}
    for name, values in inputs.items():
        function = loaded.signatures[name]
        specs = function.structured_input_signature[1]
        found[name] = as_json(
            function(
                **{
                    key: tf.constant(value, specs[key].dtype)
                    for key, value in values.items()
                }
            )
        )
    return found
