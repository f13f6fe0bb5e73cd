"""Log of a run: progress lines, `metrics.jsonl`, TensorBoard, loss curves."""

import collections
import json
import math
import sys
import time

import tensorflow as tf
import tqdm

from data_pipeline.base.command_line import print_lines
from data_pipeline.base.command_line import print_notes
from data_pipeline.base.command_line import printable
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_lines
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import written_whole
from data_pipeline.base.models import METRICS_FILE
from data_pipeline.base.progress import duration
from xlnet_tf.pictures.curves import draw_curves
from xlnet_tf.training.profile import LoopProfile
from xlnet_tf.training.trackers import make_tracker
from xlnet_tf.training.update import bytes_of_moments

PICTURE_FILE = "loss.png"
NOT_FINITE_FILE = "not_finite.jsonl"
# Number of earlier loops that define the usual range of the largest loss.
_USUAL_LOOPS = 10


def read_steps(file):
    """Read those lines of a run's log file that contain a step.

    Args:
        file: path of `metrics.jsonl` or `not_finite.jsonl`.

    Returns:
        list of dict, empty without the file.
    """
    return [x for x in read_json_lines(file) if isinstance(x.get("step"), int)]


def strategy_lines(run, model):
    """Describe the devices and Adam's moments in a list of lines."""
    lines = [f"strategy  {run.backend.describe()}"]
    if run.settings.shard_optimizer:
        megabytes = bytes_of_moments(model, run.backend) / 1e6
        lines.append(
            f"optimizer {megabytes:,.2f} MB of Adam's moments on each device"
        )
    return lines


def tell_first_lines(lines, checkpoints):
    """Print a run's first lines, and the step from which the run resumes.

    Args:
        lines: list of str.
        checkpoints: Checkpoints, after `restore`.
    """
    lines = [*lines]
    lines += [f"skipped   damaged checkpoint {x}" for x in checkpoints.skipped]
    if checkpoints.restored:
        lines.append(f"resume    from {checkpoints.restored}")
    print_lines(*lines)


def draw_losses(directory):
    """Draw the training loss and the held-out loss of a run to `loss.png`.

    Args:
        directory: path of the run.

    Returns:
        path of the picture, or None if no loss is logged.
    """
    lines = read_json_lines(directory / METRICS_FILE)
    if not any("loss" in line for line in lines):
        return None
    with written_whole(directory / PICTURE_FILE) as temporary:
        draw_curves([directory]).savefig(temporary, dpi=150)
    return directory / PICTURE_FILE


