"""What a run says while it runs, and how it is stopped."""

import json
import os
import pathlib
import signal
import sys
import time

from xlnet_tf.files import write_bytes
from xlnet_tf.training.strategy import describe
from xlnet_tf.training.strategy import largest_and_smallest


class Stopped(BaseException):
    """Raised between two loops when the run was asked to stop.

    Not an `Exception`, so that nothing on the way takes it for an error.
    """


class StopRequest:
    """Notes SIGTERM and Ctrl-C, and stops the run between two loops.

    A second signal interrupts at once. With several workers all stop at the
    same step when any of them was asked to, for a checkpoint is written
    together.

    Args:
        strategy: tf.distribute.Strategy.
    """

    def __init__(self, strategy):
        self._strategy = strategy
        self._received = None
        self._handlers = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._handlers[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread, as in a notebook
                break
        return self

    def __exit__(self, *exception):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self._received is not None:
            raise KeyboardInterrupt
        self._received = number
        # Not sys.stderr, which may be in the middle of a line of its own.
        os.write(
            2,
            b"stopping after this loop, with a checkpoint; once more to stop "
            b"at once\n",
        )

    def __call__(self, output):
        """Orbit's action after each loop."""
        if self._anybody():
            raise Stopped

    def _anybody(self):
        asked = self._received is not None
        return largest_and_smallest(self._strategy, asked)[0] > 0

    @property
    def exit_status(self):
        """int, 143 after SIGTERM (here or at a peer), 130 after Ctrl-C."""
        return 130 if self._received == signal.SIGINT else 143


class MetricsLog:
    """Writes a progress line and a line of `metrics.jsonl` for each loop.

    Args:
        directory: path, or None for a worker that keeps silent.
        total_steps: int.
        global_step: tf.Variable.
    """

    def __init__(self, directory, total_steps, global_step):
        self._file = directory and pathlib.Path(directory) / "metrics.jsonl"
        self.total_steps = total_steps
        self._global_step = global_step
        self._begun = (time.monotonic(), int(global_step.numpy()))
        if self._file:
            self._forget_after(int(global_step.numpy()))

    def has_evaluation(self, step):
        """Whether the evaluation of a step was written; silent ones say so."""
        return not self._file or any(
            (line.get("kind"), line["step"]) == ("eval", step)
            for line in self._lines()
        )

    def _lines(self):
        """What was written, list of dict; a line cut short by a kill is not."""
        lines = []
        if self._file.is_file():
            for text in self._file.read_text(encoding="utf-8").splitlines():
                try:
                    line = json.loads(text)
                    lines.append({**line, "step": int(line["step"])})
                except (ValueError, KeyError, TypeError):
                    continue
        return lines

    def _forget_after(self, step):
        """Drops what a run wrote after the checkpoint it resumes from."""
        if not self._file.is_file():
            return
        kept = [line for line in self._lines() if line["step"] <= step]
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
        scalars = {name: float(value) for name, value in output.items()}
        with self._file.open("a", encoding="utf-8") as handle:
            line = {"kind": kind, "step": step, **scalars}
            handle.write(json.dumps(line) + "\n")
        sys.stderr.write(self.text(kind, step, scalars) + "\n")

    def text(self, kind, step, scalars):
        """The progress line of a loop ("train") or an evaluation ("eval")."""
        text = (
            f"step {step}/{self.total_steps}  "
            f"{'held out  ' if kind == 'eval' else ''}"
            f"loss {scalars['loss']:.3f}  "
            f"bits/token {scalars['bits_per_token']:.3f}  "
            f"accuracy {scalars['accuracy']:.3f}"
        )
        if "next_sentence_accuracy" in scalars:
            text += f"  next sentence {scalars['next_sentence_accuracy']:.3f}"
        if kind == "train":
            text += (
                f"  gradient {scalars['gradient_norm']:.2f}  "
                f"rate {scalars['learning_rate']:.2e}  "
                f"{scalars['tokens_per_second']:,.0f} tokens/s  "
                f"{self.time_left(step)} left"
            )
        return text

    def time_left(self, step):
        """How long the rest takes at the rate so far."""
        begun, first_step = self._begun
        a_step = (time.monotonic() - begun) / max(step - first_step, 1)
        return duration(a_step * (self.total_steps - step))


class Evaluations:
    """Evaluates a run at every multiple of an interval, and at its end.

    Where that is follows from the step alone, not from where the run went on,
    and an evaluation that it was stopped before is made up for: the run learns
    and keeps what one that never stopped does.

    Args:
        log: MetricsLog, which knows the evaluations that were made.
        strategy: tf.distribute.Strategy.
        total_steps: int.
        interval: int, steps.
        batches: int, those of an evaluation, or -1 (default) for all.
    """

    def __init__(self, log, strategy, total_steps, interval, batches=-1):
        self._log = log
        self._strategy = strategy
        self._total_steps = total_steps
        self._interval = interval
        self._batches = batches

    def is_missing(self, step):
        """Whether the evaluation of this step is due and was not made.

        All workers ask together; the chief has the answer.
        """
        is_due = step and not (
            step % self._interval and step < self._total_steps
        )
        missing = bool(is_due and not self._log.has_evaluation(step))
        return largest_and_smallest(self._strategy, missing)[0] > 0

    def make_up(self, controller):
        """Makes the evaluation of the present step if it is missing.

        Args:
            controller: orbit.Controller with an evaluator, whose actions log
                an evaluation last.
        """
        if self.is_missing(int(controller.global_step.numpy())):
            controller.evaluate(steps=self._batches)

    def train_between(self, controller):
        """Trains to the last step.

        Args:
            controller: orbit.Controller with a trainer and an evaluator.
        """
        self.make_up(controller)
        step = int(controller.global_step.numpy())
        while step < self._total_steps:
            step = min(
                step - step % self._interval + self._interval,
                self._total_steps,
            )
            controller.train(step, checkpoint_at_completion=False)
            controller.evaluate(steps=self._batches)
        controller.train(self._total_steps)  # no step is left: saves


def duration(seconds):
    """Seconds as people say them: 50 s, 12 min, 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def arithmetic(run):
    """Lines that say what a run will do and need.

    Args:
        run: Run, built and not yet trained.

    Returns:
        list of str.
    """
    config, training, manifest = run.config, run.training, run.data.manifest
    replicas = run.strategy.num_replicas_in_sync
    rows = training.replica_batch_size(replicas)
    parts = training.gradient_accumulation_steps
    tokens = training.batch_size * manifest.sequence_length
    parameters = run.model.count_params()
    held_out = run.evaluation_data
    lines = [
        f"model     XLNet of {config.num_layers} layers x "
        f"{config.hidden_dim}, {config.num_heads} heads, "
        f"{config.vocabulary_size:,} tokens: {parameters:,} parameters, "
        f"{training.precision}",
        f"strategy  {describe(run.strategy)}",
        f"batch     {training.batch_size} sequences = {replicas} replica(s) x "
        f"{parts} part(s) x {rows // parts}; {tokens:,} tokens a step",
        f"data      {run.data.num_records:,} sequences of "
        f"{manifest.sequence_length} tokens, {manifest.num_predict} of them "
        f"predicted; {run.data.steps_per_epoch:,} steps an epoch, "
        f"{training.steps:,} steps are "
        f"{training.steps / run.data.steps_per_epoch:.1f} epochs",
        f"memory    {config.memory_length} tokens remembered, "
        f"{config.reuse_length} reused; about "
        f"{expected_bytes(run.model, training, manifest, rows) / 1e9:.1f} GB "
        "a replica expected",
        "held out  "
        + (
            f"{held_out.num_records:,} sequences, batches of "
            f"{held_out.batch_size}"
            if held_out
            else "none (build_records --validation-fraction, or --eval-records)"
        ),
    ]
    for data in filter(None, (run.data, held_out)):
        if data.skipped:
            lines.append(
                f"skipped   {len(data.skipped)} damaged record(s), the first: "
                f"{data.skipped[0]}"
            )
    for damage in run.checkpoints.skipped:
        lines.append(f"skipped   damaged checkpoint {damage}")
    if run.restored:
        lines.append(f"resume    from {run.restored}")
    return lines


def expected_bytes(model, training, manifest, rows):
    """A rough count of what a replica holds in memory during a step.

    Weights, gradients and two moments in float32; for every layer the
    activations kept for the backward pass, or its inputs alone where it is
    computed again; for one layer at a time the scores and probabilities of
    attention, of which a layer keeps one tensor, or those of some heads alone
    where there are very many; logits and their gradient.

    Args:
        model: XLNetPretrainer.
        training: TrainingConfig.
        manifest: manifest of the records.
        rows: int, rows of a replica in one step.

    Returns:
        float, bytes.
    """
    rows //= training.gradient_accumulation_steps
    targets = manifest.num_predict
    layers = model.backbone.expected_bytes(
        rows, manifest.sequence_length, targets
    )
    logits = 3 * rows * targets * model.config.vocabulary_size * 4
    return 16 * model.count_params() + layers + logits
