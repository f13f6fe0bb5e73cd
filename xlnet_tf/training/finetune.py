"""Fine-tuning run: from a task's examples and a preset to results.

`finetune` is the whole run. It calls the other functions in the order below.

Shapes: R rows of encoded examples.
"""

import functools
import typing
import warnings

import keras
import numpy as np

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.command_line import print_lines
from data_pipeline.base.files import remove
from data_pipeline.base.files import written_whole
from data_pipeline.base.models import RESULTS_FILE
from data_pipeline.base.models import read_results
from data_pipeline.features.batches import Batches
from data_pipeline.tasks import reading
from data_pipeline.tasks.examples import digest_of_examples
from data_pipeline.tokenization.hugging_face import read_tokenizer
from xlnet_tf.preprocessing.preprocessor import check_positions
from xlnet_tf.tasks import task_kind
from xlnet_tf.training import loop
from xlnet_tf.training.backends import with_precision
from xlnet_tf.training.checkpoints import CHECKPOINTS
from xlnet_tf.training.checkpoints import Checkpoints
from xlnet_tf.training.devices import wait_for_peers
from xlnet_tf.training.directory import OTHER_BACKEND
from xlnet_tf.training.directory import Kind
from xlnet_tf.training.directory import claim_identity
from xlnet_tf.training.directory import opened
from xlnet_tf.training.evaluation import Evaluator
from xlnet_tf.training.evaluation import padded_lengths
from xlnet_tf.training.log import strategy_lines
from xlnet_tf.training.log import tell_first_lines
from xlnet_tf.training.pretrain import MODEL_FILE
from xlnet_tf.training.results.outcome import finetuning_ending
from xlnet_tf.training.results.outcome import write_all
from xlnet_tf.training.results.predictions import PREDICTIONS_FILE
from xlnet_tf.training.results.predictions import prediction_rows
from xlnet_tf.training.results.predictions import write_predictions
from xlnet_tf.training.results.summary import written
from xlnet_tf.training.settings import DATA
from xlnet_tf.training.settings import NUMBERS
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import names_of
from xlnet_tf.training.step import Loss
from xlnet_tf.training.update import make_optimizer
from xlnet_tf.weights.lora.files import ADAPTERS_FILE
from xlnet_tf.weights.lora.model import describe_lora
from xlnet_tf.weights.lora.model import num_trained
from xlnet_tf.weights.preset import read_config
from xlnet_tf.weights.tensor_files import digest_of_weights

BEST = "best"
SMALLER = "--batch-size or --sequence-length"
KIND = Kind(
    result_file=RESULTS_FILE,
    fixed_settings=names_of(FinetuningSettings, NUMBERS, DATA),
    differences={
        "training_examples": "other training examples",
        "held_out_examples": "other examples to evaluate on",
        "preset_weights": "other weights in the preset",
        "backend": OTHER_BACKEND,
    },
    checked_files=(RESULTS_FILE,),
)


def finetune(settings, backend, data, begun=None):
    """Fine-tune a preset on a task, or resume the run in `settings.output`.

    Args:
        settings: FinetuningSettings with `preset` and `output`. The run
            computes the numbers of steps that are not given.
        backend: TensorFlow or Jax, which computes the steps.
        data: TaskData of `data_pipeline.tasks`.
        begun: see `loop.Run`.

    Returns:
        (exit status, results). The exit status is 0 for a finished run, 143 for
        a run stopped by SIGTERM or the time limit, and 130 for a run stopped by
        Ctrl-C. The results are a dict, or None if the run was stopped or this
        process is not the chief.

    Raises:
        ValueError, FileNotFoundError, RuntimeError: if settings, data,
            directory and machine do not fit each other.
    """
    settings = with_precision(settings, backend)
    run = loop.Run(settings, backend, begun)

    # Data
    task = prepare(run, data)
    run.settings = task.settings
    with opened(run.output, run.is_chief, SMALLER):
        is_done = (run.output / RESULTS_FILE).is_file()
        claim_identity(run, identity_of(task, is_done), KIND)

        # Model and optimizer
        model, optimizer = build(task, backend.strategy)
        held_out = functools.cache(
            lambda: evaluator_of(run, task, model, data.evaluation)
        )

        # Resume
        if is_done and run.is_chief:
            # The run may have been killed before it removed its checkpoints.
            remove(run.output / CHECKPOINTS)
        wait_for_peers(backend.strategy)
        checkpoints = Checkpoints(
            run.output / CHECKPOINTS, run, model, optimizer, memory=None
        )
        checkpoints.restore()
        if run.shows_progress:
            tell_first_lines(first_lines(run, task, model), checkpoints)

        # Train
        if not is_done:
            training = training_of(run, task, model, optimizer, held_out)
            if status := loop.train(run, training, checkpoints):
                return status, None

        # Results
        wait_for_peers(backend.strategy)  # the chief writes the best weights
        restore_best(run, task, model)
        if not is_done:
            metrics = held_out().evaluate()
            decoded = held_out().decoded(next(iter(data.evaluation)))
            if run.is_chief:
                write_results(run, task, model, metrics, decoded)
        predicted = run.settings.predict and predict(run, task, model)
    if not run.is_chief:
        return 0, None
    results = read_results(run.output)
    is_one = run.settings.seeds is None
    print_lines(
        *finetuning_ending(run.output, results, predicted, not is_done, is_one)
    )
    return 0, results


