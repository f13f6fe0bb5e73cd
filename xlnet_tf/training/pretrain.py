"""Pretraining run: training of a model on records with an objective.

`pretrain` is the whole run. It calls the other functions in the order below.

Shapes: B rows of one replica, T tokens, P targets.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
import typing

import keras

from data_pipeline.base.command_line import print_lines
from data_pipeline.base.command_line import print_notes
from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import written_whole
from data_pipeline.mixing import largest_batch
from data_pipeline.mixing import open_records
from data_pipeline.mixing import sets_of
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.reading import tokenizer_of_records
from data_pipeline.records.writer import TOKENIZER
from data_pipeline.tokenization.hugging_face import check_tokenizer
from xlnet_tf.config import BertConfig
from xlnet_tf.model.backbones import make_backbone
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.training import loop
from xlnet_tf.training.backends import with_precision
from xlnet_tf.training.checkpoints import CHECKPOINTS
from xlnet_tf.training.checkpoints import Checkpoints
from xlnet_tf.training.directory import OTHER_BACKEND
from xlnet_tf.training.directory import Kind
from xlnet_tf.training.directory import claim_identity
from xlnet_tf.training.directory import opened
from xlnet_tf.training.exports import EXPORTS_FILE
from xlnet_tf.training.exports import keep_newest
from xlnet_tf.training.exports import kept_exports
from xlnet_tf.training.exports import note_export
from xlnet_tf.training.exports import prepare_exports
from xlnet_tf.training.initial_weights import head_of_preset
from xlnet_tf.training.initial_weights import objective_of_preset
from xlnet_tf.training.initial_weights import start_from
from xlnet_tf.training.initial_weights import values_of_another
from xlnet_tf.training.log import draw_losses
from xlnet_tf.training.log import strategy_lines
from xlnet_tf.training.log import tell_first_lines
from xlnet_tf.training.on_tensorflow import make_memory
from xlnet_tf.training.records import check_same_text
from xlnet_tf.training.records import model_config
from xlnet_tf.training.records import objective_reader
from xlnet_tf.training.records import record_sets
from xlnet_tf.training.results.outcome import pretraining_ending
from xlnet_tf.training.results.outcome import warning_of_failure
from xlnet_tf.training.settings import DATA
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.settings import names_of
from xlnet_tf.training.step import Loss
from xlnet_tf.training.update import bytes_of_moments
from xlnet_tf.training.update import make_optimizer
from xlnet_tf.weights.tensor_files import digest_of_weights

MODEL_FILE = "model.keras"
KIND = Kind(
    result_file=MODEL_FILE,
    fixed_settings=names_of(PretrainingSettings, DATA),
    differences={
        "records": " of the data",
        "preset_weights": "it began with the weights of another --preset",
        "backend": OTHER_BACKEND,
    },
)


def pretrain(settings, backend, export=None, begun=None):
    """Pretrain a model on records, or resume the run in `settings.output`.

    Args:
        settings: PretrainingSettings with `records` and `output`.
        backend: TensorFlow or Jax, which computes the steps.
        export: function of (model, tokenizer, directory, sequence_length) that
            writes a SavedModel, or None (default) for no SavedModels.
        begun: see `loop.Run`.

    Returns:
        int, the exit status: 0 for a finished run, 143 for a run stopped by
        SIGTERM or the time limit, 130 for a run stopped by Ctrl-C.

    Raises:
        ValueError, FileNotFoundError, RuntimeError: if settings, records,
            directory and machine do not fit each other.
    """
    settings = with_precision(settings, backend)
    run = loop.Run(settings, backend, begun)

    # Data
    data = open_data(settings, backend.num_replicas)
    explain = functools.partial(explain_data_loss, data, run)
    with opened(run.output, run.is_chief, "--batch-size", explain):
        if run.is_chief:
            prepare_exports(settings.export, run.output / EXPORTS_FILE)
        claim_identity(run, identity_of(data, settings), KIND)

        # Model and optimizer
        model, optimizer = build(
            data.model_config,
            settings,
            backend.strategy,
            head_of_preset(settings.preset),
        )
        memory = make_memory(model, settings, backend.strategy)

        # Resume
        checkpoints = Checkpoints(
            run.output / CHECKPOINTS, run, model, optimizer, memory
        )
        if not checkpoints.restore() and settings.preset:
            check_tokenizer(settings.preset, data.tokenizer)
            start_from(model, settings.preset)
        if run.shows_progress:
            tell_first_lines(first_lines(run, data, model), checkpoints)

        # Train
        training = training_of(run, data, model, optimizer, memory, export)
        status = loop.train(run, training, checkpoints)

        # Results
        if status == 0 and run.is_chief:
            write_model(run, data, model)
            if is_best_exported(run):
                export = None
            save(run, data, model, "preset", export)
            tell_results(run, data, model)
        return status


class Data(typing.NamedTuple):
    """Data of a pretraining run, and the model config for these data.

    Attributes:
        train: PretrainingData or MixedPretrainingData, the training records.
        held_out: PretrainingData or MixedPretrainingData, the held-out records,
            or None.
        model_config: XLNetConfig or BertConfig, changed to fit the records.
        tokenizer: Tokenizer of the records.
    """

    train: typing.Any
    held_out: typing.Any
    model_config: typing.Any
    tokenizer: typing.Any

    @property
    def sequence_length(self):
        """Number of tokens of a record, T, int."""
        return self.train.manifest.sequence_length


def open_data(settings, num_replicas):
    """Open the records for training and for evaluation.

    Args:
        settings: PretrainingSettings.
        num_replicas: int, number of replicas.

    Returns:
        Data.

    Raises:
        ValueError: if records, model and settings do not fit each other.
    """
    settings.replica_batch_size(num_replicas)
    reader = objective_reader(settings)
    directories, weights = record_sets(settings.records)
    manifest = read_manifest(directories[0], check_shards=False)
    reader.check(manifest)
    values = OBJECTIVES[settings.objective].config_values
    if values.get("attention_type") != "causal":
        values = {**values, **values_of_another(settings.preset)}
    fitted = model_config(settings, manifest, values)
    reading = {
        "seed": settings.seed,
        "skip_corrupt": settings.skip_corrupt,
        "service": settings.data_service,
        "objective": reader,
        "layout": fitted.layout,
    }
    train = open_records(directories, settings.batch_size, weights, **reading)
    tokenizer = tokenizer_of_records(directories[0], manifest)
    # Evaluations read all held-out records, with the settings for reading the
    # training records.
    if settings.eval_records:
        split, held_out = "train", ([settings.eval_records], None)
    else:
        split = "validation"
        held_out = _held_out_sets(train, directories, weights)
    if not held_out[0]:
        return Data(train, None, fitted, tokenizer)
    opened_sets = open_records(
        held_out[0], len(held_out[0]), held_out[1], split=split, **reading
    )
    names = ", ".join(map(str, held_out[0]))
    check_same_text(opened_sets.manifest, train.manifest, names)
    # An evaluation computes as many rows at once as a micro-batch has.
    parts = settings.gradient_accumulation_steps
    most = min(settings.batch_size // parts, opened_sets.num_records)
    rows = largest_batch(opened_sets, most, num_replicas)
    if not rows:
        raise ValueError(
            f"{names} holds {opened_sets.num_records} record(s) to evaluate "
            f"on, and there are {num_replicas} replicas; each needs a record. "
            "Build records with a larger --validation-fraction, or give "
            "others with --eval-records."
        )
    return Data(train, opened_sets.with_batch_size(rows), fitted, tokenizer)


def _held_out_sets(train, directories, weights):
    """Select the directories with held-out records, and their weights."""
    has = [bool(x.manifest.num_records("validation")) for x in sets_of(train)]
    directories = [*itertools.compress(directories, has)]
    return directories, weights and [*itertools.compress(weights, has)]


def explain_data_loss(data, run):
    """Raise an error that names the damaged record, if a record is damaged."""
    data.train.explain_data_loss(run.steps_made())
    if data.held_out:
        data.held_out.explain_data_loss()


def identity_of(data, settings):
    """Make the dict that identifies a run; see `claim_identity`."""
    manifest, preset = data.train.manifest, settings.preset
    sets, shards, rows = sets_of(data.train), hashlib.sha256(), {}
    for one in sets:
        for shard in one.manifest.splits["train"]:
            shards.update(shard.sha256.encode())
    if len(sets) > 1:
        rows = {"rows_of_sets": [one.batch_size for one in sets]}
    return {
        "model": data.model_config.to_dict(),
        "training": settings.stored(),
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


def build(model_config, settings, strategy, head_arguments=None):
    """Make the model and the optimizer in the scope of a strategy.

    Args:
        model_config: XLNetConfig or BertConfig.
        settings: PretrainingSettings.
        strategy: tf.distribute.Strategy.
        head_arguments: dict of arguments for the model's LM head. Default: the
            arguments of the published model's head.

    Returns:
        (XLNetPretrainer, AdamW).
    """
    if head_arguments is None:
        has_transform = isinstance(model_config, BertConfig)
        head_arguments = {"has_transform": has_transform}
    keras.utils.set_random_seed(settings.seed)
    with strategy.scope():
        model = XLNetPretrainer(
            make_backbone(
                model_config,
                seed=settings.seed,
                rematerialize=settings.rematerialize,
                attention_kernel=settings.attention_kernel,
                dtype=settings.policy,
            ),
            objective=make_objective(settings),
            **head_arguments,
            next_sentence_weight=settings.next_sentence_weight,
        )
        return model, make_optimizer(model, settings)


def make_objective(settings):
    """Make the objective that the settings of a run select."""
    objective = OBJECTIVES[settings.objective]
    if settings.objective == "pseudo_masked":
        return objective(losses=settings.pseudo_masked_losses)
    return objective()


def first_lines(run, data, model):
    """Return a run's first printed lines, about model, devices and data."""
    settings, sizes, held_out = run.settings, data.model_config, data.held_out
    replicas, length = run.backend.num_replicas, data.sequence_length
    parts = settings.gradient_accumulation_steps
    rows = settings.replica_batch_size(replicas) // parts
    expected = expected_bytes(model, rows, data)
    expected += bytes_of_moments(model, run.backend)
    lines = [
        f"model     {model.backbone.kind} of {sizes.num_layers} layers x "
        f"{sizes.hidden_dim}, {sizes.num_heads} heads, "
        f"{sizes.vocabulary_size:,} tokens: {model.count_params():,} "
        f"parameters, {settings.precision}",
        *strategy_lines(run, model),
        f"batch     {settings.batch_size} sequences = {replicas} replica(s) "
        f"x {parts} part(s) x {rows}; {settings.batch_size * length:,} tokens "
        "per step",
        *lines_about_records(data.train, settings),
        f"memory    {sizes.memory_length} tokens remembered, "
        f"{sizes.reuse_length} reused; about {expected / 1e9:.1f} GB "
        "per replica expected",
        "held out  "
        + (
            f"{held_out.num_records:,} sequences, batches of "
            f"{held_out.batch_size}"
            if held_out
            else "none (build_records --validation-fraction, or --eval-records)"
        ),
    ]
    before = objective_of_preset(settings.preset)
    if before not in (None, settings.objective):
        lines.append(
            f"preset    trained by {before}, now by {settings.objective}"
        )
    for records in filter(None, (data.train, held_out)):
        if records.skipped:
            lines.append(
                f"skipped   {len(records.skipped)} damaged record(s), the "
                f"first: {records.skipped[0]}"
            )
    return lines


