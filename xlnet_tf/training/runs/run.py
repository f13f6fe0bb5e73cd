"""A run: from options to results, and from where it stopped to its end."""

import abc
import contextlib
import io
import logging
import math
import sys
import time

import keras
import orbit
import tensorflow as tf

from data_pipeline.command_line import warnings_in_a_line
from xlnet_tf.files import as_path
from xlnet_tf.files import read_json
from xlnet_tf.files import written_whole
from xlnet_tf.files.checksums import add_checksums
from xlnet_tf.files.checksums import verify_checksums
from xlnet_tf.files.models import RUN_FILE
from xlnet_tf.files.models import TRAINING_FILE
from xlnet_tf.training.runs.checkpoints import RunCheckpoints
from xlnet_tf.training.runs.directory import claimed
from xlnet_tf.training.runs.failures import explained
from xlnet_tf.training.runs.identity import check_same
from xlnet_tf.training.runs.identity import has_ended
from xlnet_tf.training.runs.identity import has_progress
from xlnet_tf.training.runs.identity import with_defaults
from xlnet_tf.training.runs.identity import write_settings
from xlnet_tf.training.runs.memory_rows import MemoryRows
from xlnet_tf.training.runs.not_finite import NotFiniteSteps
from xlnet_tf.training.runs.progress.best import BestWeights
from xlnet_tf.training.runs.progress.best import PatienceExhausted
from xlnet_tf.training.runs.progress.evaluations import Evaluations
from xlnet_tf.training.runs.progress.log import MetricsLog
from xlnet_tf.training.runs.stopping import Stop
from xlnet_tf.training.runs.stopping import StopRequested
from xlnet_tf.training.runs.stopping import time_left
from xlnet_tf.training.strategy import check_together
from xlnet_tf.training.strategy import is_chief

MODEL_FILE = "model.keras"


