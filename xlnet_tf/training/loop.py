"""Loop of a run: steps, logs, checkpoints and evaluations.

The backend makes `steps_per_loop` steps in a loop. After each loop the run
checks that losses and gradients were finite, logs the loop, and stops if
requested. If a checkpoint or an evaluation is due, the run makes it after the
loop.
"""

import dataclasses
import enum
import time
from collections.abc import Callable

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_listed
from data_pipeline.base.command_line import print_notes
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_object
from xlnet_tf.tasks.metrics import is_better
from xlnet_tf.training.devices import holds_anywhere
from xlnet_tf.training.devices import make_step_counter
from xlnet_tf.training.log import MetricsLog
from xlnet_tf.training.log import NotFiniteSteps
from xlnet_tf.training.step import most_skipped
from xlnet_tf.training.stopping import Stop
from xlnet_tf.training.stopping import time_left

_BEST_FILE = "best.json"


class Run:
    """Run of pretraining or fine-tuning: settings, directory, backend, step.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
        backend: TensorFlow or Jax, which computes the steps.
        begun: float, value of `time.monotonic()` from which the time limit is
            counted. None (default) means now.

    Attributes:
        settings, backend, begun: the arguments.
        output: path of the run's directory.
        step: tf.Variable, the number of optimizer steps so far.
        is_chief: bool, whether this process writes the files.
        shows_progress: bool, whether this process prints progress.
    """

    def __init__(self, settings, backend, begun=None):
        self.settings = settings
        self.backend = backend
        self.begun = time.monotonic() if begun is None else begun
        self.output = as_path(settings.output)
        self.step = make_step_counter(backend.strategy)
        self.is_chief = backend.is_chief
        self.shows_progress = self.is_chief and not settings.quiet

    def steps_made(self):
        """Number of optimizer steps so far, int."""
        return int(self.step.numpy())


@dataclasses.dataclass
class Training:
    """Functions of pretraining or of fine-tuning that the loop calls.

    Attributes:
        make_steps: function without arguments that returns the backend's Steps
            object. The object continues from the current step.
        figures: function of a LoopReport. It returns the figures to log, dict
            of str to float.
        progress_text: function of ("train" or "eval", dict of figures). It
            returns the part of a progress line between the step and the time
            left.
        rows_of_step: function of a step, counted from 1. It returns a list of
            dicts. Each dict describes the source of a row of the step's batch.
        advice: str, advice to print if losses or gradients are not finite.
        save_best: function without arguments that saves the weights.
        evaluate: function of `must_stop`, or None (default) for no evaluations.
            `must_stop` is a function that is called for each batch. If it
            returns True, the evaluation stops and `evaluate` returns None.
            Otherwise `evaluate` returns the metrics, dict of str to float. The
            first metric selects the best weights.
        patience: int, or None (default) to train to the last step. The run ends
            when the best evaluation was this number of steps ago.
    """

    make_steps: Callable
    figures: Callable
    progress_text: Callable
    rows_of_step: Callable
    advice: str
    save_best: Callable
    evaluate: Callable | None = None
    patience: int | None = None


class Ending(enum.Enum):
    """Reason for the end of a run's loop."""

    LAST_STEP = "last step"
    PATIENCE = "no better evaluation"
    STOPPED = "asked to stop"


def train(run, training, checkpoints):
    """Train and evaluate to the last step, or until a request to stop.

    Args:
        run: Run.
        training: Training.
        checkpoints: Checkpoints, after `restore`.

    Returns:
        int, the exit status: 0 for a finished run, 143 for a run stopped by
        SIGTERM or the time limit, 130 for a run stopped by Ctrl-C.

    Raises:
        RuntimeError: if too many steps in a row were not finite.
    """
    seconds = time_left(run.settings, run.begun)
    with Stop(run.backend.strategy, seconds) as stop:
        ending = Ending.STOPPED  # the time limit may pass before the first step
        if not stop.is_requested():
            with MetricsLog(
                run.output if run.is_chief else None,
                run.settings,
                run.step,
                training.progress_text,
                not run.shows_progress,
            ) as log:
                ending = _train(run, training, checkpoints, stop, log)
        if ending is Ending.LAST_STEP and stop.is_requested():
            ending = Ending.STOPPED
        step = run.steps_made()
        # Without a checkpoint before the first step, the settings may still
        # change.
        if step:
            checkpoints.save()
        if ending is not Ending.STOPPED:
            return 0
        print_notes(
            f"stopped at step {step}; the same command goes on from there"
        )
        return stop.exit_status


def _train(run, training, checkpoints, stop, log):
    """Make the remaining steps of a run; return the reason for the end."""
    settings, evaluations = run.settings, None
    if training.evaluate:
        evaluations = Evaluations(run, training, stop, log)
        if ending := evaluations.catch_up():
            return ending
    note = NotFiniteSteps(run.output, training.rows_of_step, run.is_chief)
    steps = training.make_steps() if run.steps_made() < settings.steps else None
    while (step := run.steps_made()) < settings.steps:
        end = end_of_loop(step, settings, evaluations is not None)
        report = steps.make(end - step, stop.flag)
        check_finite(report, settings, note, training.advice)
        log.train(training.figures(report))
        if stop.is_requested():
            return Ending.STOPPED
        checkpoints.save_if_due()
        if evaluations and (ending := evaluations.evaluate_if_due()):
            return ending
    return Ending.LAST_STEP


def end_of_loop(step, settings, evaluates):
    """Compute the step at which the current loop ends, int.

    Loops end at multiples of `steps_per_loop` and at the last step. So the end
    does not depend on the step from which a run resumed.

    Args:
        step: int, number of steps so far.
        settings: PretrainingSettings or FinetuningSettings.
        evaluates: bool, whether loops also end at evaluations. If so, the
            multiples are counted from the latest evaluation.
    """
    begin, end = 0, settings.steps
    if evaluates:
        begin = step - step % settings.evaluation_interval
        end = min(end, begin + settings.evaluation_interval)
    loops = (step - begin) // settings.steps_per_loop + 1
    return min(end, begin + loops * settings.steps_per_loop)


