"""Weights & Biases and MLflow, by their own clients, where asked for.

TensorBoard's files are written always, by Orbit.
"""

import importlib
import importlib.util
import os

from xlnet_tf.files import is_remote
from xlnet_tf.files import read_json
from xlnet_tf.files import write_json

# The run's own number with the service, so that a resumed run goes on there.
TRACKER_FILE = "tracker.json"


class WandB:
    """A run of Weights & Biases.

    WANDB_PROJECT, WANDB_MODE and the other variables of its client hold;
    without WANDB_PROJECT the project is "xlnet_tf".

    Args:
        directory: path of the run.
        settings: dict of the config of the run.
    """

    def __init__(self, directory, settings):
        wandb = importlib.import_module("wandb")
        known = _read(directory, "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "xlnet_tf"),
            name=directory.name,
            dir=None if is_remote(directory) else str(directory),
            id=known,
            resume="allow",
            config=settings,
        )
        _write(directory, "wandb", self._run.id, known)

    def log(self, kind, step, scalars):
        """Log the values of a step."""
        values = {f"{kind}/{name}": value for name, value in scalars.items()}
        self._run.log(values, step=step)

    def close(self):
        """End the run, after all was sent."""
        self._run.finish()


class MLflow:
    """A run of MLflow.

    MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and the other variables of its
    client hold.

    Args:
        directory, settings: as of WandB.
    """

    def __init__(self, directory, settings):
        self._mlflow = importlib.import_module("mlflow")
        known = _read(directory, "mlflow")
        run = self._mlflow.start_run(
            run_id=known, run_name=None if known else directory.name
        )
        if known is None:
            self._mlflow.log_params(settings)
        _write(directory, "mlflow", run.info.run_id, known)

    def log(self, kind, step, scalars):
        """Log the values of a step."""
        values = {f"{kind}/{name}": value for name, value in scalars.items()}
        self._mlflow.log_metrics(values, step=step)

    def close(self):
        """End the run."""
        self._mlflow.end_run()


_TRACKERS = {"wandb": WandB, "mlflow": MLflow}


def check_tracker(name):
    """Refuse a service whose client is not installed.

    Args:
        name: str, a value of `log_to`.

    Raises:
        ValueError: if it is missing.
    """
    if name in _TRACKERS and importlib.util.find_spec(name) is None:
        raise ValueError(
            f"--log-to {name} needs its client, which is not installed: "
            f"pip install {name}."
        )


def make_tracker(config, directory):
    """Begin, or go on with, the run of a service.

    Args:
        config: TrainingConfig, of which `log_to` names the service.
        directory: path of the run.

    Returns:
        WandB, MLflow, or None for "tensorboard" alone.
    """
    cls = _TRACKERS.get(config.log_to)
    return cls and cls(directory, config.to_dict())


def _read(directory, name):
    file = directory / TRACKER_FILE
    return read_json(file).get(name) if file.is_file() else None


def _write(directory, name, number, known):
    if number != known:
        file = directory / TRACKER_FILE
        earlier = read_json(file) if file.is_file() else {}
        write_json(file, {**earlier, name: number})