def expected_bytes(model, rows, data):
    """Estimate the bytes of a step on a replica, without Adam's moments.

    `rows` is the number of rows that the replica computes at once.
    """
    targets = data.train.num_targets
    weights = 8 * model.count_params()  # and their gradients, in float32
    activations = model.backbone.expected_bytes(
        rows, data.sequence_length, targets if model.reads_query else 0
    )
    logits = 12 * rows * targets * model.config.vocabulary_size
    return weights + activations + logits


def lines_about_records(train, settings):
    """Describe the records and the number of epochs in a list of lines."""
    sets, lines = sets_of(train), []
    for data in sets:
        share = f"; {data.steps_per_epoch:,} steps per epoch"
        if len(sets) > 1:
            share = (
                f"; {data.directory}: {data.batch_size} rows of a batch, "
                f"{data.batch_size / settings.batch_size:.1%}{share}"
            )
        lines.append(
            f"data      {data.num_records:,} sequences of "
            f"{data.manifest.sequence_length} tokens, {data.num_targets} "
            f"of them predicted ({settings.objective}){share}, "
            f"{settings.steps:,} steps are "
            f"{settings.steps / data.steps_per_epoch:.1f} epochs"
        )
        how = settings.objective, settings.masked_unit, data.manifest.spans
        if how == ("masked", "words", "subwords"):
            lines.append(
                "warning   the records are of a script without spaces "
                "between words (--spans subwords), and masked hides whole "
                "words: give --masked-unit pieces"
            )
    return lines