class TaskRun(typing.NamedTuple):
    """Data and settings from which a fine-tuning run makes its model.

    Attributes:
        data: TaskData.
        settings: FinetuningSettings after `resolve`.
        kind: TaskKind class of the task.
        arguments: dict, arguments for the constructor of the model.
        tokenizer: Tokenizer of the preset.
        preprocessor: Preprocessor.
        rows: EncodedExamples, the rows to train on.
        notes: list of str, lines about the learning rate.
    """

    data: typing.Any
    settings: FinetuningSettings
    kind: typing.Any
    arguments: dict
    tokenizer: typing.Any
    preprocessor: typing.Any
    rows: typing.Any
    notes: list


def prepare(run, data):
    """Encode the training examples, and complete the settings of the run.

    Args:
        run: loop.Run.
        data: TaskData.

    Returns:
        TaskRun.

    Raises:
        ValueError: if settings, preset and data do not fit each other.
    """
    kind = task_kind(data.task.kind)
    settings, preset = run.settings, run.settings.preset
    tokenizer = read_tokenizer(preset)
    arguments = kind.arguments_for(data.task, settings, data.labels)
    model_config = read_config(preset)
    # The preprocessor is loaded from the preset, because rows are encoded
    # before the model exists.
    preprocessor = kind.model_class.preprocessor_cls.from_preset(
        preset,
        layout=model_config.layout,
        **kind.preprocessor_settings(data.task, settings),
    )
    settings.check_model(model_config)
    check_positions(model_config, preprocessor.sequence_length)
    settings, notes = settings.for_model(data.task.name, model_config)
    task = TaskRun(
        *(data, settings, kind, arguments, tokenizer, preprocessor),
        rows=None,
        notes=notes,
    )
    rows = encode(run, task, data.train, training=True)
    if settings.class_weights == "balanced":
        balance_classes(rows, data.labels)
    steps_per_epoch = max(1, len(rows) // settings.batch_size)
    return task._replace(settings=settings.resolve(steps_per_epoch), rows=rows)


def encode(run, task, examples, training):
    """Encode a list of examples to the rows of an EncodedExamples."""
    return task.preprocessor.encode(
        examples,
        task.data.labels,
        training=training,
        progress=run.shows_progress,
        **task.kind.encoding_arguments(task.data.task, task.settings),
    )


def balance_classes(rows, labels):
    """Change row weights so that all classes have the same total weight.

    The X examples have C different classes. An example whose class has n
    examples gets the weight X / (n * C). The mean weight of the examples is
    then 1. The rows of a long text (its windows) share the weight of the text.

    Args:
        rows: EncodedExamples with `label`, `example` and `row_weight` [R].
            `row_weight` is changed.
        labels: sequence of the classes, or None for a task without classes.

    Raises:
        ValueError: if a row has no class, or may have several classes.
    """
    from sklearn.utils.class_weight import compute_class_weight

    label = rows.dense.get("label")
    if not labels or label is None or label.ndim > 1:
        raise ValueError(
            '`class_weights` "balanced" needs a task with one class for each '
            "text. Leave it out for other tasks."
        )
    _, first = np.unique(rows.dense["example"], return_index=True)
    classes = np.unique(label)
    weights = np.ones(len(labels), np.float32)
    weights[classes] = compute_class_weight(
        "balanced", classes=classes, y=label[first]
    )
    rows.dense["row_weight"] = rows.dense["row_weight"] * weights[label]


def identity_of(task, is_done=False):
    """Make the dict that identifies a run; see `claim_identity`.

    Args:
        task: TaskRun.
        is_done: bool, whether the run is finished. The identity of an
            unfinished run contains the backend, because only the backend that
            wrote a checkpoint can read the checkpoint. Default False.
    """
    data, settings = task.data, task.settings
    weights = None
    if not settings.random_start:
        weights = digest_of_weights(settings.preset)
    return {
        "task": data.task.name,
        "labels": data.labels,
        "examples": len(data.train),
        "training_examples": digest_of_examples({"train": data.train}),
        "held_out_examples": digest_of_examples(data.evaluation),
        "held_out_seed": data.seed,
        "preset_weights": weights,
        "random_start": settings.random_start,
        "training": settings.stored(),
        **({} if is_done else {"backend": keras.backend.backend()}),
        # The path of the preset counts only if no digest identifies its
        # weights.
        **({} if weights else {"preset": str(settings.preset)}),
    }


def build(task, strategy):
    """Make the model and the optimizer in the scope of a strategy.

    Args:
        task: TaskRun.
        strategy: tf.distribute.Strategy.

    Returns:
        (Task, AdamW).
    """
    settings = task.settings
    keras.utils.set_random_seed(settings.seed)
    with strategy.scope():
        model = _make_model(task)
        optimizer = make_optimizer(
            model,
            settings,
            layer_decay=settings.layer_decay,
            layer_decay_on=settings.layer_decay_on,
            num_layers=model.config.num_layers,
        )
    return model, optimizer


def _make_model(task):
    settings, arguments = task.settings, dict(task.arguments)
    for name in ("dropout", "attention_dropout"):
        value = getattr(settings, name)
        if value is not None:
            arguments[name] = value
    if "memory_length" not in arguments:
        if read_config(settings.preset).memory_length:
            arguments["memory_length"] = 0  # rows are independent
    model = task.kind.model_class.from_preset(
        settings.preset,
        load_weights=not settings.random_start,
        dtype=settings.policy,
        rematerialize=settings.rematerialize,
        attention_kernel=settings.attention_kernel,
        **arguments,
    )
    if settings.lora_rank:
        model.enable_lora(settings.lora_rank, alpha=settings.lora_alpha)
    # The saved model then preprocesses raw strings as in training.
    model.preprocessor = task.preprocessor
    return model


def batches_of(run, task, model, rows):
    """Make the batches of encoded rows, padded to a few lengths."""
    length, settings = task.preprocessor.sequence_length, task.settings
    lengths = padded_lengths(length, model.segment_length)
    if run.backend.has_tpu:
        lengths = lengths[-1:]  # a TPU needs minutes to compile each shape
    return Batches(rows, settings.batch_size, lengths, seed=settings.seed)


def evaluator_of(run, task, model, splits):
    """Make an Evaluator; `splits` is a dict of names to lists of examples."""
    ready = {}
    for name, examples in splits.items():
        rows = encode(run, task, examples, training=False)
        ready[name] = (examples, rows, batches_of(run, task, model, rows))
    return Evaluator(
        *(task.kind(model), task.data.task, task.data.labels, ready),
        *(task.settings, run.backend, run.shows_progress),
    )


def first_lines(run, task, model):
    """Return a run's first printed lines, about task, model and devices."""
    settings, data = task.settings, task.data
    held_out = ", ".join(f"{len(x):,} {k}" for k, x in data.evaluation.items())
    start = "random weights" if settings.random_start else "weights"
    batches = batches_of(run, task, model, task.rows)
    # Rows that do not fill the last batch of an epoch are dropped.
    epochs = f"{settings.steps / max(1, batches.steps_per_epoch):.1f}"
    return [
        f"task      {data.title()}",
        f"examples  {len(data.train):,} to train on, {held_out}",
        *data.notes(),
        *task.rows.notes,
        f"model     {model.count_params():,} parameters, {start} of "
        f"{settings.preset}, {settings.precision}",
        *describe_lora(model),
        *strategy_lines(run, model),
        f"steps     {settings.steps} of {settings.batch_size} rows = {epochs} "
        f"epochs, evaluated every {settings.evaluation_interval}; "
        f"{batches.padding():.0%} of the tokens are padding",
        *task.notes,
    ]


def training_of(run, task, model, optimizer, held_out):
    """Make the loop.Training of a fine-tuning run.

    Args:
        run: loop.Run.
        task: TaskRun.
        model, optimizer: results of `build`.
        held_out: function without arguments that returns the Evaluator of the
            held-out examples.
    """
    settings = task.settings
    batches = batches_of(run, task, model, task.rows)

    def make_steps():
        steps = range(run.steps_made(), settings.steps)
        return run.backend.steps(
            *(model, optimizer, None, training_loss(task.kind(model))),
            functools.partial(batches.training, steps),
            *(settings, run.step),
        )

    def save_best():
        if run.is_chief:
            best = run.output / BEST
            model.save_to_preset(best, tokenizer=task.tokenizer)

    patience = settings.patience
    return loop.Training(
        make_steps=make_steps,
        figures=functools.partial(figures_of, settings),
        progress_text=progress_text,
        rows_of_step=functools.partial(rows_of_step, task, batches),
        advice="start again",
        save_best=save_best,
        evaluate=lambda must_stop: held_out().evaluate(must_stop),
        patience=patience and patience * settings.evaluation_interval,
    )


def training_loss(task):
    """Make the Loss of a task for training.

    Args:
        task: TaskKind with its model.
    """

    def sums(outputs, features):
        loss, weight = task.loss_sums(outputs, features)
        return loss, {"loss": loss}, weight

    outputs = functools.partial(task.outputs_of, training=True)
    return Loss(outputs, sums, ("loss",), seed_stream=1)


def figures_of(settings, report):
    """Make a dict of the figures to log for a loop of steps."""
    rows = len(report.results) * settings.batch_size
    rows_per_second = rows / max(report.seconds, 1e-9)
    return {**report.scalars(), "rows_per_second": rows_per_second}


def progress_text(kind, scalars):
    """Return the text of a progress line, see `loop.Training.progress_text`."""
    if kind == "eval":
        return f"held out  {written(scalars, '  ')}"
    return (
        f"loss {scalars['loss']:.4f}  "
        f"gradient {scalars['gradient_norm']:.2f}  "
        f"rate {scalars['learning_rate']:.2e}  "
        f"{scalars['rows_per_second']:,.1f} rows/s"
    )


def rows_of_step(task, batches, step):
    """Find the examples in a step's batch: a list with a dict for each row.

    Steps are counted from 1.
    """
    rows = []
    for row in batches.rows(step - 1):
        indices = task.rows.examples_of(row)
        examples = [task.data.train[index] for index in indices]
        ids, where = [x[0] for x in examples], [x.where for x in examples]
        rows.append({"examples": indices, "ids": ids, "where": where})
    return rows


def restore_best(run, task, model):
    """Assign the weights of the best evaluation to the model."""
    best = run.output / BEST
    if not best.is_dir():
        return
    if task.settings.lora_rank:
        verify_checksums(best, [ADAPTERS_FILE])
        model.load_lora_weights(best / ADAPTERS_FILE)
        return
    source = task.kind.model_class.from_preset(best, preprocessor=None)
    for variable, value in zip(model.weights, source.weights, strict=True):
        variable.assign(value)


def write_results(run, task, model, metrics, decoded):
    """Write the model, the results and the reports of a finished run.

    Args:
        run: loop.Run.
        task: TaskRun.
        model: Task with the best weights.
        metrics: dict of str to float, the metrics of all splits.
        decoded: list of dict, the answers to the examples of the main split.
    """
    with written_whole(run.output / MODEL_FILE) as temporary:
        model.save(temporary)
    write_all(
        run.output,
        task.data,
        task.kind(model),
        next(iter(task.data.evaluation.values())),
        decoded,
        task.rows,
        metrics=metrics,
        seed=task.settings.seed,
        steps=run.steps_made(),
        preset=task.settings.preset,
        started_from="random" if task.settings.random_start else "pretrained",
        trained_parameters=num_trained(model),
    )
    remove(run.output / CHECKPOINTS)


def predict(run, task, model):
    """Write predictions for the examples in the file of `--predict`.

    Args:
        run: loop.Run.
        task: TaskRun.
        model: Task with the best weights.

    Returns:
        (file of the examples, path of the predictions, metrics). The metrics
        are a dict, computed from the labelled examples. The dict is empty if no
        example has a label.
    """
    wait_for_peers(run.backend.strategy)  # the chief writes the results
    task.kind(model).adopt(read_results(run.output)["metrics"])
    data, file = task.data, task.settings.predict
    with warnings.catch_warnings():
        # These warnings were printed before the training.
        warnings.simplefilter("ignore", UserWarning)
        examples = reading.read_unlabelled(
            data.task, file, data.columns, data.labels
        )
    decoded = evaluator_of(run, task, model, {"": examples}).decoded("")
    predictions = run.output / PREDICTIONS_FILE
    if run.is_chief:
        write_predictions(predictions, prediction_rows(examples, decoded))
    pairs = zip(examples, decoded, strict=True)
    labelled = [x for x in pairs if reading.is_labelled(x[0])]
    if not labelled:
        return file, predictions, {}
    known, answers = map(list, zip(*labelled, strict=True))
    metrics = task.kind.score(data.task, known, answers, data.labels)
    if len(known) < len(examples):
        file = f"{file}, {len(known):,} of {len(examples):,} with a label"
    return file, predictions, metrics
