"""A pretraining run: its records, its model, its memory, its results."""

import dataclasses
import hashlib
import itertools
import sys

import keras

from data_pipeline.mixing import largest_batch
from data_pipeline.mixing import open_records
from data_pipeline.mixing import sets_of
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.reading import tokenizer_of_records
from data_pipeline.records.writer import TOKENIZER
from data_pipeline.tokenization.hugging_face import check_tokenizer
from xlnet_tf.files import as_path
from xlnet_tf.files import write_bytes
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.training.pretraining_step import PretrainingEvaluator
from xlnet_tf.training.pretraining_step import PretrainingTrainer
from xlnet_tf.training.pretraining_step import build
from xlnet_tf.training.pretraining_step import distribute_records
from xlnet_tf.training.pretraining_step import make_memory
from xlnet_tf.training.records import check_same_text
from xlnet_tf.training.records import model_config
from xlnet_tf.training.records import objective_reader
from xlnet_tf.training.records import record_sets
from xlnet_tf.training.runs.exports import EXPORTS_FILE
from xlnet_tf.training.runs.exports import keep_newest
from xlnet_tf.training.runs.exports import kept_exports
from xlnet_tf.training.runs.exports import note_export
from xlnet_tf.training.runs.exports import prepare_exports
from xlnet_tf.training.runs.progress.ending import ending
from xlnet_tf.training.runs.progress.ending import warning_of_failure
from xlnet_tf.training.runs.progress.log import draw_losses
from xlnet_tf.training.runs.run import MODEL_FILE
from xlnet_tf.training.runs.run import Run
from xlnet_tf.training.runs.start import head_arguments
from xlnet_tf.training.runs.start import objective_of_preset
from xlnet_tf.training.runs.start import start_from
from xlnet_tf.training.runs.start import values_of_another
from xlnet_tf.training.strategy import describe
from xlnet_tf.weights.tensor_files import digest_of_weights


