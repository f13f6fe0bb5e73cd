"""Paths of models and file names of runs.

A model's path may be a directory, the output of a training run, or the name of
a shipped preset. All packages use the file names that this module defines.
"""

import os
import pathlib

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json
from data_pipeline.base.files import read_json_object
from data_pipeline.base.formats import FORMAT_VERSION
from data_pipeline.base.formats import check_version
from data_pipeline.base.suggestions import closest

# Directory of the shipped presets. Each preset is a directory from
# `save_to_preset`.
SHIPPED = pathlib.Path(__file__).parents[2] / "xlnet_tf" / "presets"
# Names of the directory of a run's model: the last model of a pretraining run,
# the best model of other runs.
_OF_A_RUN = ("preset", "best")
RUN_FILE = "run.json"  # the kind and inputs of a run
RUN_VERSION = 1  # format version in `run.json`
TRAINING_FILE = "training.json"  # settings for `--training`
METRICS_FILE = "metrics.jsonl"
RESULTS_FILE = "results.json"  # results of fine-tuning
SEEDS_FILE = "seeds.json"  # results of several seeds
_RESULTS = (  # keys of every `results.json`
    *("task", "metric", "value", "metrics", "seed", "steps", "examples"),
    *("preset", "started_from", "versions"),
)


def shipped_names():
    """List the names of the shipped presets, sorted list of str."""
    if not SHIPPED.is_dir():
        return []
    return sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())


def as_model_path(path):
    """Find the directory or file of a model.

    Args:
        path: str or path, see `as_path`. A model's directory or file, the
            output directory of a run, or the name of a shipped preset such as
            "xlnet_tiny_en". A file or directory of the same name in the working
            directory has precedence over the preset.

    Returns:
        path. For the output of a run, the path of the preset in this output. A
        path that does not exist is returned unchanged.

    Raises:
        ValueError: see `as_path`, or `path` contains the runs of several seeds.
        OSError: see `as_path`.
    """
    text = os.fspath(path)
    path = as_path(path)
    if text in shipped_names() and not path.exists():
        return SHIPPED / text
    if (path / SEEDS_FILE).is_file():
        raise ValueError(
            f"{path} holds the runs of several seeds. Name one of them, such "
            f"as {path / 'seed-0'}."
        )
    if (path / RUN_FILE).is_file():
        for name in _OF_A_RUN:
            if (path / name).is_dir():
                return path / name
    return path


def read_run(directory):
    """Read the `run.json` of a run.

    Args:
        directory: path of the run.

    Returns:
        dict, the values that distinguish the run from other runs, such as its
        settings and digests of its data. The dict also has the format version.

    Raises:
        ValueError: the file is not a JSON object, or has another format
            version.
    """
    file = directory / RUN_FILE
    facts = read_json_object(file)
    check_version(file, facts.get(FORMAT_VERSION), RUN_VERSION)
    return facts


def read_results(directory):
    """Read the `results.json` of a run.

    Args:
        directory: path.

    Returns:
        dict.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, is not JSON, or lacks a key.
    """
    file = as_path(directory) / RESULTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {RESULTS_FILE}; a run writes it when it has "
            f"evaluated. Received: directory={directory}"
        )
    verify_checksums(directory, [RESULTS_FILE])
    results = read_json(file)
    known = results if isinstance(results, dict) else {}
    missing = [key for key in _RESULTS if key not in known]
    if missing:
        raise ValueError(
            f"{file} has no {', '.join(missing)}: it is not of a run."
        )
    return results


def near_shipped(path):
    """Suggest the shipped preset with a name similar to a missing path.

    Args:
        path: path that does not exist.

    Returns:
        str, a sentence that begins with a space, or "" if no name is similar.
    """
    meant = closest(str(path), shipped_names(), 0.65)
    return f" Did you mean {meant}?" if meant else ""
