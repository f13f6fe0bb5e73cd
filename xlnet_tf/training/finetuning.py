"""A fine-tuning run: its examples, its task, its results, its predictions."""

import dataclasses
import sys

import keras
import tensorflow as tf

from data_pipeline.command_line import warnings_in_a_line
from data_pipeline.features.batches import Batches
from data_pipeline.tasks import reading
from data_pipeline.tasks.examples import digest_of_examples
from data_pipeline.tokenization.hugging_face import read_tokenizer
from xlnet_tf.files import read_json
from xlnet_tf.files import remove
from xlnet_tf.files.checksums import verify_checksums
from xlnet_tf.files.models import RESULTS_FILE
from xlnet_tf.files.models import RUN_FILE
from xlnet_tf.preprocessing.fitting import check_positions
from xlnet_tf.tasks import task_class
from xlnet_tf.tasks.metrics import is_better
from xlnet_tf.training.config import WITHOUT_INFLUENCE
from xlnet_tf.training.config import FinetuningConfig
from xlnet_tf.training.finetuning_step import FinetuningEvaluator
from xlnet_tf.training.finetuning_step import FinetuningTrainer
from xlnet_tf.training.finetuning_step import balance_classes
from xlnet_tf.training.finetuning_step import distribute_examples
from xlnet_tf.training.finetuning_step import padded_lengths
from xlnet_tf.training.results.files import ending
from xlnet_tf.training.results.files import write_all
from xlnet_tf.training.results.report import PREDICTIONS_FILE
from xlnet_tf.training.results.report import prediction_rows
from xlnet_tf.training.results.report import write_predictions
from xlnet_tf.training.results.summary import read_results
from xlnet_tf.training.results.summary import written
from xlnet_tf.training.runs.run import Run
from xlnet_tf.training.strategy import describe
from xlnet_tf.training.strategy import wait_for_peers
from xlnet_tf.training.update import make_optimizer
from xlnet_tf.weights import lora
from xlnet_tf.weights.adapters import ADAPTERS_FILE
from xlnet_tf.weights.preset import read_config
from xlnet_tf.weights.tensor_files import digest_of_weights

BEST = "best"


