"""The weights of a run's best evaluation, and when to wait no longer."""

from xlnet_tf.files import read_json
from xlnet_tf.files import write_json
from xlnet_tf.files.checksums import pop_digest
from xlnet_tf.files.checksums import with_digest

_FILE = "best.json"


class PatienceExhausted(BaseException):
    """Raised after an evaluation when patience is over.

    Not an `Exception`, see `StopRequested` in `runs/stopping.py`.
    """


class BestWeights:
    """Orbit's action after an evaluation: saves the best weights so far.

    To be called before the evaluation is logged: an evaluation that is missing
    in the log is repeated, so that a kill in between loses nothing.

    Args:
        directory: path of the run, whose `best.json` holds its own SHA-256;
            that of an older run has none, or holds the value alone.
        global_step: tf.Variable.
        is_better: function of (metric, value, value of the best).
        save: function without arguments that saves the weights.
        is_chief: bool, whether this process writes the file.
        patience: int or None, steps without a better value after which
            `check_patience` ends the run.

    Raises:
        ValueError: if the file is damaged.
    """

    def __init__(
        self, directory, global_step, is_better, save, is_chief, patience=None
    ):
        self._file = directory / _FILE
        self._global_step = global_step
        self._is_better = is_better
        self._save = save
        self._is_chief = is_chief
        self._patience = patience
        best = read_best(directory)
        if best and best["step"] > int(global_step.numpy()):
            # Of steps that were lost and are repeated.
            best = None
        self._best = best

    def __call__(self, output):
        metric, value = next(iter(output.items()))
        value, best = float(value), self._best
        if best and not self._is_better(metric, value, best["value"]):
            return
        step = int(self._global_step.numpy())
        self._best = {"metric": metric, "value": value, "step": step}
        # The weights first: after a kill in between they are saved again.
        self._save()
        if self._is_chief:
            write_json(self._file, with_digest(self._best))

    def check_patience(self, output=None):
        """Orbit's action once an evaluation is saved and logged.

        Raises:
            PatienceExhausted: if patience is over.
        """
        if self._patience is None or self._best is None:
            return
        waited = int(self._global_step.numpy()) - self._best["step"]
        if waited >= self._patience:
            raise PatienceExhausted


def read_best(directory):
    """The best evaluation of a run, from its `best.json`.

    Args:
        directory: path of the run.

    Returns:
        dict of the metric, its value and the step; None without the file.

    Raises:
        ValueError: if the file is damaged.
    """
    file = directory / _FILE
    if not file.is_file():
        return None
    best = read_json(file)
    if isinstance(best, float):
        return {"metric": "loss", "value": best, "step": 0}
    kinds = {"metric": str, "value": float, "step": int}
    if (
        not isinstance(best, dict)
        or pop_digest(best) is False
        or {name: type(value) for name, value in best.items()} != kinds
    ):
        raise ValueError(
            f"{file} is damaged: it is not what a run writes. Remove it: the "
            "next evaluation then counts as the best so far."
        )
    return best
