"""What a fine-tuning run says while it runs, and which weights it keeps."""

from xlnet_tf.files import read_json
from xlnet_tf.files import write_json
from xlnet_tf.tasks.metrics import is_better
from xlnet_tf.training.progress import PatienceExhausted

BEST = "best"
_BEST_FILE = "best.json"


def progress_text(kind, scalars):
    if kind == "eval":
        values = (f"{name} {value:.4g}" for name, value in scalars.items())
        return "held out  " + "  ".join(values)
    return (
        f"loss {scalars['loss']:.4f}  "
        f"gradient {scalars['gradient_norm']:.2f}  "
        f"rate {scalars['learning_rate']:.2e}  "
        f"{scalars['rows_per_second']:,.1f} rows/s"
    )


class KeepBest:
    """Orbit's action after an evaluation: keeps the best weights as a preset.

    To be called before the evaluation is logged: one that is not logged is made
    again, so that a kill in between loses nothing.

    Args:
        run: Run of `finetuning_run`.
    """

    def __init__(self, run):
        self._run = run
        self._file = run.output / _BEST_FILE
        self._best = read_json(self._file) if self._file.is_file() else None
        step = int(run.global_step.numpy())
        if self._best and self._best["step"] > step:
            # Of steps that were lost; they come again.
            self._best = None

    def __call__(self, output):
        step = int(self._run.global_step.numpy())
        metric, value = next(iter(output.items()))
        value = float(value)
        before = self._best
        if before is None or is_better(metric, value, before["value"]):
            self._best = {"metric": metric, "value": value, "step": step}
            self._run.save(self._run.output / BEST)
            if self._run.is_chief:
                write_json(self._file, self._best)

    def check_patience(self, output=None):
        """Orbit's action once all is kept and logged.

        Raises:
            PatienceExhausted: if patience is over.
        """
        config = self._run.config
        if config.patience is None or self._best is None:
            return
        waited = int(self._run.global_step.numpy()) - self._best["step"]
        if waited >= config.patience * config.evaluation_interval:
            raise PatienceExhausted