class FinetuningRun(Run):
    """A fine-tuning run from its options to its results; use it as a context.

    Args:
        options: object with the attributes of the command line.
        config: FinetuningConfig, not yet resolved.
        strategy: tf.distribute.Strategy.
        data: TaskData of `data_pipeline.tasks`.
    """

    result_file = RESULTS_FILE
    checked_files = (*Run.checked_files, result_file)
    fixed_settings = tuple(
        field.name
        for field in dataclasses.fields(FinetuningConfig)
        if field.name not in WITHOUT_INFLUENCE
    )
    differences = {
        "training_examples": "other training examples",
        "held_out_examples": "other examples to evaluate on",
        "preset_weights": "other weights in the preset",
    }
    smaller = "--batch-size or --sequence-length"

    def __init__(self, options, config, strategy, data):
        super().__init__(options, config, strategy)
        self.data = data
        self._held_out_evaluator = None

    @property
    def patience_steps(self):
        patience = self.config.patience
        return patience and patience * self.config.evaluation_interval

    def read_data(self):
        data, config = self.data, self.config
        self.tokenizer = read_tokenizer(self.options.preset)
        self.task_class = task_class(data.task.kind)
        self.arguments = self.task_class.arguments_for(
            data.task, config, data.labels
        )
        # Of the preset, since the rows are made before the model.
        preprocessor_cls = self.task_class.preprocessor_cls
        self.earlier_settings = preprocessor_cls.earlier_settings
        config = self._as_it_began(config)
        model_config = read_config(self.options.preset)
        self.preprocessor = preprocessor_cls.from_preset(
            self.options.preset,
            layout=model_config.layout,
            **self.task_class.preprocessor_settings(data.task, config),
        )
        config.check_model(model_config)
        check_positions(model_config, self.preprocessor.sequence_length)
        self.rows = self._encode(data.train, True)
        if config.class_weights == "balanced":
            balance_classes(self.rows, data.labels)
        config, self._rate_notes = config.for_model(
            data.task.name, model_config
        )
        steps_per_epoch = max(1, len(self.rows) // config.batch_size)
        self.config = config.resolve(steps_per_epoch)

    def _as_it_began(self, config):
        """The config with what a run to resume decides where none is given."""
        file = self.output / RUN_FILE
        if not (file.is_file() and self.has_progress()):
            return config
        verify_checksums(self.output, [RUN_FILE])
        kept = read_json(file)["training"]
        asked = config.to_dict()
        began = {
            name: kept.get(name, earlier)
            for name, earlier in self.earlier_settings.items()
            if asked[name] is None
        }
        return dataclasses.replace(config, **began)

    def _encode(self, examples, training):
        return self.preprocessor.encode(
            examples,
            self.data.labels,
            training=training,
            progress=self.shows_progress,
            **self.task_class.encoding_arguments(self.data.task, self.config),
        )

    def identity(self):
        data, options, preset = self.data, self.options, self.options.preset
        weights = None if options.random_start else digest_of_weights(preset)
        return {
            "task": data.task.name,
            "labels": data.labels,
            "examples": len(data.train),
            "training_examples": digest_of_examples({"train": data.train}),
            "held_out_examples": digest_of_examples(data.evaluation),
            "held_out_by_class": data.by_class,
            "held_out_seed": data.seed,
            "preset_weights": weights,
            "random_start": options.random_start,
            "training": self.config.to_dict(),
            # Weights, however their path is spelled, are known by their digest.
            **({} if weights else {"preset": str(preset)}),
        }

    def build(self):
        config = self.config
        keras.utils.set_random_seed(config.seed)
        with self.strategy.scope():
            self.model = self._make_model()
            self.optimizer = make_optimizer(
                self.model,
                config,
                layer_decay=config.layer_decay,
                layer_decay_on=config.layer_decay_on,
                num_layers=self.model.config.num_layers,
            )

    def _make_model(self):
        arguments = dict(self.arguments)
        for name in ("dropout", "attention_dropout"):
            value = getattr(self.config, name)
            if value is not None:
                arguments[name] = value
        if "memory_length" not in arguments:
            if read_config(self.options.preset).memory_length:
                # Rows are read alone.
                arguments["memory_length"] = 0
        model = self.task_class.from_preset(
            self.options.preset,
            load_weights=not self.options.random_start,
            dtype=self.config.policy,
            rematerialize=self.config.rematerialize,
            attention_kernel=self.config.attention_kernel,
            **arguments,
        )
        rank, alpha = self.config.lora_rank, self.config.lora_alpha
        if rank:
            model.enable_lora(rank, alpha=alpha)
        # Raw strings are later preprocessed as the examples are here.
        model.preprocessor = self.preprocessor
        return model

    def _batches(self, rows):
        lengths = padded_lengths(
            self.preprocessor.sequence_length, self.model.segment_length
        )
        if tf.config.list_logical_devices("TPU"):
            lengths = lengths[-1:]  # a TPU compiles each shape for minutes
        return Batches(
            rows, self.config.batch_size, lengths, seed=self.config.seed
        )

    def restore(self):
        if self._is_done() and self.is_chief:
            remove(self.output / "checkpoints")  # a kill came before it
        wait_for_peers(self.strategy)
        super().restore()

    def trainer(self):
        return FinetuningTrainer(
            self.model,
            self.optimizer,
            distribute_examples(
                self._batches(self.rows),
                self.config,
                self.strategy,
                start_step=int(self.global_step.numpy()),
            ),
            self.config,
            self.strategy,
            self.global_step,
        )

    def rows_of_step(self, step):
        rows = []
        for row in self._batches(self.rows).rows(step - 1):
            indices = self.rows.examples_of(row)
            found = [self.data.train[index] for index in indices]
            ids, where = [x[0] for x in found], [x.where for x in found]
            rows.append({"examples": indices, "ids": ids, "where": where})
        return rows

    def evaluator(self):
        if self._held_out_evaluator is None:
            self._held_out_evaluator = self._evaluator(self.data.evaluation)
        return self._held_out_evaluator

    def _evaluator(self, splits):
        """FinetuningEvaluator of a dict of str to a list of examples."""
        ready = {}
        for name, examples in splits.items():
            rows = self._encode(examples, False)
            batches = self._batches(rows)
            dataset = distribute_examples(batches, self.config, self.strategy)
            ready[name] = (examples, rows, dataset)
        return FinetuningEvaluator(
            self.model,
            self.data.task,
            self.data.labels,
            ready,
            self.strategy,
            self.check_stop,
            self.shows_progress,
        )

    def describe(self):
        config, data, preset = self.config, self.data, self.options.preset
        held_out = ", ".join(
            f"{len(x):,} {name}" for name, x in data.evaluation.items()
        )
        start = "random weights" if self.options.random_start else "weights"
        epochs = f"{config.steps * config.batch_size / len(self.rows):.1f}"
        padding = self._batches(self.rows).padding()
        return [
            f"task      {data.title()}",
            f"examples  {len(data.train):,} to train on, {held_out}",
            *data.notes(),
            *self.rows.notes,
            f"model     {self.model.count_params():,} parameters, {start} of "
            f"{preset}, {config.precision}",
            *lora.described(self.model),
            f"strategy  {describe(self.strategy)}",
            f"steps     {config.steps} of {config.batch_size} rows = {epochs} "
            f"epochs, evaluated every {config.evaluation_interval}; "
            f"{padding:.0%} of the tokens are padding",
            *self._rate_notes,
        ]

    def progress_text(self, kind, scalars):
        if kind == "eval":
            return f"held out  {written(scalars, '  ')}"
        return (
            f"loss {scalars['loss']:.4f}  "
            f"gradient {scalars['gradient_norm']:.2f}  "
            f"rate {scalars['learning_rate']:.2e}  "
            f"{scalars['rows_per_second']:,.1f} rows/s"
        )

    def is_better(self, metric, value, best):
        return is_better(metric, value, best)

    def save_best(self):
        if self.is_chief:
            self.model.save_to_preset(
                self.output / BEST, tokenizer=self.tokenizer
            )

    def loop(self):
        return 0 if self._is_done() else super().loop()

    def _is_done(self):
        return (self.output / self.result_file).is_file()

    def finish(self):
        """Scores the best weights; writes results, reports and the model."""
        self._restore_best()
        if self._is_done():
            return
        evaluator = self.evaluator()
        metrics = evaluator.evaluate()
        name, examples = next(iter(self.data.evaluation.items()))
        decoded = evaluator.decoded(name)
        if not self.is_chief:
            return
        self.write_model()
        write_all(
            self.output,
            self.data,
            self.model,
            examples,
            decoded,
            self.rows,
            metrics=metrics,
            seed=self.config.seed,
            steps=int(self.global_step.numpy()),
            preset=self.options.preset,
            started_from=("pretrained", "random")[self.options.random_start],
            trained_parameters=lora.num_trained(self.model),
        )
        remove(self.output / "checkpoints")

    def _restore_best(self):
        """Assigns the weights of the best evaluation to the model."""
        wait_for_peers(self.strategy)  # the chief writes them
        best = self.output / BEST
        if not best.is_dir():
            return
        if self.config.lora_rank:
            verify_checksums(best, [ADAPTERS_FILE])
            self.model.load_lora_weights(best / ADAPTERS_FILE)
            return
        source = self.task_class.from_preset(best, preprocessor=None)
        for variable, value in zip(
            self.model.weights, source.weights, strict=True
        ):
            variable.assign(value)

    def predict(self, path):
        """Predicts a file of examples with the best weights of a finished run.

        Args:
            path: str, a file in the task's format; labels may be missing.

        Returns:
            (path of the JSON lines, dict of metrics, {} without labels).
        """
        wait_for_peers(self.strategy)  # the chief writes the results
        self._restore_best()
        self.model.adopt(read_results(self.output)["metrics"])
        task, columns = self.data.task, self.data.columns
        with warnings_in_a_line():
            examples = reading.read_unlabelled(task, path, columns)
        decoded = self._evaluator({"": examples}).decoded("")
        file = self.output / PREDICTIONS_FILE
        if self.is_chief:
            write_predictions(file, prediction_rows(examples, decoded))
        if not all(map(reading.is_labelled, examples)):
            return file, {}
        score = self.task_class.score
        return file, score(task, examples, decoded, self.data.labels)


def run_task(options, config, strategy, data):
    """Trains, predicts where asked to, and prints metrics and files.

    Args:
        options, config, strategy, data: see `FinetuningRun`.

    Returns:
        (int, the exit status; dict of the results, None where it was stopped
        or another worker writes them).
    """
    with FinetuningRun(options, config, strategy, data) as run:
        is_new, status = not run._is_done(), run.train()
        if status:
            return status, None
        # All workers predict together; the chief writes and reports.
        predicted = options.predict and run.predict(options.predict)
        if not run.is_chief:
            return 0, None
    found = read_results(run.output)
    predicted = predicted and (options.predict, *predicted)
    is_one = getattr(options, "seeds", None) is None
    sys.stdout.write(ending(run.output, found, predicted, is_new, is_one))
    return 0, found
