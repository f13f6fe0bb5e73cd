"""What is recorded: jobs that give comparisons.

A job is a function of the directory of work. It returns a dict of comparison to
dict of path to value, which is a str, a number, None or an array.
"""

import hashlib
import importlib.metadata
import io
import json
import multiprocessing
import os
import pathlib
import platform
import re
import runpy
import sys
import tempfile
import traceback
import zipfile
import zlib

import numpy as np

from tests.house.unchanged import inputs

FAILURES = "failures/"
STEPS = 50
KEPT_STEPS = (1, 10, STEPS)
LENGTH = inputs.LENGTH
ARCHITECTURE = {
    "vocabulary_size": inputs.VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 32,
    "intermediate_dim": 48,
    "initializer_range": 0.1,
}
TRAINING = {
    "steps": STEPS,
    "batch_size": 4,
    "learning_rate": 3e-3,
    "steps_per_loop": 1,
    "evaluation_interval": 25,
    "checkpoint_interval": 1,
    "checkpoints_to_keep": STEPS,
    "strategy": "one_device",
}
PRETRAINING = {**TRAINING, "evaluation_steps": 4}
FINETUNING = {
    **TRAINING,
    "sequence_length": LENGTH,
    "max_question_length": 8,
    "stride": 8,
    "n_best_size": 3,
    "target_length": 8,
    "num_beams": 2,
}
# Loops of several steps; the run has no checkpoint at step 1.
LOOPS = {"steps_per_loop": 10, "checkpoint_interval": 10}
# Objective -> options of the run, its backbone, logical CPU devices.
PRETRAINED = {
    "permutation": ({}, "xlnet", 1),
    "causal": ({**LOOPS, "strategy": "mirrored"}, "xlnet", 2),
    "masked": ({"precision": "bfloat16"}, "xlnet", 1),
    "pseudo_masked": ({"gradient_accumulation_steps": 2}, "bert", 1),
}
# Task -> options of the run, its preset.
FINETUNED = {
    "classification": ({"patience": 9}, "pseudo_masked"),
    "squad-2.0": ({"layer_decay": 0.75}, "permutation"),
    "ner": ({"lora_rank": 2}, "permutation"),
    "seq2seq": (LOOPS, "permutation"),
}
KERNELS = {"xlnet": ("plain", "memory_efficient"), "bert": ("plain",)}
# Keys of JSON files that differ from run to run of one version.
OF_A_MOMENT = re.compile(
    "per_second|seconds|time|date|machine|commit|shared_object_id"
)


# What follows are tools: commands, and values as flat dicts.


def command(work, module, *arguments, devices=1):
    """Run `python -m MODULE` and return what it printed, without its paths.

    Its process is forked from one that has imported TensorFlow, which takes
    longer than most commands.
    """
    arguments = [module, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as directory:
        files = [pathlib.Path(directory) / name for name in ("out", "err")]
        process = multiprocessing.get_context("forkserver").Process(
            target=_run_module, args=(arguments, files, devices)
        )
        process.start()
        process.join()
        printed, said = (file.read_text("utf-8") for file in files)
    if process.exitcode:
        said = "\n".join((printed + said).splitlines()[-20:])
        raise RuntimeError(f"{module}: status {process.exitcode}: {said}")
    return without_paths(work, printed)


def _run_module(arguments, files, devices):
    for descriptor, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
    if devices > 1:
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        part = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [part] * devices)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def options_of(values):
    """The options of a command for a dict of settings."""
    names = {name: f"--{name.replace('_', '-')}" for name in values}
    return [
        str(x) for name, value in values.items() for x in (names[name], value)
    ]


def without_paths(work, text):
    return text.replace(str(work), "WORK")


def flat(work, value, prefix=""):
    """dict of path to value of what JSON holds, without times and paths.

    Names of modules are shortened to the package: they are not public.
    """
    if isinstance(value, dict):
        items = [x for x in value.items() if not OF_A_MOMENT.search(str(x[0]))]
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        if isinstance(value, str):
            value = without_paths(work, value)
            if prefix.endswith("module"):
                value = value.partition(".")[0]
        return {prefix: value}
    found = {}
    for name, item in items:
        found |= flat(work, item, f"{prefix}/{name}" if prefix else str(name))
    return found


def digest(data):
    return hashlib.sha256(data).hexdigest()


def files_below(directory):
    """The files below a directory as a comparison, without times and hosts."""
    names = [
        re.sub(r"tfevents\..*", "tfevents", str(x.relative_to(directory)))
        for x in directory.rglob("*")
        if x.is_file()
    ]
    return {name: names.count(name) for name in sorted(names)}


