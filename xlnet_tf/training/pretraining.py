"""A pretraining run: its directory, its arithmetic, its loop.

What the command line `xlnet_tf.train` does, callable from Python with the same
names.
"""

import dataclasses
import errno
import hashlib
import io
import json
import logging
import os
import pathlib
import shutil
import sys
from contextlib import redirect_stdout

import orbit
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from data_pipeline.tokenization.tokenizer import Tokenizer
from xlnet_tf.files import digest_of_weights
from xlnet_tf.files import write_bytes
from xlnet_tf.training import pretraining_steps as training_steps
from xlnet_tf.training import progress as progress
from xlnet_tf.training.run_checkpoints import MemoryRows
from xlnet_tf.training.run_checkpoints import RunCheckpoints
from xlnet_tf.training.run_checkpoints import has_steps
from xlnet_tf.training.run_checkpoints import is_chief
from xlnet_tf.training.strategy import check_together
from xlnet_tf.training.strategy import make_strategy
from xlnet_tf.training.training_options import check_same_run
from xlnet_tf.training.training_options import check_same_text
from xlnet_tf.training.training_options import head_arguments
from xlnet_tf.training.training_options import model_config
from xlnet_tf.training.training_options import start_from
from xlnet_tf.training.training_options import training_config

RUN_FILE = "run.json"