class Run(abc.ABC):
    """One run in its directory; use it as a context.

    Here is what all runs share: the identity that is compared on resume,
    checkpoints, the loop, stopping, the best weights, and errors explained.

    Args:
        options: object with the attributes of the command line.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
    """

    result_file = None  # name of the file that a finished run has
    checked_files = (RUN_FILE, TRAINING_FILE)  # by their digests, on resume
    fixed_settings = ()  # fields of the config that may not differ on resume
    # Values of fields that runs of earlier versions lack, where those are not
    # the defaults.
    earlier_settings = {}
    # What is said of entries of the identity that differ.
    differences = {}
    smaller = "--batch-size"  # options to reduce when memory runs out
    evaluation_batches = -1  # of one evaluation; -1 for all, None for none
    memory_rows = MemoryRows
    patience_steps = None  # int, steps without a better evaluation

    def __init__(self, options, config, strategy):
        # Their messages are given here, in words for users.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.options = options
        self.config = config
        self.strategy = strategy
        self.num_replicas = strategy.num_replicas_in_sync  # share a batch
        self.is_chief = is_chief(strategy)
        self.shows_progress = self.is_chief and not getattr(options, "quiet", 0)
        self.output = as_path(options.output)
        self.model = self.optimizer = self.memory = None
        self.global_step = self.checkpoints = self.restored = None
        self.stop = None  # while it trains
        self._begun = getattr(options, "begun", time.monotonic())
        self._held = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        with self._held:
            if isinstance(error, tf.errors.DataLossError):
                self.explain_data_loss()
            if isinstance(error, (tf.errors.OpError, MemoryError, OSError)):
                better = explained(error, self.output, self.smaller)
                if better is not error:
                    raise better from error

    def train(self):
        """Trains from the newest checkpoint, if any, to the last step.

        Returns:
            int: 0 done, 143 stopped by SIGTERM or time limit, 130 by Ctrl-C.

        Raises:
            ValueError, FileNotFoundError, RuntimeError: if options, data,
                directory and machine do not fit together.
        """
        self.read_data()
        if self.is_chief:
            with warnings_in_a_line():
                self._held.enter_context(claimed(self.output))
            self.remove_leftovers()
        self.open_directory()
        self.create_model()
        self.restore()
        self.report()
        status = self.loop()
        if status == 0:
            self.finish()
        return status

    # The steps of a run that its kind decides.

    @abc.abstractmethod
    def read_data(self):
        """Opens training and held-out data; completes the config by them."""

    @abc.abstractmethod
    def identity(self):
        """dict for `run.json`: all that makes this run another than others.

        `training` is the config; other entries are values or dicts of values.
        """

    @abc.abstractmethod
    def build(self):
        """Sets `model`, `optimizer` and `memory`, in the strategy's scope."""

    @abc.abstractmethod
    def trainer(self):
        """orbit.AbstractTrainer of the training data, from the global step."""

    @abc.abstractmethod
    def rows_of_step(self, step):
        """list of dict, what each row of a step, from 1, was made of."""

    @abc.abstractmethod
    def evaluator(self):
        """orbit.AbstractEvaluator of the held-out data."""

    @abc.abstractmethod
    def describe(self):
        """list of str, lines about data and model, before training starts."""

    @abc.abstractmethod
    def progress_text(self, kind, scalars):
        """The middle of a progress line.

        Args:
            kind: "train" or "eval".
            scalars: dict of str to float.
        """

    @abc.abstractmethod
    def save_best(self):
        """Saves the weights of the best evaluation so far."""

    @abc.abstractmethod
    def finish(self):
        """Writes results and the model once the last step is done."""

    def remove_leftovers(self):
        """Removes what a kill left unfinished outside of the directory."""
        return

    def tracked(self):
        """dict of what a checkpoint keeps, but for the step and the memory."""
        return {"model": self.model, "optimizer": self.optimizer}

    def start(self):
        """Prepares the new model of a run without a checkpoint."""
        return

    def is_better(self, metric, value, best):
        """Whether a value of an evaluation is better than the best so far."""
        return value < best or (math.isnan(best) and not math.isnan(value))

    def explain_data_loss(self):
        """Raises an error that names the damaged record, if it finds one."""
        return

    # The steps of every run.

    def open_directory(self):
        """Makes the directory, or checks that it holds the same run.

        A run that has neither results nor a checkpoint has nothing to lose, so
        it may start over with other settings.

        Raises:
            ValueError: names every difference from another run that is there.
        """
        self.config.replica_batch_size(self.num_replicas)
        identity = self.identity()
        file = self.output / RUN_FILE
        if self.has_progress() and file.is_file():
            if self.is_chief:  # which writes them next
                verify_checksums(self.output, self._checked_files())
            check_same(
                self.output,
                self.with_defaults(read_json(file)),
                identity,
                self.fixed_settings,
                self.differences,
            )
        is_over = has_ended(self.output, self.result_file, self.config.steps)
        if self.is_chief and not is_over:
            write_settings(self.output, identity, self.config.to_dict())
            add_checksums(self.output, self._checked_files())

    def _checked_files(self):
        return [x for x in self.checked_files if (self.output / x).is_file()]

    def with_defaults(self, identity):
        """The identity of a run, with what is newer than it."""
        return with_defaults(identity, self.config, self.earlier_settings)

    def has_progress(self):
        """Whether the directory holds results or a checkpoint, bool."""
        return has_progress(self.output, self.result_file)

    def create_model(self):
        """Builds model, optimizer and step, all of them seeded."""
        keras.utils.set_random_seed(self.config.seed)
        with self.strategy.scope():
            self.build()
            self.global_step = orbit.utils.create_global_step()

    def restore(self):
        """Restores the newest whole checkpoint, or starts from the beginning.

        Raises:
            RuntimeError: if the workers restored different steps.
        """
        directory = self.output / "checkpoints"
        self.checkpoints = RunCheckpoints(
            tf.train.Checkpoint(step=self.global_step, **self.tracked()),
            directory,
            self.memory_rows(self.memory, self.strategy, directory),
            self.strategy,
            self.config.checkpoint_interval,
            self.config.checkpoints_to_keep,
            self.config.checkpoint_time_seconds,
        )
        self._held.callback(self.checkpoints.close)
        self.restored = self.checkpoints.restore_or_initialize()
        check_together(
            self.strategy,
            int(self.global_step.numpy()),
            "the workers restored different steps, from {0} to {1}: some "
            "checkpoint or memory file is damaged for one of them. Move the "
            f"newest of {directory} away and start again.",
        )
        if self.restored is None:
            self.start()

    def report(self):
        """Prints what will be trained on what, and where it resumes."""
        if not self.shows_progress:
            return
        lines = self.describe()
        for damage in self.checkpoints.skipped:
            lines.append(f"skipped   damaged checkpoint {damage}")
        if self.restored:
            lines.append(f"resume    from {self.restored}")
        sys.stdout.write("".join(line + "\n" for line in lines))
        sys.stdout.flush()  # before the progress, which goes to stderr

    def loop(self):
        """Trains and evaluates to the last step, or until asked to stop.

        Returns:
            int, the exit status.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "stop", None)
            stop = Stop(self.strategy, time_left(self.config, self._begun))
            self.stop = stack.enter_context(stop)
            # Orbit prints a dict a loop; the progress line replaces it.
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            try:
                self._loop()
                self.stop.check()
            except PatienceExhausted:
                self.checkpoints.save(check_interval=False)
            except StopRequested:
                step = int(self.global_step.numpy())
                if step:  # before the first, other settings may be given
                    self.checkpoints.save(check_interval=False)
                sys.stderr.write(
                    f"stopped at step {step}; the same command goes on from "
                    "there\n"
                )
                return self.stop.exit_status
        return 0

    def check_stop(self):
        """Leaves an evaluation between two batches, when asked to stop.

        Raises:
            StopRequested: if this worker or another one was asked to stop.
        """
        if self.stop is not None:
            self.stop.check()

    def _loop(self):
        self.stop.check()  # the time may be over before the first step
        config, stop = self.config, self.stop.check
        step = int(self.global_step.numpy())
        log = self._held.enter_context(
            MetricsLog(
                self.output if self.is_chief else None,
                config,
                self.global_step,
                self.progress_text,
                not self.shows_progress,
            )
        )
        if self.evaluation_batches is None:
            if step < config.steps:
                self._controller([log.train, stop]).train(config.steps)
            return
        evaluations = Evaluations(
            log,
            self.strategy,
            config.steps,
            config.evaluation_interval,
            self.evaluation_batches,
            self.stop.interruptible,
        )
        if step >= config.steps and not evaluations.is_missing(step):
            return
        best = BestWeights(
            self.output,
            self.global_step,
            self.is_better,
            self.save_best,
            self.is_chief,
            self.patience_steps,
        )
        controller = self._controller(
            [log.train, stop],
            # Log last: an evaluation that is not logged is repeated.
            [stop, best, log.evaluate, best.check_patience, stop],
            self.evaluator(),
        )
        evaluations.evaluate_if_missing(controller)
        best.check_patience()  # which a run may have lost before it stopped
        evaluations.train_between(controller)

    def _controller(self, train_actions, eval_actions=None, evaluator=None):
        directory = self.output if self.is_chief else None
        trainer = self.trainer()
        trainer.stop = self.stop.flag
        trainer.results.note = NotFiniteSteps(
            self.output, self.rows_of_step, self.is_chief
        )
        return orbit.Controller(
            global_step=self.global_step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=self.strategy,
            steps_per_loop=self._steps_of_loop,
            checkpoint_manager=self.checkpoints,
            summary_interval=self.config.steps_per_loop,
            summary_dir=directory and str(directory / "train"),
            eval_summary_dir=directory and str(directory / "eval"),
            train_actions=train_actions,
            eval_actions=eval_actions,
        )

    def _steps_of_loop(self, step):
        """Steps to the end of a loop, wherever in it a run resumes."""
        if self.evaluation_batches is not None:
            step = step % self.config.evaluation_interval
        return self.config.steps_per_loop - step % self.config.steps_per_loop

    def write_model(self):
        """Writes `model.keras`, whole or not at all."""
        with written_whole(self.output / MODEL_FILE) as temporary:
            self.model.save(temporary)