def training_of(run, data, model, optimizer, memory, export=None):
    """Make the loop.Training of a pretraining run.

    Args:
        run: loop.Run.
        data: Data.
        model, optimizer: results of `build`.
        memory: StatefulMemory or None.
        export: see `pretrain`.
    """

    def make_steps():
        return run.backend.steps(
            *(model, optimizer, memory),
            training_loss(model, data.train.first_half_length),
            functools.partial(read_batches, data.train, run.steps_made()),
            *(run.settings, run.step),
        )

    return loop.Training(
        make_steps=make_steps,
        figures=functools.partial(figures_of, model, data, run.settings),
        progress_text=progress_text,
        rows_of_step=functools.partial(rows_of_step, data.train),
        advice="resume from the last checkpoint",
        save_best=functools.partial(save, run, data, model, "best", export),
        evaluate=evaluation(run, data, model),
    )


def training_loss(model, first_half_length=0):
    """Make the Loss of a pretrainer for training.

    Args:
        model: XLNetPretrainer.
        first_half_length: int, length of the records' first half, see
            `XLNetBackbone`. Default 0.
    """
    return Loss(
        functools.partial(
            model, training=True, first_half_length=first_half_length
        ),
        model.loss_sums,
        tuple(model.metric_names),
    )


def read_batches(data, start_step, **rows):
    """Read the training batches of records.

    Args:
        data: PretrainingData.
        start_step: int, the step of the first batch.
        **rows: arguments of `PretrainingData.dataset` that select the rows of
            each batch.

    Returns:
        tf.data.Dataset, endless.
    """
    dataset = data.dataset(start_step=start_step, **rows)
    if data.manifest.both_directions:
        return dataset
    # Without the feature `is_reversed`, distances are projected for one
    # direction only.
    return dataset.map(
        lambda x: {k: v for k, v in x.items() if k != "is_reversed"}
    )