class PretrainingRun(Run):
    """A pretraining run from its options to its results; use it as a context.

    Args:
        options: object with the attributes of the command line.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
        export: function of (model, tokenizer, directory, sequence_length) that
            writes a SavedModel, or None.

    Raises:
        ValueError, FileNotFoundError, RuntimeError: if options, records, the
            directory and the machine do not fit together.
    """

    result_file = MODEL_FILE
    # What decides the order of the data or the meaning of a checkpoint.
    fixed_settings = (
        "batch_size",
        "seed",
        "hide_empty_memory",
        "objective",
        "order",
        "masked_unit",
        "masked_fraction",
        "pseudo_masked_losses",
        "next_sentence_weight",
    )
    differences = {
        "records": " of the data",
        "preset_weights": "it began with the weights of another --preset",
        "backend": "it was trained on another backend of Keras (KERAS_BACKEND)",
    }

    def __init__(self, options, config, strategy, export=None):
        super().__init__(options, config, strategy)
        self._export = export

    def read_data(self):
        options, config = self.options, self.config
        config.replica_batch_size(self.num_replicas)
        reader = objective_reader(config)
        directories, weights = record_sets(options.records)
        manifest = read_manifest(directories[0], check_shards=False)
        reader.check(manifest)
        values = OBJECTIVES[config.objective].config_values
        if values.get("attention_type") != "causal":
            values = {**values, **values_of_another(options.preset)}
        self.model_config = model_config(options, manifest, values)
        self.data = open_records(
            directories,
            config.batch_size,
            weights,
            seed=config.seed,
            skip_corrupt=options.skip_corrupt,
            service=options.data_service,
            objective=reader,
            layout=self.model_config.layout,
        )
        self.tokenizer = tokenizer_of_records(directories[0], manifest)
        self.held_out = self._held_out_data(directories, weights)
        self.evaluation_batches = self.held_out and min(
            config.evaluation_steps * config.gradient_accumulation_steps,
            self.held_out.steps_per_epoch,
        )

    def _held_out_data(self, directories, weights):
        """PretrainingData or MixedPretrainingData to evaluate on, or None."""
        options, replicas = self.options, self.num_replicas
        split = "train" if options.eval_records else "validation"
        if options.eval_records:
            directories, weights = [options.eval_records], None
        else:
            has = [
                bool(x.manifest.num_records(split)) for x in sets_of(self.data)
            ]
            directories = [*itertools.compress(directories, has)]
            weights = weights and [*itertools.compress(weights, has)]
            if not directories:
                return None
        found = open_records(
            directories,
            len(directories),
            weights,
            split=split,
            seed=self.config.seed,
            skip_corrupt=options.skip_corrupt,
            service=options.data_service,
            objective=self.data.reader,
            layout=self.model_config.layout,
        )
        names = ", ".join(map(str, directories))
        check_same_text(found.manifest, self.data.manifest, names)
        parts = self.config.gradient_accumulation_steps  # one at a time
        most = min(self.config.batch_size // parts, found.num_records)
        rows = largest_batch(found, most, replicas)
        if not rows:
            raise ValueError(
                f"{names} holds {found.num_records} record(s) to evaluate "
                f"on, and there are {replicas} replicas, of which each needs "
                "one. Build records with a larger --validation-fraction, or "
                "give others with --eval-records."
            )
        return found.with_batch_size(rows)

    def identity(self):
        manifest, preset = self.data.manifest, self.options.preset
        sets, shards, rows = sets_of(self.data), hashlib.sha256(), {}
        for data in sets:
            for shard in data.manifest.splits["train"]:
                shards.update(shard.sha256.encode())
        if len(sets) > 1:
            rows = {"rows_of_sets": [data.batch_size for data in sets]}
        return {
            "model": self.model_config.to_dict(),
            "training": self.config.to_dict(),
            "records": {
                "records": sum(x.manifest.num_records("train") for x in sets),
                "sequence_length": manifest.sequence_length,
                "tokenizer": manifest.tokenizer["sha256"],
                "permutation_length": manifest.permutation_length,
                "shards": shards.hexdigest(),
                **rows,
            },
            "preset_weights": digest_of_weights(preset) if preset else None,
            "backend": keras.backend.backend(),
        }

    def with_defaults(self, identity):
        # Runs of earlier versions do not name it.
        name = "permutation_length"
        length = getattr(self.data.manifest, name)
        records = {name: length, **identity.get("records", {})}
        return super().with_defaults(
            {"backend": "tensorflow", **identity, "records": records}
        )

    def build(self):
        self.model, self.optimizer, self.memory = build(
            self.model_config,
            self.config,
            self.strategy,
            head_arguments(self.options.preset),
        )

    def remove_leftovers(self):
        prepare_exports(self.options.export, self.output / EXPORTS_FILE)

    def start(self):
        if self.options.preset:
            check_tokenizer(self.options.preset, self.tokenizer)
            start_from(self.model, self.options.preset)

    def trainer(self):
        return PretrainingTrainer(
            self.model,
            self.optimizer,
            self.memory,
            distribute_records(
                self.data,
                self.config,
                self.strategy,
                start_step=int(self.global_step.numpy()),
            ),
            self.config,
            self.strategy,
            self.global_step,
            self.data.first_half_length,
        )

    def rows_of_step(self, step):
        is_mixed = len(sets_of(self.data)) > 1
        return [
            {
                **({"set": str(as_path(file).parent)} if is_mixed else {}),
                "shard": as_path(file).name,
                "record": record,
            }
            for file, record in self.data.sources(step - 1)
        ]

    def evaluation_config(self):
        """TrainingConfig of an evaluation, which has its own batch size."""
        return dataclasses.replace(
            self.config,
            batch_size=self.held_out.batch_size,
            gradient_accumulation_steps=1,
        )

    def evaluator(self):
        config = self.evaluation_config()
        return PretrainingEvaluator(
            self.model,
            make_memory(self.model, config, self.strategy),
            distribute_records(self.held_out, config, self.strategy),
            self.strategy,
            self.check_stop,
            self.held_out.first_half_length,
            self.shows_progress,
        )

    def describe(self):
        config, manifest = self.config, self.data.manifest
        model, held_out = self.model_config, self.held_out
        kind = self.model.backbone.kind
        replicas = self.num_replicas
        parts = config.gradient_accumulation_steps
        rows = config.replica_batch_size(replicas) // parts
        tokens = config.batch_size * manifest.sequence_length
        parameters = self.model.count_params()
        expected = self._expected_bytes(rows)
        lines = [
            f"model     {kind} of {model.num_layers} layers x "
            f"{model.hidden_dim}, {model.num_heads} heads, "
            f"{model.vocabulary_size:,} tokens: {parameters:,} parameters, "
            f"{config.precision}",
            f"strategy  {self.describe_strategy()}",
            f"batch     {config.batch_size} sequences = {replicas} replica(s) "
            f"x {parts} part(s) x {rows}; {tokens:,} tokens per step",
            *self._describe_data(),
            f"memory    {model.memory_length} tokens remembered, "
            f"{model.reuse_length} reused; about {expected / 1e9:.1f} GB "
            "per replica expected",
            "held out  "
            + (
                f"{held_out.num_records:,} sequences, batches of "
                f"{held_out.batch_size}"
                if held_out
                else "none (build_records --validation-fraction, or "
                "--eval-records)"
            ),
        ]
        before = objective_of_preset(self.options.preset)
        if before not in (None, config.objective):
            lines.append(
                f"preset    trained by {before}, now by {config.objective}"
            )
        for data in filter(None, (self.data, held_out)):
            if data.skipped:
                lines.append(
                    f"skipped   {len(data.skipped)} damaged record(s), the "
                    f"first: {data.skipped[0]}"
                )
        return lines

    def _expected_bytes(self, rows):
        """Estimate the memory of a step, int, with so many rows at a time."""
        model, targets = self.model, self.data.num_targets
        weights = 16 * model.count_params()  # with gradients and two moments
        activations = model.backbone.expected_bytes(
            rows,
            self.data.manifest.sequence_length,
            targets if model.reads_query else 0,
        )
        logits = 12 * rows * targets * self.model_config.vocabulary_size
        return weights + activations + logits

    def _describe_data(self):
        """Lines about the records and their epochs."""
        config, sets = self.config, sets_of(self.data)
        lines = []
        for data in sets:
            share = f"; {data.steps_per_epoch:,} steps per epoch"
            if len(sets) > 1:
                share = (
                    f"; {data.directory}: {data.batch_size} rows of a batch, "
                    f"{data.batch_size / config.batch_size:.1%}{share}"
                )
            lines.append(
                f"data      {data.num_records:,} sequences of "
                f"{data.manifest.sequence_length} tokens, {data.num_targets} "
                f"of them predicted ({config.objective}){share}, "
                f"{config.steps:,} steps are "
                f"{config.steps / data.steps_per_epoch:.1f} epochs"
            )
            how = config.objective, config.masked_unit, data.manifest.spans
            if how == ("masked", "words", "subwords"):
                lines.append(
                    "warning   the records are of a script without spaces "
                    "between words (--spans subwords), and masked hides whole "
                    "words: give --masked-unit pieces"
                )
        return lines

    def describe_strategy(self):
        """One line about the devices."""
        return describe(self.strategy)

    def progress_text(self, kind, scalars):
        text = f"loss {scalars['loss']:.3f}  "
        if kind == "eval":  # the unit of the picture
            bits = scalars["bits_per_token"]
            text = f"held out  {text}bits/token {bits:.3f}  "
        text += f"accuracy {scalars['accuracy']:.3f}"
        if "next_sentence_accuracy" in scalars:
            text += f"  next sentence {scalars['next_sentence_accuracy']:.3f}"
        if kind == "train":
            text += (
                f"  gradient {scalars['gradient_norm']:.2f}  "
                f"rate {scalars['learning_rate']:.2e}  "
                f"{scalars['tokens_per_second']:,.0f} tokens/s"
            )
        return text

    def explain_data_loss(self):
        self.data.explain_data_loss(int(self.global_step.numpy()))
        if self.held_out:
            self.held_out.explain_data_loss()

    def save_best(self):
        self._save("best")

    def finish(self):
        if not self.is_chief:
            return
        self.write_model()
        write_bytes(self.output / TOKENIZER, self.tokenizer.model_proto)
        self._save("preset")
        picture = draw_losses(self.output)
        exports = kept_exports(self.options.export, self.output / EXPORTS_FILE)
        config, objective = self.model_config, self.model.objectives[0]
        warning = warning_of_failure(
            self.output, config.vocabulary_size, objective.predictions
        )
        sys.stderr.write(warning)
        written = [self.output / MODEL_FILE, picture, *exports]
        sys.stdout.write(
            "".join(f"wrote {path}\n" for path in written if path)
            + ending(self.output, bool(warning), exports)
        )

    def _save(self, name):
        """Writes a preset and, where asked for, a SavedModel of this step."""
        if not self.is_chief:
            return
        self.model.save_to_preset(self.output / name, tokenizer=self.tokenizer)
        if self.options.export:
            exports = as_path(self.options.export)
            step = int(self.global_step.numpy())  # of several replicas, too
            note_export(exports, step, self.output / EXPORTS_FILE)
            self._export(
                self.model,
                self.tokenizer,
                exports / str(step),
                self.data.manifest.sequence_length,
            )
            keep_newest(
                exports,
                step,
                self.config.exports_to_keep,
                self.output / EXPORTS_FILE,
            )