class MetricsLog:
    """Context that logs training steps to `metrics.jsonl` and TensorBoard.

    The steps of a loop, see `loop.py`, share a line of the log. The context
    also prints progress: a bar on a terminal, otherwise a line for each loop.

    Args:
        directory: path of the run, or None for a worker that writes no files.
        settings: PretrainingSettings or FinetuningSettings. Only `steps`,
            `log_to` and `profile` are used.
        global_step: tf.Variable, the number of steps so far.
        describe: function of ("train" or "eval", dict of scalars). It returns
            the part of a progress line between the step and the time left.
        quiet: bool, whether to print nothing. Default False.
    """

    def __init__(self, directory, settings, global_step, describe, quiet=False):
        self._file = directory and as_path(directory) / METRICS_FILE
        self._quiet = quiet or not directory
        self._settings = settings
        self._bar = self._tracker = self._profile = None
        self._writers = {}  # TensorBoard writers by kind
        self._total_steps = settings.steps
        self._global_step = global_step
        self._describe = describe
        self._begun = (time.monotonic(), int(global_step.numpy()))
        self._largest = collections.deque(maxlen=_USUAL_LOOPS)
        if self._file:
            self._drop_after(int(global_step.numpy()))

    def __enter__(self):
        step = int(self._global_step.numpy())
        if step >= self._total_steps:
            return self
        if self._file:
            directory = self._file.parent
            self._tracker = make_tracker(self._settings, directory, _tell)
            if self._settings.profile:
                self._profile = LoopProfile(
                    directory / "train", self._global_step, self._total_steps
                )
        if not self._quiet:
            print_notes(
                "the first step is traced and compiled, which takes from "
                "seconds to minutes"
            )
            if sys.stderr.isatty():
                self._bar = tqdm.tqdm(
                    total=self._total_steps,
                    initial=step,
                    unit="step",
                    dynamic_ncols=True,
                )
        return self

    def __exit__(self, kind, error, traceback):
        if self._bar is not None:
            self._bar.close()
        if self._tracker is not None:
            self._tracker.close(failed=kind is not None)
        if self._profile is not None:
            self._profile.close()
        for writer in self._writers.values():
            writer.close()

    def has_evaluation(self, step):
        """Whether the log has a step's evaluation; True without a log file."""
        return not self._file or any(
            (line.get("kind"), line["step"]) == ("eval", step)
            for line in read_steps(self._file)
        )

    def _drop_after(self, step):
        """Remove the lines of steps after the restored checkpoint."""
        if not self._file.is_file():
            return
        kept = [line for line in read_steps(self._file) if line["step"] <= step]
        self._largest.extend(
            line["largest_loss"] for line in kept if "largest_loss" in line
        )
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_bytes(self._file, text.encode())

    def train(self, scalars):
        """Log a loop of training steps.

        Args:
            scalars: dict of str to number.
        """
        self._write("train", scalars)
        told = self._profile and self._profile.after_loop()
        if told and not self._quiet:
            _tell(told)

    def evaluate(self, scalars):
        """Log an evaluation.

        Args:
            scalars: dict of str to number.
        """
        self._write("eval", scalars)

    def _write(self, kind, scalars):
        if not self._file:
            return
        step = int(self._global_step.numpy())
        scalars = {
            name: value if isinstance(value, int) else float(value)
            for name, value in scalars.items()
        }
        with self._file.open("a", encoding="utf-8") as handle:
            line = {"kind": kind, "step": step, **scalars}
            handle.write(json.dumps(line) + "\n")
        self._write_summaries(kind, step, scalars)
        if self._tracker is not None:
            self._tracker.log(kind, step, scalars)
        text = self._describe(kind, scalars)
        if kind == "train":
            text += self._told_of_steps(scalars)
        if not self._quiet:
            self._tell(kind, step, text)

    def _write_summaries(self, kind, step, scalars):
        if kind not in self._writers:
            directory = str(self._file.parent / kind)
            self._writers[kind] = tf.summary.create_file_writer(directory)
        with self._writers[kind].as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writers[kind].flush()

    def _tell(self, kind, step, text):
        if self._bar is not None and kind == "train" and "PEAK" not in text:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)
            if step >= self._total_steps:
                self._bar.close()
            return
        text = f"step {step}/{self._total_steps}  {text}"
        if kind == "train":
            text += f"  {self._time_left(step)} left"
        _tell(text)

    def _told_of_steps(self, scalars):
        """Return the text about a loop's largest loss and skipped steps."""
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
        """Estimate the time for the remaining steps from the rate so far."""
        begun, first_step = self._begun
        seconds = (time.monotonic() - begun) / max(step - first_step, 1)
        return duration(seconds * (self._total_steps - step))


class NotFiniteSteps:
    """Log of steps whose loss or gradients were not finite.

    If a resumed run repeats a step, the step's new line replaces its old line.
    No other line is removed.

    Args:
        directory: path of the run.
        rows_of_step: function of a step's number. It returns a list of dicts.
            Each dict describes the source of a row of the global batch.
        is_chief: bool, whether this process writes the file.
    """

    def __init__(self, directory, rows_of_step, is_chief):
        self._file = as_path(directory) / NOT_FINITE_FILE
        self._rows_of_step = rows_of_step
        self._is_chief = is_chief

    def __call__(self, results):
        """Write a line for each given step.

        Args:
            results: list of StepResult, not empty.

        Returns:
            str, a sentence with the file's path.
        """
        if self._is_chief:
            new = {x.step: self._line(x) for x in results}
            lines = noted_steps(self._file.parent)
            kept = [x for x in lines if x["step"] not in new]
            text = "".join(
                json.dumps(line) + "\n" for line in [*kept, *new.values()]
            )
            write_bytes(self._file, text.encode())
        return f"{self._file} names the rows of its batch."

    def _line(self, result):
        return {
            "step": result.step,
            "loss": _as_json(result.loss),
            "gradient_norm": _as_json(result.gradient_norm),
            "rows": self._rows_of_step(result.step),
        }


def noted_steps(directory):
    """List the logged lines about steps that were not finite."""
    return read_steps(as_path(directory) / NOT_FINITE_FILE)


def _as_json(value):
    """Return a number; convert NaN and infinity to a str that `float` reads."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def is_peak(loss, before):
    """Whether a loop's largest loss is far above the losses of earlier loops.

    The loss must exceed the maximum of the ten earlier losses by more than
    their range (maximum minus minimum), and by more than a tenth of this
    maximum.

    Args:
        loss: float, the largest loss of the loop.
        before: sequence of at most ten floats, the largest losses of earlier
            loops.

    Returns:
        bool, False for the first ten loops.
    """
    if len(before) < _USUAL_LOOPS:
        return False
    top = max(before)
    return loss > top + max(top - min(before), abs(top) / 10)


def _tell(text):
    """Write a line of text, above the progress bar if there is a bar."""
    tqdm.tqdm.write(printable(text), file=sys.stderr)
