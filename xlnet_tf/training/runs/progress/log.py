"""Progress of a run: its log, its evaluations, its best weights."""

import collections
import contextlib
import json
import sys
import time

from data_pipeline.records.manifest import digest_of_fields
from xlnet_tf.files import as_path
from xlnet_tf.files import read_json
from xlnet_tf.files import read_json_lines
from xlnet_tf.files import write_bytes
from xlnet_tf.files import write_json
from xlnet_tf.training.strategy import largest_and_smallest

METRICS_FILE = "metrics.jsonl"
# Loops of steps whose largest losses say what is usual.
_USUAL_LOOPS = 10


class PatienceExhausted(BaseException):
    """Raised after an evaluation when patience is over.

    Not an `Exception`, see `StopRequested` in `stopping.py`.
    """


class MetricsLog:
    """Writes a progress line and a line of `metrics.jsonl` for each loop.

    Args:
        directory: path, or None for a worker that writes nothing.
        total_steps: int.
        global_step: tf.Variable.
        describe: function of ("train" or "eval", dict of scalars) to the text
            of a progress line between the step and the time left.
    """

    def __init__(self, directory, total_steps, global_step, describe):
        self._file = directory and as_path(directory) / METRICS_FILE
        self._total_steps = total_steps
        self._global_step = global_step
        self._describe = describe
        self._begun = (time.monotonic(), int(global_step.numpy()))
        self._largest = collections.deque(maxlen=_USUAL_LOOPS)
        if self._file:
            self._drop_after(int(global_step.numpy()))

    def has_evaluation(self, step):
        """Whether the evaluation of a step is logged; without a file, True."""
        return not self._file or any(
            (line.get("kind"), line["step"]) == ("eval", step)
            for line in self._lines()
        )

    def _lines(self):
        """list of dict, without a line that a kill cut short."""
        lines = read_json_lines(self._file) if self._file.is_file() else []
        return [line for line in lines if isinstance(line.get("step"), int)]

    def _drop_after(self, step):
        """Drops lines of steps after the checkpoint that a run resumes from."""
        if not self._file.is_file():
            return
        kept = [line for line in self._lines() if line["step"] <= step]
        self._largest.extend(
            line["largest_loss"] for line in kept if "largest_loss" in line
        )
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_bytes(self._file, text.encode())

    def train(self, output):
        """Orbit's action after each loop of training."""
        self._write("train", output)

    def evaluate(self, output):
        """Orbit's action after each evaluation."""
        self._write("eval", output)

    def _write(self, kind, output):
        if not self._file:
            return
        step = int(self._global_step.numpy())
        scalars = {
            name: value if isinstance(value, int) else float(value)
            for name, value in output.items()
        }
        with self._file.open("a", encoding="utf-8") as handle:
            line = {"kind": kind, "step": step, **scalars}
            handle.write(json.dumps(line) + "\n")
        text = f"step {step}/{self._total_steps}  "
        text += self._describe(kind, scalars)
        if kind == "train":
            text += self._told_of_steps(scalars)
            text += f"  {self._time_left(step)} left"
        sys.stderr.write(text + "\n")

    def _told_of_steps(self, scalars):
        """What single steps of a loop add to its line."""
        text = ""
        if "largest_loss" in scalars:
            loss = scalars["largest_loss"]
            text += f"  largest {loss:.3f}"
            if is_peak(loss, self._largest):
                text += f" PEAK at step {scalars['largest_loss_step']}"
            self._largest.append(loss)
        if "skipped_steps" in scalars:
            text += f"  skipped {scalars['skipped_steps']} not finite"
        return text

    def _time_left(self, step):
        """Time that the remaining steps take at the rate so far."""
        begun, first_step = self._begun
        seconds = (time.monotonic() - begun) / max(step - first_step, 1)
        return duration(seconds * (self._total_steps - step))


