"""A fine-tuning run: its directory, its examples, its loop, its results.

What the command line `xlnet_tf.finetune` does, callable from Python with the
same names.
"""

import io
import logging
import os
import pathlib
import shutil
import sys
from contextlib import redirect_stdout

import keras
import orbit
import tensorflow as tf

from data_pipeline.features.batches import Batches
from data_pipeline.tasks import reading
from data_pipeline.tokenization.hugging_face import read_tokenizer
from xlnet_tf.training import finetuning_directory
from xlnet_tf.training import finetuning_outputs
from xlnet_tf.training import finetuning_progress
from xlnet_tf.training import finetuning_steps as finetuning
from xlnet_tf.training import progress as progress
from xlnet_tf.training.finetuning_kinds import make_kind
from xlnet_tf.training.results import read_results
from xlnet_tf.training.run_checkpoints import MemoryRows
from xlnet_tf.training.run_checkpoints import RunCheckpoints
from xlnet_tf.training.run_checkpoints import is_chief
from xlnet_tf.training.strategy import describe
from xlnet_tf.training.strategy import largest_and_smallest
from xlnet_tf.weights.preset import read_config


class Run:
    """One run from its options to its results; use it as a context.

    Args:
        options: object with the attributes of the command line.
        strategy: tf.distribute.Strategy.
        data: TaskData of `reading`.
        config: FinetuningConfig, not yet resolved.

    Raises:
        ValueError, FileNotFoundError, RuntimeError: if options, examples,
            directory and machine do not fit together.
    """

    def __init__(self, options, strategy, data, config):
        # Orbit and TensorFlow say there what is said better here.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.options = options
        self.strategy = strategy
        self.data = data
        self.is_chief = is_chief(strategy)
        self.output = pathlib.Path(options.output)
        self.tokenizer = read_tokenizer(options.preset)
        self.kind = make_kind(data.task, config, data.labels, self.tokenizer)
        self.rows = self.kind.encode(data.train, True, self.is_chief)
        steps_per_epoch = max(1, len(self.rows) // config.batch_size)
        self.config = config.resolve(steps_per_epoch)
        self.kind.config = self.config
        self.config.replica_batch_size(strategy.num_replicas_in_sync)
        finetuning_directory.enter(
            self.output,
            data,
            self.config,
            options.preset,
            options.random_start,
            self.is_chief,
        )
        keras.utils.set_random_seed(self.config.seed)
        with strategy.scope():
            self.model = self._make_model()
            self.optimizer = finetuning.make_optimizer(self.model, self.config)
            self.global_step = orbit.utils.create_global_step()
        directory = self.output / "checkpoints"
        self.checkpoints = RunCheckpoints(
            tf.train.Checkpoint(
                model=self.model,
                optimizer=self.optimizer,
                step=self.global_step,
            ),
            directory,
            MemoryRows(None, strategy, directory),
            self.config.checkpoint_interval,
            self.config.checkpoints_to_keep,
            self.is_chief,
        )
        self.checkpoints.restore_or_initialize()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.checkpoints.close()

    def announce(self, write):
        """Says what the run will do, before it costs anything."""
        if not self.is_chief:
            return
        config, data = self.config, self.data
        batches = self._batches(self.rows)
        labels = f", {len(data.labels)} classes" if data.labels else ""
        held_out = ", ".join(
            f"{len(examples):,} {name}" for name, examples in data.held_out()
        )
        start = "random weights" if self.options.random_start else "weights"
        for line in (
            f"task      {data.task.name}, {data.task.kind}{labels}",
            f"examples  {len(data.train):,} to train on, {held_out}",
            *self.kind.notes(),
            f"model     {self.model.count_params():,} parameters, {start} of "
            f"{self.options.preset}, {config.precision}",
            f"strategy  {describe(self.strategy)}",
            f"steps     {config.steps} of {config.batch_size} rows = "
            f"{config.steps * config.batch_size / len(self.rows):.1f} passes, "
            f"evaluated every {config.evaluation_interval}; "
            f"{batches.padding():.0%} of the tokens are padding",
        ):
            write(line + "\n")

    def train(self):
        """Trains to the last step, or until it is asked to stop.

        Returns:
            int, 0 when done, 130 or 143 when stopped by a signal.
        """
        with progress.StopRequest(self.strategy) as stop:
            # Orbit prints a dict a loop; the progress line replaces it.
            with redirect_stdout(io.StringIO()):
                try:
                    if not finetuning_directory.is_done(self.output):
                        self._loop(stop)
                except finetuning_progress.NoBetter:
                    self.checkpoints.save(check_interval=False)
                except progress.Stopped:
                    self.checkpoints.save(check_interval=False)
                    sys.stderr.write(
                        f"stopped at step {int(self.global_step.numpy())}; "
                        "the same command goes on from there\n"
                    )
                    return stop.exit_status
                except tf.errors.ResourceExhaustedError as error:
                    raise RuntimeError(
                        "out of memory: take a smaller --batch-size or "
                        "--sequence-length, or more "
                        "gradient_accumulation_steps in --training."
                    ) from error
        self._take_best()
        self._finish()
        return 0

    def _make_model(self):
        arguments = self.kind.model_arguments()
        for name in ("dropout", "attention_dropout"):
            value = getattr(self.config, name)
            if value is not None:
                arguments[name] = value
        if "memory_length" not in arguments:
            if read_config(self.options.preset).memory_length:
                arguments["memory_length"] = 0  # rows have nothing before them
        model = self.kind.model_class.from_preset(
            self.options.preset,
            load_weights=not self.options.random_start,
            dtype=self.config.policy,
            **arguments,
        )
        model.backbone.rematerialize = self.config.rematerialize
        model.backbone.scan_layers = self.config.scan_layers
        if model.preprocessor is not None:
            # So that raw strings are read later as the examples are here.
            model.preprocessor = model.preprocessor.with_settings(
                **self.kind.preprocessor_settings()
            )
        return model

    def _batches(self, rows):
        return Batches(
            rows,
            self.config.batch_size,
            self.kind.lengths()
            if not tf.config.list_logical_devices("TPU")
            # One shape, for a TPU compiles for minutes.
            else self.kind.lengths()[-1:],
            seed=self.config.seed,
        )

    def evaluator(self, splits):
        """An evaluator of named lists of examples.

        Args:
            splits: iterable of (str, list of examples).

        Returns:
            FinetuningEvaluator.
        """
        ready = {}
        for name, examples in splits:
            rows = self.kind.encode(examples, False, self.is_chief)
            dataset = finetuning.distribute(
                self._batches(rows), self.config, self.strategy
            )
            ready[name] = (examples, rows, dataset)
        return finetuning.FinetuningEvaluator(
            self.model, self.kind, ready, self.strategy
        )

    def _loop(self, stop):
        config, step = self.config, int(self.global_step.numpy())
        log = finetuning_progress.Log(
            self.output if self.is_chief else None,
            config.steps,
            self.global_step,
        )
        evaluations = progress.Evaluations(
            log, self.strategy, config.steps, config.evaluation_interval
        )
        if step < config.steps or evaluations.is_missing(step):
            best = finetuning_progress.KeepBest(self)
            controller = self._controller(stop, log, best)
            evaluations.make_up(controller)
            best.check_patience()  # which may have ended before a stop
            evaluations.train_between(controller)

    def _controller(self, stop, log, best):
        config = self.config
        trainer = finetuning.FinetuningTrainer(
            self.model,
            self.kind,
            self.optimizer,
            finetuning.distribute(
                self._batches(self.rows),
                config,
                self.strategy,
                start_step=int(self.global_step.numpy()),
            ),
            config,
            self.strategy,
            self.global_step,
        )
        self._evaluator = self.evaluator(self.data.held_out())
        return orbit.Controller(
            global_step=self.global_step,
            trainer=trainer,
            evaluator=self._evaluator,
            strategy=self.strategy,
            steps_per_loop=config.steps_per_loop,
            checkpoint_manager=self.checkpoints,
            summary_interval=config.steps_per_loop,
            summary_dir=str(self.output / "train") if self.is_chief else None,
            eval_summary_dir=(
                str(self.output / "eval") if self.is_chief else None
            ),
            train_actions=[log.train, stop],
            eval_actions=[best, log.evaluate, best.check_patience, stop],
        )

    def save(self, directory):
        """Writes a preset of the model as it is now."""
        if self.is_chief:
            self.model.save_to_preset(directory, tokenizer=self.tokenizer)

    def _take_best(self):
        """Gives the model the weights of its best evaluation."""
        # The chief may still be writing them.
        largest_and_smallest(self.strategy, 0)
        best = self.output / finetuning_progress.BEST
        if not best.is_dir():
            return
        source = self.kind.model_class.from_preset(best, preprocessor=None)
        for variable, value in zip(
            self.model.weights, source.weights, strict=True
        ):
            variable.assign(value)

    def _finish(self):
        """Scores the best weights; writes results, reports and the model."""
        if finetuning_directory.is_done(self.output):
            return
        evaluator = self.evaluator(self.data.held_out())
        metrics, first = {}, None
        for name, examples in self.data.held_out():
            rows, outputs = evaluator.collect(name)
            found = self.kind.metrics(examples, rows, outputs)
            suffix = f"_{name}" if metrics else ""
            metrics |= {f"{key}{suffix}": x for key, x in found.items()}
            first = first or (examples, rows, outputs)
        if not self.is_chief:
            return
        temporary = self.output / ".model.keras"
        self.model.save(temporary)
        os.replace(temporary, self.output / "model.keras")
        finetuning_outputs.write_all(self, metrics, *first)
        shutil.rmtree(self.output / "checkpoints", ignore_errors=True)

    def results(self):
        """What the run reached; see `finetuning_seeds.read_results`."""
        return read_results(self.output)

    def predict(self, path):
        """Predicts a file of examples.

        Args:
            path: str, a file in the task's format; labels may be missing.

        Returns:
            path of the JSON lines.
        """
        # The chief may still be writing the results.
        largest_and_smallest(self.strategy, 0)
        self._take_best()
        self.kind.restore(self.results().get("details"))
        examples = reading.read_unlabelled(
            self.data.task, path, self.options.columns
        )
        rows, outputs = self.evaluator([("", examples)]).collect("")
        file = self.output / finetuning_outputs.PREDICTIONS_FILE
        if self.is_chief:
            finetuning_outputs.write_predictions(
                file, self.kind.predictions(examples, rows, outputs)
            )
        return file


def one_run(options, strategy, data, config):
    """Trains, and predicts where asked to.

    Args:
        options, strategy, data, config: see `Run`.

    Returns:
        (int, the exit status; dict of the results, or None if it was stopped).
    """
    with Run(options, strategy, data, config) as run:
        run.announce(sys.stdout.write)
        sys.stdout.flush()  # before the progress, which goes to stderr
        status = run.train()
        if status:
            return status, None
        # All workers predict together; one of them writes and tells.
        file = options.predict and run.predict(options.predict)
        if not run.is_chief:
            return 0, None
        results = run.results()
        values = ", ".join(
            f"{name} {value:.4g}" for name, value in results["metrics"].items()
        )
        sys.stdout.write(f"{results['task']}: {values}\n")
        if file:
            sys.stdout.write(f"wrote {file}\n")
    return 0, results