def check_finite(report, settings, note, advice):
    """Log steps that were not finite; end the run after too many such steps.

    Args:
        report: LoopReport.
        settings: PretrainingSettings or FinetuningSettings.
        note: NotFiniteSteps.
        advice: str, advice for the user, such as "start again".

    Raises:
        RuntimeError: if too many steps in a row were not finite.
    """
    skipped = [x for x in report.results if not x.is_finite]
    if not skipped:
        return
    told = note(skipped)
    most, last = most_skipped(settings), skipped[-1]
    if report.skipped_in_a_row <= most:
        return
    where = (
        f"the loss became {last.loss} (gradient norm {last.gradient_norm}) "
        f"at step {last.step}"
    )
    others = ", or --on-not-finite skip to leave such steps out"
    if most:
        where += f", after {most} that were skipped in a row"
        others = ""
    raise RuntimeError(
        f"{where}. {told} Nothing since the last checkpoint was saved: "
        f"{advice} with a smaller learning rate, a longer warm-up or "
        f"--precision float32{others}."
    )


class Evaluations:
    """Evaluations of a run, at multiples of an interval and at the end.

    The steps of the evaluations do not depend on the step from which a run
    resumed. If a run was killed before a due evaluation, the resumed run makes
    this evaluation before its first step. The best weights then equal the best
    weights of an uninterrupted run.

    Args:
        run: Run.
        training: Training.
        stop: Stop.
        log: MetricsLog with the evaluations so far.
    """

    def __init__(self, run, training, stop, log):
        self._run, self._training = run, training
        self._stop, self._log = stop, log
        self._best = Best(
            run.output,
            run.steps_made(),
            training.save_best,
            run.is_chief,
        )

    def is_due(self):
        """Whether an evaluation is due at the current step."""
        step, settings = self._run.steps_made(), self._run.settings
        is_last = step >= settings.steps
        is_multiple = not step % settings.evaluation_interval
        return bool(step) and (is_last or is_multiple)

    def catch_up(self):
        """Make an evaluation that was due when the run stopped.

        Returns:
            Ending if the run must end, else None.
        """
        step = self._run.steps_made()
        is_missing = self.is_due() and not self._log.has_evaluation(step)
        # All workers call this function together. The chief's log decides.
        if holds_anywhere(self._run.backend.strategy, is_missing):
            return self._evaluate()
        if step >= self._run.settings.steps:
            return None
        return self._end_of_patience()

    def evaluate_if_due(self):
        """Evaluate if an evaluation is due; return an Ending or None."""
        return self._evaluate() if self.is_due() else None

    def _evaluate(self):
        must_stop = self._stop.is_requested
        if must_stop():
            return Ending.STOPPED
        metrics = self._training.evaluate(must_stop)
        if metrics is None or must_stop():
            return Ending.STOPPED
        step = self._run.steps_made()
        self._best.update(step, metrics)
        # The log is written last, because a resumed run repeats an evaluation
        # that is missing in the log.
        self._log.evaluate(metrics)
        if ending := self._end_of_patience():
            return ending
        return Ending.STOPPED if must_stop() else None

    def _end_of_patience(self):
        patience, best = self._training.patience, self._best.value
        if patience is None or best is None:
            return None
        waited = self._run.steps_made() - best["step"]
        return Ending.PATIENCE if waited >= patience else None


class Best:
    """Best evaluation of a run, with the file `best.json` and saved weights.

    Args:
        directory: path of the run.
        step: int, number of steps so far.
        save: function without arguments that saves the weights.
        is_chief: bool, whether this process writes the file.

    Attributes:
        value: dict of the metric's name, its value and the step. None before
            the first evaluation.

    Raises:
        ValueError: if the file is damaged.
    """

    def __init__(self, directory, step, save, is_chief):
        self._directory = directory
        self._save = save
        self._is_chief = is_chief
        best = read_best(directory)
        # If the run lost the steps before an evaluation, it repeats the
        # evaluation too.
        self.value = best if best and best["step"] <= step else None

    def update(self, step, metrics):
        """Save the weights if an evaluation is the best so far.

        Call this method before the evaluation is logged. If the run is killed
        before the logging, the resumed run repeats the evaluation, because the
        evaluation is missing in the log.

        Args:
            step: int, the step of the evaluation.
            metrics: dict of str to float. The first metric selects the best
                weights.
        """
        metric, value = next(iter(metrics.items()))
        value, best = float(value), self.value
        if best and not is_better(metric, value, best["value"]):
            return
        self.value = {"metric": metric, "value": value, "step": step}
        # The weights are saved before `best.json` is written. If the run is
        # killed in between, the resumed run saves the weights again.
        self._save()
        if self._is_chief:
            write_listed(self._directory, {_BEST_FILE: self.value})


def read_best(directory):
    """Read the best evaluation of a run from its `best.json`.

    Args:
        directory: path of the run.

    Returns:
        dict of the metric's name, its value and the step. None without the
        file.

    Raises:
        ValueError: if the file is damaged.
    """
    file = directory / _BEST_FILE
    if not file.is_file():
        return None
    try:
        verify_checksums(directory, [_BEST_FILE])
        best = read_json_object(file)
        kinds = {"metric": str, "value": float, "step": int}
        if {name: type(value) for name, value in best.items()} != kinds:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{file} is damaged: it is not a file of a run. Remove it: the "
            "next evaluation then counts as the best so far."
        ) from None
    return best