def with_names(name, arrays):
    """Comparisons of arrays and, by itself, of their names and shapes."""
    shapes = {key: str((str(x.dtype), x.shape)) for key, x in arrays.items()}
    return {name: arrays, f"{name}, names": shapes}


def arrays_of_h5(file):
    """Arrays of a file of Keras weights."""
    import h5py

    arrays = {}

    def add(name, value):
        if isinstance(value, h5py.Dataset):
            arrays[name] = np.asarray(value[()])

    with h5py.File(file) as opened:
        opened.visititems(add)
    return arrays


def contents(work, name, directory, skipped=("checkpoints",)):
    """Comparisons of the files of a run or preset: names, JSON, arrays."""
    found = {f"{name}/files": files_below(directory)}
    for file in sorted(x for x in directory.rglob("*") if x.is_file()):
        path = str(file.relative_to(directory))
        if path.startswith(skipped):
            continue
        if file.suffix == ".json":
            value = json.loads(file.read_text("utf-8"))
            found[f"{name}/{path}"] = flat(work, value)
        elif file.suffix == ".jsonl":
            rows = file.read_text("utf-8").splitlines()
            rows = [json.loads(row) for row in rows]
            found[f"{name}/{path}"] = flat(work, rows)
        elif file.suffix == ".h5":
            found |= with_names(f"{name}/{path}", arrays_of_h5(file))
        elif file.suffix in (".spm", ".model"):
            found[f"{name}/{path}"] = {"sha256": digest(file.read_bytes())}
        elif file.suffix == ".keras":
            found |= contents_of_keras(work, f"{name}/{path}", file)
    return found


def contents_of_keras(work, name, file):
    with zipfile.ZipFile(file) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
        config = json.loads(archive.read("config.json"))
        found = {f"{name}/files": dict.fromkeys(archive.namelist(), 1)}
    found[f"{name}/config.json"] = flat(work, config)
    return found | with_names(f"{name}/weights", arrays_of_h5(weights))


def checkpoints_of(name, directory):
    """Comparisons of the variables and memories of the kept steps."""
    import tensorflow as tf

    found = {}
    for index in directory.rglob("*.index"):
        step = int(re.search(r"(\d+)\.index$", index.name)[1])
        if step not in KEPT_STEPS:
            continue
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        arrays = {
            key: np.asarray(reader.get_tensor(key))
            for key, dtype in reader.get_variable_to_dtype_map().items()
            if dtype != tf.string
        }
        for file in index.parent.glob(f"*-{step}-*.npz"):
            arrays |= {f"{file.name}/{k}": v for k, v in np.load(file).items()}
        found |= with_names(f"{name}/weights at step {step}", arrays)
    return found


# The jobs: each is a function of the directory of work that returns
# comparisons, a dict of name to dict of path to value or array.


def make_inputs(work):
    """Texts, tasks and a tokenizer."""
    inputs.write(work)
    command(
        work,
        "data_pipeline.train_tokenizer",
        *("--input", work / "text.txt", "--output", work / "spiece.model"),
        *("--vocabulary-size", inputs.VOCABULARY, "--quiet"),
    )
    model = (work / "spiece.model").read_bytes()
    return {"tokenizer": {"sha256": digest(model)}}


def record_set(work, name, *options):
    """Bytes of a record set, and what `inspect` says of it."""
    directory = work / "records" / name
    command(
        work,
        "data_pipeline.build_records",
        *("--input", work / "text.txt", "--tokenizer", work / "spiece.model"),
        *("--output", directory, "--sequence-length", LENGTH),
        *("--text-format", "sentences", "--validation-fraction", 0.2),
        *("--processes", 1, "--quiet", *options),
    )
    found = {f"records/{name}/files": files_below(directory)}
    for file in sorted(directory.iterdir()):
        data = without_paths(work, file.read_bytes().decode("latin-1"))
        path = f"records/{name}/{file.name}"
        found[path] = {"sha256": digest(data.encode("latin-1"))}
        if file.suffix == ".json":
            found[path] = flat(work, json.loads(file.read_bytes()))
    said = command(work, "data_pipeline.inspect", directory)
    found[f"commands/inspect/{name}"] = dict(enumerate(said.splitlines()))
    return found


def tokens(work):
    """Ids and offsets of ordinary and hostile texts."""
    from data_pipeline import Tokenizer

    found = {}
    for lowercase in (False, True):
        tokenizer = Tokenizer(work / "spiece.model", lowercase=lowercase)
        rows = []
        for text in [*inputs.HOSTILE, *inputs.sentences(50)]:
            ids, offsets = tokenizer.encode_with_offsets(text)
            ids = list(map(int, ids))
            rows.append(
                {
                    "ids": " ".join(map(str, tokenizer.encode(text))),
                    "ids with offsets": " ".join(map(str, ids)),
                    "offsets": " ".join(f"{a}-{b}" for a, b in offsets),
                    "decoded": tokenizer.decode(ids),
                }
            )
        found[f"tokens/lowercase {lowercase}"] = flat(work, rows)
    return found


