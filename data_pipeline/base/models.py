"""Paths of models: directories, outputs of runs, names of shipped presets.

Names of a run's files that other packages read are here.
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

# Presets in the package, each a directory from `save_to_preset`.
SHIPPED = pathlib.Path(__file__).parents[2] / "xlnet_tf" / "presets"
# Directory of a run's model: the last one in pretraining, else the best one.
_OF_A_RUN = ("preset", "best")
RUN_FILE = "run.json"  # kind and inputs of a run
RUN_VERSION = 1  # version of the format of a run, in its `run.json`
TRAINING_FILE = "training.json"  # its settings, in the format of `--training`
METRICS_FILE = "metrics.jsonl"
RESULTS_FILE = "results.json"  # of fine-tuning
SEEDS_FILE = "seeds.json"  # of the fine-tuning with several seeds
_RESULTS = (  # of every run
    *("task", "metric", "value", "metrics", "seed", "steps", "examples"),
    *("preset", "started_from", "versions"),
)


def shipped_names():
    """Names of the presets that come with the package, list of str."""
    if not SHIPPED.is_dir():
        return []
    return sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())


def as_model_path(path):
    """Path of the directory or file that a model is read from.

    Args:
        path: str or path, see `as_path`: a model's directory or file, the
            output of a run, for its preset, or the name of a preset in the
            package, such as "xlnet_tiny_en". A directory of that name in the
            working directory comes first.

    Returns:
        path. A missing one is returned unchanged.

    Raises:
        ValueError, OSError: see `as_path`.
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
    """Read the identity of a run from its `run.json`.

    Args:
        directory: path of the run.

    Returns:
        dict.

    Raises:
        ValueError: if the file is not a JSON object, or has another version of
            the format.
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
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, is not JSON, or lacks an entry.
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
    """Suggest the shipped preset whose name is close to a path's.

    Args:
        path: missing path.

    Returns:
        str, a sentence after a blank; "" if no name is close.
    """
    meant = closest(str(path), shipped_names(), 0.65)
    return f" Did you mean {meant}?" if meant else ""
