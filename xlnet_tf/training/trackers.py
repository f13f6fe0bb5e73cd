"""Logging to the services Weights & Biases and MLflow, through their clients.

The module `log` writes TensorBoard's files in every run.
"""

import importlib
import importlib.util
import os

from data_pipeline.base.files import is_remote
from data_pipeline.base.files import read_json
from data_pipeline.base.files import write_json
from data_pipeline.base.limits import first_line

# File with the service's id of the run. With this id a resumed run continues
# the run of the service.
TRACKER_FILE = "tracker.json"


class WandB:
    """Run of Weights & Biases.

    The client reads WANDB_PROJECT, WANDB_MODE and its other environment
    variables. Without WANDB_PROJECT the project is "xlnet_tf".

    Args:
        directory: path of the run.
        settings: dict of the settings of the run.

    Attributes:
        ERROR: str, name of the exception class of the client.
    """

    ERROR = "Error"

    def __init__(self, directory, settings):
        wandb = importlib.import_module("wandb")
        known = _read(directory, "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "xlnet_tf"),
            name=directory.name,
            dir=None if is_remote(directory) else str(directory),
            id=known,
            resume="allow",
            settings=settings,
        )
        # The steps are a metric of their own, because W&B's own steps must
        # increase, and a resumed run logs the steps after its last checkpoint
        # again.
        self._run.define_metric("*", step_metric="step")
        _write(directory, "wandb", self._run.id, known)

    def log(self, step, values):
        """Log the values of a step."""
        self._run.log({**values, "step": step})

    def close(self, failed):
        """Send all remaining values and end the run."""
        self._run.finish(exit_code=int(failed))


class MLflow:
    """Run of MLflow.

    The client reads MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and its other
    environment variables.

    Args:
        directory, settings: see WandB.

    Attributes:
        ERROR: see WandB.
    """

    ERROR = "MlflowException"

    def __init__(self, directory, settings):
        self._mlflow = importlib.import_module("mlflow")
        known = _read(directory, "mlflow")
        run = self._mlflow.start_run(
            run_id=known, run_name=None if known else directory.name
        )
        if known is None:
            self._mlflow.log_params(settings)
        _write(directory, "mlflow", run.info.run_id, known)

    def log(self, step, values):
        """Log the values of a step."""
        self._mlflow.log_metrics(values, step=step)

    def close(self, failed):
        """End the run."""
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


class Tracker:
    """Run of a tracking service; if the service fails, training continues.

    Args:
        name: str, "wandb" or "mlflow".
        directory, settings: see WandB.
        tell: function that prints a line of text.

    Raises:
        ValueError: if the client cannot start its run, or cannot find the run
            to resume.
    """

    def __init__(self, name, directory, settings, tell):
        self._name, self._tell_user = name, tell
        self._error = getattr(
            importlib.import_module(name), _SERVICES[name].ERROR
        )
        self._told = False
        try:
            self._run = _SERVICES[name](directory, settings)
        except self._error as error:
            file = directory / TRACKER_FILE
            known = (
                f" It is the run of {file}; without that file, another begins."
                if _read(directory, name)
                else ""
            )
            raise ValueError(
                f"--log-to {name}: {_sentence(error)}{known}"
            ) from error

    def log(self, kind, step, scalars):
        """Log the values of a step, and report the first failure.

        Args:
            kind: str, "train" or "eval".
            step: int.
            scalars: dict of str to number.
        """
        values = {f"{kind}/{name}": value for name, value in scalars.items()}
        try:
            self._run.log(step, values)
        except self._error as error:
            self._tell(error)

    def close(self, failed):
        """End the run.

        Args:
            failed: bool, whether an error ended the training.
        """
        try:
            self._run.close(failed)
        except self._error as error:
            self._tell(error)

    def _tell(self, error):
        if not self._told:
            self._told = True
            self._tell_user(
                f"--log-to {self._name}: {_sentence(error)} Training does "
                "not depend on it, and metrics.jsonl has every value."
            )


_SERVICES = {"wandb": WandB, "mlflow": MLflow}


def check_tracker(name):
    """Refuse a tracking service whose client is not installed.

    Args:
        name: str, a value of `log_to`.

    Raises:
        ValueError: if the client is missing.
    """
    if name in _SERVICES and importlib.util.find_spec(name) is None:
        raise ValueError(
            f"--log-to {name} needs its client, which is not installed: "
            f"pip install {name}."
        )


def make_tracker(settings, directory, tell):
    """Start or continue the run of a tracking service.

    Args:
        settings: PretrainingSettings; `log_to` names the service.
        directory: path of the run.
        tell: function that prints a line of text.

    Returns:
        Tracker, or None if `log_to` is "tensorboard".

    Raises:
        ValueError: see Tracker.
    """
    if settings.log_to not in _SERVICES:
        return None
    return Tracker(settings.log_to, directory, settings.stored(), tell)


def _sentence(error):
    return f"{first_line(error).removesuffix('.')}."


def _read(directory, name):
    file = directory / TRACKER_FILE
    return read_json(file).get(name) if file.is_file() else None


def _write(directory, name, number, known):
    if number != known:
        file = directory / TRACKER_FILE
        earlier = read_json(file) if file.is_file() else {}
        write_json(file, {**earlier, name: number})