def model_of(work, name, kernel="auto"):
    """A model of `inputs.MODELS` with weights that depend on their names."""
    import keras

    import xlnet_tf
    from data_pipeline import Tokenizer

    keras.backend.clear_session()  # or Keras would number the names
    keras.utils.set_random_seed(5)
    one = inputs.MODELS[name]
    config = {"xlnet": xlnet_tf.XLNetConfig, "bert": xlnet_tf.BertConfig}
    config = config[one.backbone](**ARCHITECTURE, **one.config)
    backbone = {"xlnet": xlnet_tf.XLNetBackbone, "bert": xlnet_tf.BertBackbone}
    model = backbone[one.backbone](config, seed=3, attention_kernel=kernel)
    if one.cls:
        model = getattr(xlnet_tf, one.cls)(model, **one.arguments)
    for weight in model.trainable_weights:
        draws = np.random.default_rng(zlib.crc32(weight.path.encode()))
        value = draws.normal(0, 0.2, weight.shape) + (weight.name == "gamma")
        weight.assign(value.astype("float32"))
    if one.preprocessor is not None:
        model.preprocessor = model.preprocessor_cls(
            Tokenizer(work / "spiece.model"),
            sequence_length=LENGTH,
            **one.preprocessor,
        )
    return model


def presets(work):
    """Presets of every class, with the tokenizer."""
    from data_pipeline import Tokenizer

    found = {}
    for name, one in inputs.MODELS.items():
        model = model_of(work, name)
        directory = work / "presets" / name
        with_tokenizer = {"tokenizer": Tokenizer(work / "spiece.model")}
        if one.preprocessor is not None:
            with_tokenizer = {}
        model.save_to_preset(directory, **with_tokenizer)
        found |= contents(work, f"presets/{name}", directory)
    return found


def features_of(work, model, name):
    """Features of a model as a batch of records or raw strings gives them."""
    import keras

    from data_pipeline import PretrainingData

    one = inputs.MODELS[name]
    if one.preprocessor is not None:
        packed = model.preprocessor(one.raw, one.labels)
        features, *_ = keras.utils.unpack_x_y_sample_weight(packed)
    elif one.objective:
        data = PretrainingData(
            work / "records" / "dynamic",
            batch_size=4,
            objective=one.objective,
            layout=one.backbone,
        )
        features = next(iter(data.dataset()))
    else:
        features = inputs.features()
    return {key: np.asarray(value) for key, value in features.items()}


def outputs(work, name):
    """Features, outputs and gradients of a model by each kernel, and `fit`."""
    import keras
    import tensorflow as tf

    found = {}
    for kernel in KERNELS[inputs.MODELS[name].backbone]:
        model = model_of(work, name, kernel)
        features = features_of(work, model, name)
        with tf.GradientTape() as tape:
            outputs = model(features, training=False)
            if not isinstance(outputs, dict):
                outputs = {"output": outputs}
            # `tanh` bounds the scores of masked places.
            loss = (
                outputs.get("loss")
                if "loss" in outputs
                else sum(
                    tf.reduce_sum(tf.tanh(x))
                    for _, x in sorted(outputs.items())
                    if x is not None and x.dtype.is_floating
                )
            )
        weights = {x.path: x.value for x in model.trainable_weights}
        gradients = tape.gradient(loss, weights)
        arrays = {f"features/{key}": x for key, x in features.items()}
        arrays |= flat_arrays("outputs", outputs)
        arrays |= flat_arrays("gradients", gradients)
        found[f"models/{name}/{kernel}"] = arrays
    y = inputs.MODELS[name].labels
    if y is not None:
        keras.utils.set_random_seed(7)
        x = inputs.MODELS[name].raw or inputs.features()
        model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
        history = model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
        found[f"models/{name}/fit"] = flat(work, history.history)
        found |= with_names(
            f"models/{name}/weights after fit",
            {w.path: np.asarray(w.value) for w in model.trainable_weights},
        )
    return found