class Run:
    """One run from its options to its results; use it as a context.

    Args:
        options: object with the attributes of the command line.

    Raises:
        ValueError, FileNotFoundError, RuntimeError: if options, records, the
            directory and the machine do not fit together.
    """

    def __init__(self, options):
        # Orbit and TensorFlow say there what is said better here.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.options = options
        self.training = training_config(options)
        self.strategy = make_strategy(options.strategy, options.tpu)
        self.training.replica_batch_size(self.strategy.num_replicas_in_sync)
        self.is_chief = is_chief(self.strategy)
        self.data = PretrainingData(
            options.records,
            self.training.batch_size,
            seed=self.training.seed,
            skip_corrupt=options.skip_corrupt,
        )
        self.config = model_config(options, self.data.manifest)
        self.output = pathlib.Path(options.output)
        self._enter_directory()
        tf.random.set_seed(self.training.seed)
        self.model, self.optimizer, self.memory = training_steps.build(
            self.config,
            self.training,
            self.strategy,
            head_arguments(options.preset),
        )
        with self.strategy.scope():
            self.global_step = orbit.utils.create_global_step()
        self.checkpoints = self._checkpoints()
        self.restored = self.checkpoints.restore_or_initialize()
        check_together(
            self.strategy,
            int(self.global_step.numpy()),
            "the workers restored different steps, from {0} to {1}: some "
            "checkpoint or memory file is damaged for one of them. Move the "
            f"newest of {self.output / 'checkpoints'} away and start again.",
        )
        if self.restored is None and options.preset:
            start_from(self.model, options.preset, self.data.manifest)
        self.evaluation_data = self._evaluation_data()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.checkpoints.close()

    def announce(self, write):
        """Says the arithmetic of the run aloud, before it costs anything."""
        if self.is_chief:
            for line in progress.arithmetic(self):
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
                    self._loop(stop)
                except progress.Stopped:
                    self.checkpoints.save(check_interval=False)
                    sys.stderr.write(
                        f"stopped at step {int(self.global_step.numpy())}; "
                        "the same command goes on from there\n"
                    )
                    return stop.exit_status
                except tf.errors.OpError as error:
                    raise self._explained(error) from error
        if self.is_chief:
            self._finish()
        return 0

    def _explained(self, error):
        """What an error of TensorFlow's means for a user, as an error."""
        if isinstance(error, tf.errors.DataLossError):
            for data in filter(None, (self.data, self.evaluation_data)):
                data.explain_data_loss()
        reason = str(error).strip().splitlines()[0]
        if "No space left" in str(error):
            return OSError(errno.ENOSPC, "No space left", str(self.output))
        if isinstance(
            error,
            (tf.errors.UnavailableError, tf.errors.DeadlineExceededError),
        ):
            return RuntimeError(
                "a worker stopped answering; start all of them again and they "
                f"go on from the last checkpoint. TensorFlow says: {reason}"
            )
        if isinstance(error, tf.errors.ResourceExhaustedError):
            return RuntimeError(
                "out of memory: take a smaller --batch-size, or more "
                "gradient_accumulation_steps in --training. TensorFlow says: "
                f"{reason}"
            )
        return RuntimeError(reason)

    def _loop(self, stop):
        step, steps = int(self.global_step.numpy()), self.training.steps
        log = progress.MetricsLog(
            self.output if self.is_chief else None, steps, self.global_step
        )
        if self.evaluation_data is None:
            if step < steps:
                self._controller(stop, log).train(steps)
            return
        evaluations = progress.Evaluations(
            log,
            self.strategy,
            steps,
            self.training.evaluation_interval,
            self._evaluation_steps(),
        )
        if step < steps or evaluations.is_missing(step):
            evaluations.train_between(self._controller(stop, log))

    def _enter_directory(self):
        """Makes the directory, or checks that it holds the same run."""
        manifest = self.data.manifest
        now = {
            "model": self.config.to_dict(),
            "training": self.training.to_dict(),
            "records": {
                "records": manifest.num_records("train"),
                "sequence_length": manifest.sequence_length,
                "tokenizer": manifest.tokenizer["sha256"],
                "shards": _digest(manifest),
            },
            "preset_weights": (
                digest_of_weights(self.options.preset)
                if self.options.preset
                else None
            ),
        }
        file = self.output / RUN_FILE
        # Without a step there is nothing to lose by other settings.
        has_progress = (self.output / "model.keras").is_file() or has_steps(
            self.output / "checkpoints"
        )
        if file.is_file() and has_progress:
            try:
                before = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{file} is not a JSON file.") from error
            check_same_run(before, now, self.output)
        if self.is_chief:
            self.output.mkdir(parents=True, exist_ok=True)
            write_bytes(file, (json.dumps(now, indent=2) + "\n").encode())

    def _checkpoints(self):
        directory = self.output / "checkpoints"
        return RunCheckpoints(
            tf.train.Checkpoint(
                model=self.model,
                optimizer=self.optimizer,
                step=self.global_step,
            ),
            directory,
            MemoryRows(self.memory, self.strategy, directory),
            self.training.checkpoint_interval,
            self.training.checkpoints_to_keep,
            self.is_chief,
        )

    def _evaluation_data(self):
        options, training = self.options, self.training
        directory = options.eval_records or options.records
        split = "train" if options.eval_records else "validation"
        if not options.eval_records:
            if not self.data.manifest.num_records(split):
                return None
        replicas = self.strategy.num_replicas_in_sync
        probe = PretrainingData(
            directory,
            batch_size=1,
            split=split,
            skip_corrupt=options.skip_corrupt,
        )
        check_same_text(probe.manifest, self.data.manifest, directory)
        if probe.num_records < replicas:
            raise ValueError(
                f"{directory} holds {probe.num_records} record(s) to evaluate "
                f"on, and there are {replicas} replicas, of which each needs "
                "one. Build records with a larger --validation-fraction, or "
                "give others with --eval-records."
            )
        # A small held-out split makes a smaller batch.
        rows = min(training.batch_size, probe.num_records)
        return PretrainingData(
            directory,
            rows - rows % replicas,
            split=split,
            seed=training.seed,
            skip_corrupt=options.skip_corrupt,
        )

    def _evaluation_steps(self):
        return min(
            self.training.evaluation_steps,
            self.evaluation_data.steps_per_epoch,
        )

    def _evaluator(self):
        if self.evaluation_data is None:
            return None
        settings = dataclasses.replace(
            self.training,
            batch_size=self.evaluation_data.batch_size,
            gradient_accumulation_steps=1,
        )
        memory = training_steps.make_memory(self.model, settings, self.strategy)
        return training_steps.PretrainingEvaluator(
            self.model,
            memory,
            training_steps.distribute(
                self.evaluation_data, settings, self.strategy
            ),
            self.strategy,
        )

    def _controller(self, stop, log):
        training = self.training
        trainer = training_steps.PretrainingTrainer(
            self.model,
            self.optimizer,
            self.memory,
            training_steps.distribute(
                self.data,
                training,
                self.strategy,
                start_step=int(self.global_step.numpy()),
            ),
            training,
            self.strategy,
            self.global_step,
        )
        best = orbit.actions.NewBestMetric(
            "loss",
            higher_is_better=False,
            filename=str(self.output / "best.json"),
            write_metric=self.is_chief,
        )

        def keep_best(output):
            # The weights first: after a kill in between they are kept again.
            if best.test(output):
                self._keep("best")
                best.commit(output)

        return orbit.Controller(
            global_step=self.global_step,
            trainer=trainer,
            evaluator=self._evaluator(),
            strategy=self.strategy,
            steps_per_loop=training.steps_per_loop,
            checkpoint_manager=self.checkpoints,
            summary_interval=training.steps_per_loop,
            summary_dir=str(self.output / "train") if self.is_chief else None,
            eval_summary_dir=(
                str(self.output / "eval") if self.is_chief else None
            ),
            train_actions=[log.train, stop],
            # What is not logged is evaluated again.
            eval_actions=[keep_best, log.evaluate, stop],
        )

    def _finish(self):
        temporary = self.output / ".model.keras"
        self.model.save(temporary)
        os.replace(temporary, self.output / "model.keras")
        shutil.copyfile(self._vocabulary(), self.output / "spiece.model")
        self._keep("preset")
        sys.stdout.write(f"wrote {self.output / 'model.keras'}\n")

    def _keep(self, name):
        """Writes a preset and, where asked for, a SavedModel of this step."""
        if not self.is_chief:
            return
        lowercase = self.data.manifest.tokenizer["lowercase"]
        tokenizer = Tokenizer(self._vocabulary(), lowercase=lowercase)
        self.model.save_to_preset(self.output / name, tokenizer=tokenizer)
        if self.options.export:
            from saved_models.export import export_model

            version = str(int(self.global_step.numpy()))
            export_model(
                self.model,
                tokenizer,
                pathlib.Path(self.options.export) / version,
                sequence_length=self.data.manifest.sequence_length,
                overwrite=True,
            )

    def _vocabulary(self):
        return pathlib.Path(self.options.records) / "spiece.model"


def _digest(manifest):
    """One hash of all training shards, in order."""
    digest = hashlib.sha256()
    for shard in manifest.splits["train"]:
        digest.update(shard.sha256.encode())
    return digest.hexdigest()