def is_peak(loss, before):
    """Whether the largest loss of a loop is far above those before.

    It is if it is above the largest of ten loops by more than these differ
    among themselves, and by more than a tenth.

    Args:
        loss: float.
        before: sequence of float, of the loops before, at most ten.

    Returns:
        bool, False for the first ten loops.
    """
    if len(before) < _USUAL_LOOPS:
        return False
    top = max(before)
    return loss > top + max(top - min(before), abs(top) / 10)


def duration(seconds):
    """Seconds as text: 50 s, 12 min, 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class BestWeights:
    """Orbit's action after an evaluation: saves the best weights so far.

    To be called before the evaluation is logged: an evaluation that is missing
    in the log is repeated, so that a kill in between loses nothing.

    Args:
        file: path of `best.json`, which holds its own SHA-256; that of an
            older run has none, or holds the value alone.
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
        self, file, global_step, is_better, save, is_chief, patience=None
    ):
        self._file = file
        self._global_step = global_step
        self._is_better = is_better
        self._save = save
        self._is_chief = is_chief
        self._patience = patience
        best = _read_best(file) if file.is_file() else None
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
            digest = digest_of_fields(self._best)
            write_json(self._file, {**self._best, "sha256": digest})

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


def _read_best(file):
    """dict of the metric, its value and the step in a `best.json`."""
    best = read_json(file)
    if isinstance(best, float):
        return {"metric": "loss", "value": best, "step": 0}
    kinds = {"metric": str, "value": float, "step": int}
    digest = best.pop("sha256", None) if isinstance(best, dict) else None
    if (
        not isinstance(best, dict)
        or {name: type(value) for name, value in best.items()} != kinds
        or digest not in (None, digest_of_fields(best))
    ):
        raise ValueError(
            f"{file} is damaged: it is not what a run writes. Remove it: the "
            "next evaluation then counts as the best so far."
        )
    return best


class Evaluations:
    """Evaluates a run at every multiple of an interval, and at its end.

    The steps of evaluations do not depend on where a run resumed. If the run
    was killed before an evaluation, that evaluation runs on resume, so that the
    best weights equal those of an uninterrupted run.

    Args:
        log: MetricsLog, which holds the evaluations that were made.
        strategy: tf.distribute.Strategy.
        total_steps: int.
        interval: int, steps.
        batches: int, those of an evaluation, or -1 (default) for all.
        interruptible: function that returns the context in which a run
            evaluates, see `Stop`.
    """

    def __init__(
        self,
        log,
        strategy,
        total_steps,
        interval,
        batches=-1,
        interruptible=contextlib.nullcontext,
    ):
        self._log = log
        self._strategy = strategy
        self._total_steps = total_steps
        self._interval = interval
        self._batches = batches
        self._interruptible = interruptible

    def is_missing(self, step):
        """Whether the evaluation of this step is due and was not made.

        All workers ask together; the chief's log has the answer.
        """
        is_due = step and not (
            step % self._interval and step < self._total_steps
        )
        missing = bool(is_due and not self._log.has_evaluation(step))
        return largest_and_smallest(self._strategy, missing)[0] > 0

    def evaluate_if_missing(self, controller):
        """Evaluates the present step if its evaluation is missing.

        Args:
            controller: orbit.Controller with an evaluator, whose actions log
                an evaluation last.
        """
        if self.is_missing(int(controller.global_step.numpy())):
            self._evaluate(controller)

    def _evaluate(self, controller):
        with self._interruptible():
            controller.evaluate(steps=self._batches)

    def train_between(self, controller):
        """Trains to the last step, with an evaluation at each interval.

        Args:
            controller: orbit.Controller with a trainer and an evaluator.
        """
        step = int(controller.global_step.numpy())
        while step < self._total_steps:
            step = min(
                step - step % self._interval + self._interval,
                self._total_steps,
            )
            controller.train(step, checkpoint_at_completion=False)
            self._evaluate(controller)
        controller.train(self._total_steps)  # no step is left: saves