def figures_of(model, data, settings, report):
    """Make a dict of the figures to log for a loop of steps."""
    tokens = len(report.results) * settings.batch_size * data.sequence_length
    return {
        **with_bits(report.scalars(), model),
        "tokens_per_second": tokens / max(report.seconds, 1e-9),
    }


def progress_text(kind, scalars):
    """Return the text of a progress line, see `loop.Training.progress_text`."""
    text = f"loss {scalars['loss']:.3f}  "
    if kind == "eval":  # the loss in nats is also in the picture
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


def rows_of_step(data, step):
    """List the shard and the record number of each row of a step's batch.

    The list has a dict for each row. Steps are counted from 1.
    """
    is_mixed = len(sets_of(data)) > 1
    return [
        {
            **({"set": str(as_path(file).parent)} if is_mixed else {}),
            "shard": as_path(file).name,
            "record": record,
        }
        for file, record in data.sources(step - 1)
    ]


def evaluation(run, data, model):
    """Make a function that evaluates the model on the held-out records.

    Returns:
        function for `loop.Training.evaluate`, or None without held-out records.
    """
    settings, held_out = run.settings, data.held_out
    if held_out is None:
        return None
    # A batch of the evaluation has as many rows as a micro-batch.
    parts = settings.gradient_accumulation_steps
    count = min(settings.evaluation_steps * parts, held_out.steps_per_epoch)

    @functools.cache
    def evaluator():
        return run.backend.evaluation(
            model,
            evaluation_loss(model, held_out.first_half_length),
            functools.partial(read_batches, held_out, 0),
            dataclasses.replace(
                settings,
                batch_size=held_out.batch_size,
                gradient_accumulation_steps=1,
            ),
        )

    def evaluate(must_stop):
        means = evaluator().evaluate(count, must_stop, run.shows_progress)
        return means and with_bits(means, model)

    return evaluate