def flat_arrays(prefix, value):
    """Arrays of nested dicts and lists by their paths; text as its bytes."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif value is None:
        return {}
    else:
        if hasattr(value, "indices"):  # of rows of a table
            import tensorflow as tf

            value = tf.convert_to_tensor(value)
        array = np.asarray(value)
        return {prefix: array.astype("S") if array.dtype == object else array}
    found = {}
    for name, item in items:
        found |= flat_arrays(f"{prefix}/{name}", item)
    return found


def run(work, name, module, options, devices=1):
    """Comparisons of everything that a run leaves behind."""
    directory = work / "runs" / name
    command(
        work,
        module,
        "--output",
        directory,
        "--quiet",
        *options,
        devices=devices,
    )
    found = contents(work, f"runs/{name}", directory)
    return found | checkpoints_of(f"runs/{name}", directory)


def pretraining(work, objective):
    """A pretraining run of an objective."""
    options, backbone, devices = PRETRAINED[objective]
    config = work / f"{objective}.json"
    values = {**ARCHITECTURE, "dropout": 0.1, "attention_dropout": 0.1}
    values["model_type"] = backbone
    config.write_text(json.dumps(values))
    memory = {"memory_length": 24} if objective == "permutation" else {}
    options = {
        **{"config": config, "records": work / "records" / "dynamic"},
        **{"objective": objective, **PRETRAINING, **memory, **options},
    }
    module = "xlnet_tf.train"
    return run(work, objective, module, options_of(options), devices)


def finetuning(work, task):
    """A fine-tuning run and its predictions."""
    options, preset = FINETUNED[task]
    options = {
        **{"task": task, "data": work / "tasks" / task},
        **{"preset": work / "presets" / preset, **FINETUNING, **options},
    }
    return run(work, task, "xlnet_tf.finetune", options_of(options))


def export_of_run(work, name):
    """Answers of the export of a run."""
    directory = work / "exports" / name / "1"
    command(
        work,
        "saved_models.export",
        *("--model", work / "runs" / name, "--output", directory, "--quiet"),
        *("--sequence-length", LENGTH),
    )
    return answers(work, f"exports/{name}", directory)


def export_of_preset(work, name):
    """Answers of the export of a model of `inputs.MODELS`."""
    import saved_models
    from data_pipeline import Tokenizer

    directory = work / "exports" / f"model {name}" / "1"
    saved_models.export_model(
        model_of(work, name),
        Tokenizer(work / "spiece.model"),
        directory,
        sequence_length=LENGTH,
    )
    return answers(work, f"exports/model {name}", directory)


def answers(work, name, directory):
    """Answers of each signature of an export to fixed inputs."""
    import saved_models

    loaded = saved_models.load(directory)
    found = {f"{name}/files": files_below(directory)}
    for signature, (takes, gives) in loaded.signatures().items():
        specs = {"inputs": takes, "outputs": gives}
        found[f"{name}/{signature}, names"] = {
            f"{kind}/{key}": str((str(dtype), shape))
            for kind, some in specs.items()
            for key, (dtype, shape) in some.items()
        }
        asked = {
            key: inputs.request(key, dtype, shape)
            for key, (dtype, shape) in takes.items()
        }
        answer = loaded.predict(asked, signature)
        found[f"{name}/{signature}"] = flat_arrays("", answer)
    return found


def written(work, name, module, *arguments):
    """What a command prints, as JSON lines if it can, and writes."""
    said = command(work, module, *arguments).splitlines()
    lines = [json.loads(x) if x.startswith("{") else x for x in said]
    return {f"commands/{name}": flat(work, lines)}


def uses_of_runs(work):
    """Answers of the other commands."""
    runs, output = work / "runs", work / "outputs"
    output.mkdir(exist_ok=True)
    causal, classified = runs / "causal", runs / "classification"
    texts = inputs.sentences(2)
    prompts = [x for text in texts for x in ("--prompt", text[:30])]
    generate = ["--model", causal, *prompts, "--max-new-tokens", 8, "--quiet"]
    found = {}
    for name, options in {
        "greedy": [],
        "sampled": ["--sample", "--top-k", 20, "--seed", 3],
        "beams": ["--num-beams", 3, "--length-penalty", 0.6],
    }.items():
        module = "xlnet_tf.generate"
        found |= written(work, f"generate/{name}", module, *generate, *options)
    evaluate = ["--quiet", "--output", output / "metrics.json"]
    written(
        work,
        "evaluate",
        *("xlnet_tf.evaluate", "--model", causal, *evaluate),
        *("--text", work / "text.txt", "--segment-length", LENGTH),
    )
    metrics = json.loads((output / "metrics.json").read_text())
    found["commands/evaluate/text"] = flat(work, metrics)
    written(
        work,
        "evaluate",
        *("xlnet_tf.evaluate", "--model", classified, *evaluate),
        *("--task", "classification"),
        *("--data", work / "tasks" / "classification"),
    )
    metrics = json.loads((output / "metrics.json").read_text())
    found["commands/evaluate/task"] = flat(work, metrics)
    found |= written(
        work,
        "predict",
        *("saved_models.predict", "--quiet"),
        *("--model", work / "exports" / "classification", "--text", texts[0]),
    )
    for form in ("hf", "tf1"):
        directory = output / form
        options = ["--from", work / "presets" / "permutation", "--format", form]
        command(work, "xlnet_tf.convert", *options, "--to", directory)
        found[f"commands/convert/{form}"] = {
            str(file.relative_to(directory)): digest(file.read_bytes())
            for file in sorted(directory.rglob("*"))
            if file.is_file()
        }
    picture = output / "masks.png"
    command(
        work,
        *("xlnet_tf.show", "masks", "--pieces", "New", "York", "is", "big"),
        *("--order", 3, 1, 4, 2, "--output", picture),
    )
    found["commands/show"] = {"sha256": digest(picture.read_bytes())}
    return found


def command_lines(work):
    """Options of every command, and its settings by `--print-config`."""
    found = {}
    said = command(work, "xlnet_tf", "--help")
    names = re.findall(r"(?m)^  ([a-z][\w-]+)  ", said)
    found["options"] = dict.fromkeys(names, "command")
    while names:
        name = names.pop(0)
        said = command(work, "xlnet_tf", *name.split(), "--help")
        if choices := re.search(r"(?m)^  \{([\w,-]+)\}$", said):
            names += [f"{name} {x}" for x in choices[1].split(",")]
        found[f"options/{name}"] = options_in(said)
    given = {"output": work / "new"}
    text = {"input": work / "text.txt", "tokenizer": work / "spiece.model"}
    records = {"records": work / "records" / "dynamic"}
    preset = {"preset": work / "presets" / "permutation"}
    asked = {"build-records": ("build-records", text)}
    for recipe in ("quick", "base", "large"):
        asked[f"train {recipe}"] = "train", {**records, "recipe": recipe}
    for task in FINETUNED:
        data = {"task": task, "data": work / "tasks" / task}
        asked[f"finetune {task}"] = "finetune", {**data, **preset}
    import yaml

    for name, (subcommand, options) in asked.items():
        options = options_of({**options, **given})
        said = command(work, "xlnet_tf", subcommand, *options, "--print-config")
        found[f"settings/{name}"] = flat(work, yaml.safe_load(said))
    return found


def options_in(help_text):
    """dict of option to what it takes and its default, of a `--help`."""
    found = {}
    for part in re.split(r"(?m)^  (?=-)", help_text)[1:]:
        names = re.split(r"\s{2,}", part.strip())[0]
        text = " ".join(part.split())
        default = re.search(r"\(default:? ([^()]*)\)", text)
        for name in names.split(", "):
            option, _, takes = name.partition(" ")
            found[option] = takes + (
                f" (default {default[1]})" if default else ""
            )
    return found


def environment(work):
    """What the bits of floating values depend on besides the code."""
    packages = "tensorflow keras tensorflow-text numpy sentencepiece h5py"
    processor = platform.processor()
    file = pathlib.Path("/proc/cpuinfo")
    if file.exists():
        found = re.search(r"model name\s*: (.*)", file.read_text())
        processor = found[1] if found else processor
    versions = {x: importlib.metadata.version(x) for x in packages.split()}
    versions |= {"python": platform.python_version(), "processor": processor}
    return {"environment": versions}


# Stages of jobs; a job needs the files of earlier stages. Long ones first.
STAGES = (
    [(make_inputs,), (environment,)],
    [
        (presets,),
        (record_set, "dynamic"),
        (record_set, "frozen", "--frozen", "--seed", "3"),
        (tokens,),
    ],
    [
        *((pretraining, name) for name in PRETRAINED),
        *((finetuning, name) for name in FINETUNED),
        *((outputs, name) for name in inputs.MODELS),
        (command_lines,),
    ],
    [
        *((export_of_run, name) for name in ("permutation", *FINETUNED)),
        *((export_of_preset, name) for name in inputs.EXPORTED),
    ],
    [(uses_of_runs,)],
)


def attempt(work, function, *arguments):
    """Name, comparisons and seconds of a job.

    One that fails has its error for a comparison. The seconds are those of
    processors, also of its commands.
    """
    name = " ".join((function.__name__, *arguments))
    try:
        found = function(work, *arguments)
    except Exception:
        text = traceback.format_exc()
        found = {f"{FAILURES}{name}": {"error": without_paths(work, text)}}
    return name, found, sum(os.times()[:4])
