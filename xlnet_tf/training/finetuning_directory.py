"""The directory of a fine-tuning run: which run it holds, as run.json says."""

import hashlib
import json

from xlnet_tf.files import digest_of_weights
from xlnet_tf.files import read_json
from xlnet_tf.files import write_json
from xlnet_tf.training.finetuning_config import FinetuningConfig
from xlnet_tf.training.results import RESULTS_FILE
from xlnet_tf.training.run_checkpoints import has_steps

RUN_FILE = "run.json"
# May differ when a run goes on: they change when it looks, not what it learns.
_MAY_CHANGE = (
    "evaluation_interval",
    "checkpoint_interval",
    "checkpoints_to_keep",
    "steps_per_loop",
    "patience",
)
_DIGESTS = {
    "training_examples": "other training examples",
    "held_out_examples": "other examples to evaluate on",
    "preset_weights": "other weights in the preset",
}


def enter(directory, data, config, preset, random_start, is_chief):
    """Makes the directory of a run, or checks that it holds the same run.

    A run that has neither results nor a checkpoint has nothing to lose, so
    that it may begin anew with what it failed for put right.

    Args:
        directory: path.
        data: TaskData of `reading`.
        config: FinetuningConfig, resolved.
        preset: str or path.
        random_start: bool.
        is_chief: bool, whether this process writes.

    Raises:
        ValueError: if the directory holds another run.
    """
    now = {
        "task": data.task.name,
        "labels": data.labels,
        "examples": len(data.train),
        "training_examples": _digest_of_examples({"train": data.train}),
        "held_out_examples": _digest_of_examples(data.evaluation),
        "preset": str(preset),
        "preset_weights": None if random_start else digest_of_weights(preset),
        "random_start": random_start,
        "training": config.to_dict(),
    }
    file = directory / RUN_FILE
    if file.is_file() and _has_progress(directory):
        differences = _differences(read_json(file), now)
        if differences:
            raise ValueError(
                f"{directory} holds another run, which cannot go on with this "
                f"one ({'; '.join(differences)}). Give the same options, or "
                "another --output."
            )
    if is_chief:
        directory.mkdir(parents=True, exist_ok=True)
        write_json(file, now)


def is_done(directory):
    """bool, whether the run in a directory has its results."""
    return (directory / RESULTS_FILE).is_file()


def _has_progress(directory):
    return is_done(directory) or has_steps(directory / "checkpoints")


def _differences(before, now):
    """list of str, what is not the same."""
    found = []
    for name, value in json.loads(json.dumps(now)).items():
        # A run of an older version does not know the digests.
        if name == "training" or before.get(name, value) == value:
            continue
        found.append(
            _DIGESTS.get(name) or f"{name}: {before[name]} there, {value} now"
        )
    # Nor what is new among the settings, which then has its default.
    settings = {**FinetuningConfig().to_dict(), **before["training"]}
    return found + [
        f"{name}: {settings[name]} there, {value} now"
        for name, value in now["training"].items()
        if name not in _MAY_CHANGE and settings[name] != value
    ]


def _digest_of_examples(splits):
    """str, of what the examples say, not of where they stand."""
    digest = hashlib.sha256()
    for name, examples in splits.items():
        digest.update(json.dumps([name, len(examples)]).encode())
        for example in examples:
            said = example._replace(where="")
            digest.update(json.dumps(said).encode() + b"\n")
    return digest.hexdigest()[:16]