def evaluation_loss(model, first_half_length=0):
    """Make the Loss of a pretrainer for held-out records."""
    return Loss(
        functools.partial(
            model,
            training=False,
            streams="query",
            first_half_length=first_half_length,
        ),
        model.loss_sums,
        tuple(model.metric_names),
    )


def with_bits(means, model):
    """Add `bits_per_token`, the loss per prediction in bits, to the metrics."""
    bits = means["loss"] / model.objectives[0].predictions / math.log(2)
    return {"loss": means["loss"], "bits_per_token": bits, **means}


def write_model(run, data, model):
    """Write the model to `model.keras` atomically; write the tokenizer."""
    with written_whole(run.output / MODEL_FILE) as temporary:
        model.save(temporary)
    write_bytes(run.output / TOKENIZER, data.tokenizer.model_proto)


def save(run, data, model, name, export=None):
    """Write a preset of the current step and, if requested, a SavedModel.

    Args:
        run: loop.Run. Only the chief writes files.
        data: Data.
        model: XLNetPretrainer.
        name: str, name of the preset.
        export: see `pretrain`. None (default) for no SavedModel.
    """
    if not run.is_chief:
        return
    model.save_to_preset(run.output / name, tokenizer=data.tokenizer)
    if run.settings.export and export:
        exports, step = as_path(run.settings.export), run.steps_made()
        noted = run.output / EXPORTS_FILE
        note_export(exports, step, noted)
        export(model, data.tokenizer, exports / str(step), data.sequence_length)
        keep_newest(exports, step, run.settings.exports_to_keep, noted)


def is_best_exported(run):
    """Whether the current step is the best, and is exported already."""
    best, step = loop.read_best(run.output), run.steps_made()
    if not run.settings.export or best is None or best["step"] != step:
        return False
    return (as_path(run.settings.export) / str(step)).is_dir()


def tell_results(run, data, model):
    """Draw the losses, print the results, and suggest the next commands."""
    output = run.output
    picture = draw_losses(output)
    exports = kept_exports(run.settings.export, output / EXPORTS_FILE)
    warning = warning_of_failure(
        output,
        data.model_config.vocabulary_size,
        model.objectives[0].predictions,
    )
    print_notes(*filter(None, [warning]))
    written = [output / MODEL_FILE, picture, *exports]
    print_lines(
        *(f"wrote {path}" for path in written if path),
        *pretraining_ending(output, bool(warning), exports),
    )
