"""Settings of runs: each field is an option and a key of a settings file.

The commands import this module to list the fields in `--help`. The module
imports no large package, so that `--help` is fast.

Each field has an `influence`, which decides whether a resumed run may change
the field:

- `NOTHING`: the field changes no update of the weights. It decides, for
  example, when a run evaluates, saves and ends.
- `NUMBERS` (default): the field changes how a step updates the weights, or how
  the model computes answers.
- `DATA`: the field changes the order of the data, or the meaning of a
  checkpoint.
- `PLACE`: the field names files, machines or a model. Instead of such fields,
  `run.json` contains the model's config and the digests of the files.

A resumed run may not change `DATA` fields. A resumed fine-tuning run may not
change `NUMBERS` fields either.
"""

import dataclasses
import re

from data_pipeline.base.settings import FRACTION
from data_pipeline.base.settings import FRACTION_ABOVE_0
from data_pipeline.base.settings import FRACTION_BELOW_1
from data_pipeline.base.settings import FRACTION_BETWEEN
from data_pipeline.base.settings import NOT_NEGATIVE
from data_pipeline.base.settings import POSITIVE
from data_pipeline.base.settings import SEED
from data_pipeline.base.settings import Settings
from data_pipeline.base.settings import given_options
from data_pipeline.base.settings import read_file
from data_pipeline.base.settings import setting
from data_pipeline.objectives import READERS
from xlnet_tf.config.rates import RATE
from xlnet_tf.config.rates import default_rate
from xlnet_tf.config.rates import is_small
from xlnet_tf.training.recipes import recipe

NOTHING, NUMBERS, DATA, PLACE = "nothing", "numbers", "data", "place"
STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
# Unit of time -> seconds.
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Factor of the default learning rate for training adapters. Table 9 of
# https://arxiv.org/abs/2106.09685 has rates from 2e-4 to 5e-4. The rates for
# training all weights were 1e-5 to 3e-5.
LORA_RATE = 10


def names_of(cls, *influences):
    """Return the names of the settings with one of the given influences.

    Args:
        cls: PretrainingSettings or FinetuningSettings.
        *influences: some of NOTHING, NUMBERS, DATA and PLACE.

    Returns:
        tuple of str.
    """
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.metadata.get("influence", NUMBERS) in influences
    )


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """Settings that every run has, and base class of all settings."""

    output: str | None = setting(
        None, "directory of the run", metavar="DIR", influence=PLACE
    )
    preset: str | None = setting(
        None,
        "directory of the model from which training starts",
        metavar="DIR",
        influence=PLACE,
    )
    quiet: bool = setting(
        False,
        "print no progress, only results, warnings and errors",
        influence=PLACE,
    )

    def stored(self):
        """Return a dict of the settings for `run.json` and `training.json`."""
        places = names_of(type(self), PLACE)
        values = self.to_dict()
        return {k: v for k, v in values.items() if k not in places}


@dataclasses.dataclass(frozen=True)
class Optimization(RunSettings):
    """Settings of a training step, such as the batch size and weight decay."""

    batch_size: int = setting(
        32,
        "rows of one step, on all replicas together",
        POSITIVE,
        influence=DATA,
    )
    gradient_accumulation_steps: int = setting(
        1, "micro-batches of a replica in one step", POSITIVE
    )
    decay: str = setting(
        "linear",
        "decay of the learning rate after the peak: linear, cosine or constant",
        choices=("linear", "cosine", "constant"),
    )
    final_learning_rate_fraction: float = setting(
        0.0,
        "learning rate at the end of the decay, as a share of the peak",
        FRACTION,
    )
    weight_decay: float = setting(0.01, "decoupled weight decay", NOT_NEGATIVE)
    adam_beta_1: float = setting(
        0.9, "decay rate of Adam's first moment", FRACTION_BELOW_1
    )
    adam_beta_2: float = setting(
        0.999, "decay rate of Adam's second moment", FRACTION_BELOW_1
    )
    adam_epsilon: float = setting(1e-6, "Adam's epsilon", POSITIVE)
    on_not_finite: str = setting(
        "stop",
        "if loss or gradients are NaN or infinite: stop, or skip the step (at "
        "most 20 in a row); float16 always skips",
        choices=("stop", "skip"),
        influence=NOTHING,
    )

    def replica_batch_size(self, num_replicas):
        """Return the number of rows that a replica computes in a step.

        Raises:
            ValueError: if the batch cannot be divided equally among the
                micro-batches of all replicas.
        """
        parts = num_replicas * self.gradient_accumulation_steps
        if self.batch_size % parts:
            raise ValueError(
                f"`batch_size` must be a multiple of {parts} = {num_replicas} "
                f"replicas x {self.gradient_accumulation_steps} accumulation "
                f"steps. Received: batch_size={self.batch_size}."
            )
        return self.batch_size // num_replicas


@dataclasses.dataclass(frozen=True)
class Compute(RunSettings):
    """Settings of devices, compilation and precision."""

    strategy: str = setting(
        "auto",
        "distribution: auto, one_device, mirrored, multi_worker or tpu",
        choices=STRATEGIES,
        influence=PLACE,
    )
    tpu: str | None = setting(
        None, 'name or grpc:// address of a TPU, or "local"', influence=PLACE
    )
    compilation_cache: str | None = setting(
        None,
        "keep XLA's compiled programs for the next start",
        metavar="DIR",
        influence=PLACE,
    )

    precision: str = setting(
        "float32",
        "float32, bfloat16, or float16 for GPUs without bfloat16 (mixed "
        "precision: weights stay float32); auto: bfloat16 on a CPU with "
        "instructions for it, else float32",
        choices=("auto", "float32", "bfloat16", "float16"),
        meant={"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"},
    )
    jit_compile: bool = setting(False, "compile the step with XLA")
    rematerialize: bool = setting(
        False,
        "recompute layers in the backward pass, which needs less memory and "
        "more time",
    )
    attention_kernel: str = setting(
        "auto",
        "auto, plain (readable), memory_efficient, or fused (for TPUs, and for "
        "GPUs on JAX); all give the same results",
        choices=("auto", "plain", "memory_efficient", "fused"),
    )
    shard_optimizer: bool = setting(
        False,
        "divide Adam's moments among the devices (ZeRO-1), on JAX: less memory "
        "on each device, equal results",
        influence=PLACE,
    )
    coordinator: str | None = setting(
        None,
        "HOST:PORT of worker 0, where the workers meet, on JAX (default: as "
        "JAX finds it on Cloud TPU, Slurm or Open MPI)",
        metavar="ADDRESS",
        influence=PLACE,
    )
    num_workers: int | None = setting(
        None,
        "number of workers of --coordinator",
        POSITIVE,
        influence=PLACE,
    )
    worker_index: int | None = setting(
        None,
        "index of this worker, from 0; worker 0 writes the files",
        NOT_NEGATIVE,
        influence=PLACE,
    )
    worker_timeout: float = setting(
        600.0,
        "seconds that workers wait for each other, at the start and in a step",
        POSITIVE,
        influence=NOTHING,
    )

    def __post_init__(self):
        super().__post_init__()
        names = ("coordinator", "num_workers", "worker_index")
        values = {name: getattr(self, name) for name in names}
        given = ", ".join(f"{k}={v!r}" for k, v in values.items())
        if len({value is None for value in values.values()}) > 1:
            raise ValueError(
                "`coordinator`, `num_workers` and `worker_index` go together. "
                f"Received: {given}."
            )
        if (self.worker_index or 0) >= (self.num_workers or 1):
            raise ValueError(
                "`worker_index` must be from 0 to `num_workers` - 1. "
                f"Received: {given}."
            )

    @property
    def policy(self):
        """Name of Keras' dtype policy for the field `precision`, str."""
        if self.precision == "float32":
            return self.precision
        return f"mixed_{self.precision}"


@dataclasses.dataclass(frozen=True)
class Schedule(RunSettings):
    """Settings that decide when a run logs, saves checkpoints and ends."""

    steps_per_loop: int = setting(
        20, "steps between progress lines", POSITIVE, influence=NOTHING
    )
    checkpoint_time_interval: str | None = setting(
        None,
        "also save a checkpoint after a loop of --steps-per-loop if the newest "
        "checkpoint is older than this time, such as 10m (default none)",
        metavar="TIME",
        influence=NOTHING,
    )
    checkpoints_to_keep: int = setting(
        3, "number of newest checkpoints to keep", POSITIVE, influence=NOTHING
    )
    time_limit: str | None = setting(
        None,
        "save a checkpoint and stop the run at this time after the command's "
        "start, such as 90s, 45m or 3h (default none)",
        metavar="TIME",
        influence=NOTHING,
    )
    grace_period: float = setting(
        30.0,
        "seconds before --time-limit at which the run begins to stop",
        NOT_NEGATIVE,
        influence=NOTHING,
    )
    log_to: str = setting(
        "tensorboard",
        "service that the losses are also sent to: wandb (Weights & Biases) or "
        "mlflow, whose client must be installed; tensorboard: write only "
        "TensorBoard's files and metrics.jsonl",
        choices=("tensorboard", "wandb", "mlflow"),
        influence=NOTHING,
    )
    profile: bool = setting(
        False,
        "record the second loop of --steps-per-loop for TensorBoard's profiler",
        influence=NOTHING,
    )

    def __post_init__(self):
        for name in ("time_limit", "checkpoint_time_interval"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                # A file may give a time as a number of seconds.
                object.__setattr__(self, name, str(value))
        super().__post_init__()
        if self.checkpoint_time_seconds == 0:
            raise ValueError(
                "`checkpoint_time_interval` must be more than 0. Received: "
                f"checkpoint_time_interval={self.checkpoint_time_interval!r}."
            )
        limit = self.time_limit_seconds
        if limit is not None and limit <= self.grace_period:
            raise ValueError(
                "`time_limit` must be more than `grace_period`, which is kept "
                f"for stopping. Received: time_limit={self.time_limit!r}, "
                f"grace_period={self.grace_period}."
            )

    @property
    def time_limit_seconds(self):
        """Time limit in seconds, float; None without a limit."""
        return self._seconds("time_limit")

    @property
    def checkpoint_time_seconds(self):
        """Longest time between checkpoints in seconds, float or None."""
        return self._seconds("checkpoint_time_interval")

    def _seconds(self, name):
        value = getattr(self, name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value)
        if not match:
            raise ValueError(
                f"`{name}` must be a number of seconds, or one with the unit "
                f"s, m, h or d, such as 3h. Received: {name}={value!r}."
            )
        return float(match[1]) * _SECONDS[match[2]]


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(Schedule, Compute, Optimization):
    """Settings of a pretraining run.

    The settings do not contain the model's config: `config` or `preset` names
    it. The defaults come from the paper and the released code, except for
    settings that depend on the size of the machine. Each row of a batch is a
    sequence of tokens from the records.

    Example:
        ```python
        from xlnet_tf.training.settings import PretrainingSettings

        settings = PretrainingSettings(steps=1000, batch_size=16)
        settings.warmup_steps  # 80
        settings.replica_batch_size(num_replicas=2)  # 8
        ```

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    records: tuple[str, ...] = setting(
        (),
        "outputs of build_records; several sets are mixed by the weights in "
        "DIR=WEIGHT, or by their sizes",
        metavar="DIR",
        influence=PLACE,
    )
    eval_records: str | None = setting(
        None, "records for the evaluation", metavar="DIR", influence=PLACE
    )
    skip_corrupt: bool = setting(False, "skip damaged records", influence=PLACE)
    data_service: str | None = setting(
        None,
        "grpc://HOST:PORT of a tf.data service whose workers read the records "
        "at the same path",
        metavar="ADDRESS",
        influence=PLACE,
    )
    config: str | None = setting(
        None,
        "config of the model: tiny, small, base, large, or an "
        "xlnet_config.json (default: the recipe's config, otherwise base)",
        influence=PLACE,
    )
    backbone: str = setting(
        "xlnet",
        "architecture of the model that --config names: xlnet, or bert, which "
        "has absolute positions and no memory",
        choices=("xlnet", "bert"),
        influence=PLACE,
    )
    set: tuple[str, ...] = setting(
        (),
        "replace fields of the model's config, such as num_layers=6",
        metavar="NAME=VALUE",
        influence=PLACE,
    )
    memory_length: int | None = setting(
        None,
        "tokens in the memory (default: the config's memory length, otherwise "
        "3/4 of a record)",
        NOT_NEGATIVE,
        influence=PLACE,
    )
    export: str | None = setting(
        None,
        "write SavedModels to DIR/STEP",
        metavar="DIR",
        influence=PLACE,
    )
    steps: int = setting(1000, "total optimizer steps", POSITIVE)
    learning_rate: float = setting(1e-4, "peak learning rate", POSITIVE)
    warmup_steps: int | None = setting(
        None,
        "warm-up steps of the learning rate (default 8% of the steps, as in "
        "the paper)",
        NOT_NEGATIVE,
    )
    max_gradient_norm: float = setting(
        0.25,
        "largest global norm, to which gradients are clipped; 0: no clipping",
        NOT_NEGATIVE,
    )
    objective: str = setting(
        "permutation",
        "training objective: permutation (XLNet), causal (Transformer-XL), "
        "masked (BERT) or pseudo_masked (UniLMv2)",
        choices=tuple(READERS),
        influence=DATA,
    )
    order: str = setting(
        "random",
        "order in which the objective permutation predicts targets: random, "
        "forward, backward, or block (neighbouring targets together)",
        choices=("random", "forward", "backward", "block"),
        influence=DATA,
    )
    masked_unit: str = setting(
        "words",
        "unit that the objective masked hides: words or pieces",
        choices=("words", "pieces"),
        influence=DATA,
    )
    masked_fraction: float = setting(
        0.15,
        "share of the tokens that the objectives masked and pseudo_masked hide",
        FRACTION_BETWEEN,
        influence=DATA,
    )
    pseudo_masked_losses: str = setting(
        "both",
        "losses of the objective pseudo_masked: both, autoencoding or "
        "partially_autoregressive",
        choices=("both", "autoencoding", "partially_autoregressive"),
        influence=DATA,
    )
    next_sentence_weight: float = setting(
        0.0,
        "weight of the next-sentence loss, which is added to the token loss",
        NOT_NEGATIVE,
        influence=DATA,
    )
    hide_empty_memory: bool = setting(
        False,
        "mask unwritten memory, and reset memory at the end of each shard; by "
        "default, as in the released code, rows attend to the zeros of "
        "unwritten memory, and memory is never reset",
        influence=DATA,
    )
    evaluation_interval: int = setting(
        500, "steps between evaluations", POSITIVE, influence=NOTHING
    )
    evaluation_steps: int = setting(
        100, "maximum batches of one evaluation", POSITIVE, influence=NOTHING
    )
    checkpoint_interval: int = setting(
        500, "steps between checkpoints", POSITIVE, influence=NOTHING
    )
    exports_to_keep: int = setting(
        3,
        "number of newest SavedModels of --export to keep",
        POSITIVE,
        influence=NOTHING,
    )
    seed: int = setting(
        0,
        "seed of weights, data order, permutations and dropout",
        SEED,
        influence=DATA,
    )

    def __post_init__(self):
        super().__post_init__()
        for name, objectives in _OF_OBJECTIVES.items():
            value = getattr(self, name)
            is_set = value != self.__dataclass_fields__[name].default
            if is_set and self.objective not in objectives:
                raise ValueError(
                    f"`{name}` needs the objective {' or '.join(objectives)}. "
                    f"Received: {name}={value!r}, objective="
                    f"{self.objective!r}."
                )
        if self.warmup_steps is None:
            object.__setattr__(self, "warmup_steps", int(0.08 * self.steps))


# Name of a setting -> objectives that use the setting.
_OF_OBJECTIVES = {
    "order": ("permutation",),
    "masked_unit": ("masked",),
    "masked_fraction": ("masked", "pseudo_masked"),
    "pseudo_masked_losses": ("pseudo_masked",),
}


@dataclasses.dataclass(frozen=True)
class FinetuningSettings(Schedule, Compute, Optimization):
    """Settings of a fine-tuning run.

    Each row of a batch is an example or a part of an example: a text, a pair of
    texts, a question with its options, a query with its documents, or a window
    of a long context.

    Example:
        ```python
        from xlnet_tf.training.settings import FinetuningSettings

        options = {"batch_size": 16}
        settings = FinetuningSettings.for_task("rte", options=options)
        settings.resolve(steps_per_epoch=155).steps  # 5 epochs: 775
        ```

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    task: str | None = setting(
        None, "name of a task in the list of --help", influence=PLACE
    )
    data: str | None = setting(
        None,
        "directory, archive or file of the task's examples (default: fetched "
        "by the task's name through TensorFlow Datasets)",
        metavar="PATH",
        influence=PLACE,
    )
    eval_data: str | None = setting(
        None,
        "file or directory of examples for the evaluation",
        metavar="PATH",
        influence=PLACE,
    )
    columns: str | None = setting(
        None,
        'columns to read: "text=review,label=stars"',
        metavar="COLUMNS",
        influence=PLACE,
    )
    random_start: bool = setting(
        False,
        "use the preset's config and tokenizer, and random weights",
        influence=PLACE,
    )
    seeds: int | None = setting(
        None,
        "train this many runs with different seeds, and report the median and "
        "the spread",
        POSITIVE,
        influence=PLACE,
    )
    predict: str | None = setting(
        None,
        "file of examples that are predicted at the end",
        metavar="FILE",
        influence=PLACE,
    )
    steps: int | None = setting(None, "total optimizer steps", POSITIVE)
    epochs: float = setting(
        3.0, "epochs over the examples, without --steps", POSITIVE
    )
    warmup_steps: int | None = setting(
        None,
        "warm-up steps of the learning rate (default 10% of the steps)",
        NOT_NEGATIVE,
    )
    learning_rate: float | None = setting(
        None,
        "peak learning rate (default 5e-4 for models with a width of at most "
        "256, else the rate in the task's recipe, otherwise 2e-5)",
        POSITIVE,
    )
    max_gradient_norm: float = setting(
        1.0,
        "largest global norm, to which gradients are clipped; 0: no clipping",
        NOT_NEGATIVE,
    )
    evaluation_interval: int | None = setting(
        None,
        "steps between evaluations (default: ten evaluations in a run)",
        POSITIVE,
        influence=NOTHING,
    )
    checkpoint_interval: int | None = setting(
        None,
        "steps between checkpoints (default --evaluation-interval)",
        POSITIVE,
        influence=NOTHING,
    )
    seed: int = setting(
        0, "seed of the head, data order and dropout", SEED, influence=DATA
    )
    sequence_length: int | None = setting(
        None,
        "maximum tokens of a sequence (default: the task's length)",
        POSITIVE,
    )
    layer_decay: float = setting(
        1.0,
        "ratio of the learning rates of a layer and the layer above it; the "
        "paper uses 0.75 for SQuAD",
        FRACTION_ABOVE_0,
    )
    layer_decay_on: str = setting(
        "step",
        "apply the layer decay to the step, or to the gradient, as the "
        "released code does, where Adam mostly undoes the decay",
        choices=("step", "gradient"),
    )
    lora_rank: int | None = setting(
        None,
        "train only the head and adapters (LoRA) of this rank (default: all "
        "weights); the default learning rate is then 10 times larger",
        POSITIVE,
    )
    lora_alpha: float | None = setting(
        None, "scale adapters by alpha / rank (default the rank)", POSITIVE
    )
    dropout: float | None = setting(
        None,
        "dropout rate of the model and its head (default: the preset's rate)",
        FRACTION_BELOW_1,
    )
    attention_dropout: float | None = setting(
        None,
        "dropout rate of the attention probabilities (default: the preset's "
        "rate)",
        FRACTION_BELOW_1,
    )
    class_weights: str = setting(
        "none",
        "none, or balanced, so that all classes have equal shares of the loss",
        choices=("none", "balanced"),
    )
    patience: int | None = setting(
        None,
        "stop after this many evaluations without a better main metric "
        "(default never)",
        POSITIVE,
        influence=NOTHING,
    )
    hold_out: float = setting(
        0.1,
        "share of the training examples that is held out if the task has no "
        "evaluation examples",
        FRACTION_BETWEEN,
    )
    long_documents: str = setting(
        "truncate",
        "handling of texts longer than the sequence length: truncate, windows "
        "(average the windows' scores), or memory (read one segment after the "
        "other)",
        choices=("truncate", "windows", "memory"),
    )
    stride: int | None = setting(
        None,
        "tokens between the starts of windows (default 128 for questions, half "
        "a window for texts)",
        POSITIVE,
    )
    document_length: int | None = setting(
        None,
        "maximum tokens of a text read with memory (default 8 segments)",
        POSITIVE,
    )
    max_question_length: int = setting(
        64, "maximum pieces of a question", POSITIVE
    )
    fill_blanks: bool = setting(
        True,
        "insert each option at the _ of its question, as the released code "
        "does, instead of after the question",
    )
    max_answer_length: int = setting(
        64, "maximum pieces of an answer", POSITIVE
    )
    n_best_size: int = setting(
        5, "number of answers that are kept for each question", POSITIVE
    )
    num_documents: int = setting(
        8,
        "number of documents of a query that the loss compares at once",
        POSITIVE,
    )
    target_length: int = setting(
        64,
        "maximum tokens of a target; the source gets the rest of the sequence "
        "length",
        POSITIVE,
    )
    label_smoothing: float = setting(
        0.1,
        "share of a target token's probability that is spread over all tokens",
        FRACTION_BELOW_1,
    )
    target_corruption: float = setting(
        0.5,
        "share of a target's tokens that are masked or replaced in training "
        "when they are inputs of later tokens",
        FRACTION_BELOW_1,
    )
    num_beams: int = setting(
        4, "number of beams for generating targets", POSITIVE
    )
    length_penalty: float = setting(
        0.6,
        "effect of the length on a target's score; with a larger value longer "
        "targets score higher",
        NOT_NEGATIVE,
    )
    no_repeat_ngram: int = setting(
        0,
        "size of n-grams that may occur only once in a target; 0: no limit",
        NOT_NEGATIVE,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ValueError(
                "`lora_alpha` scales adapters: give `lora_rank` too. Received: "
                f"lora_alpha={self.lora_alpha}, lora_rank=None."
            )

        if self.warmup_steps is None and self.steps is not None:
            object.__setattr__(self, "warmup_steps", self.steps // 10)

    @classmethod
    def for_task(cls, task, path=None, options=None):
        """Make settings from a task's recipe, a file and options.

        Options override the file, and the file overrides the recipe. If epochs
        or steps are given, they replace the recipe's epochs, steps and warm-up.
        A learning rate that is not given is None until `for_model` sets it.

        Args:
            task: str, name of the task.
            path: str or path of a JSON or YAML file, or None (default).
            options: argparse.Namespace or dict, or None (default).

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError, TypeError: if values are wrong or contradict each other.
        """
        given = given_options(cls, options)
        if {"steps", "epochs"} <= set(given):
            raise ValueError("give either --steps or --epochs, not both.")
        from_file = read_file(cls, path) if path else {}
        if "epochs" in given:
            from_file.pop("steps", None)
        given = {**from_file, **given}
        defaults = recipe(task)
        # The learning rate depends on the model too, see `for_model`.
        defaults.pop("learning_rate", None)
        if {"steps", "epochs"} & set(given):
            # The recipe's warm-up fits only the recipe's number of steps.
            for name in ("steps", "epochs", "warmup_steps"):
                defaults.pop(name, None)
        return cls(**{**defaults, "task": task, **given})

    def check_model(self, model_config):
        """Refuse settings that a model does not support.

        Args:
            model_config: XLNetConfig or BertConfig.

        Raises:
            ValueError: if a setting is not supported.
        """
        has_memory = "memory_length" in model_config.to_dict()
        if self.long_documents == "memory" and not has_memory:
            raise ValueError(
                '`long_documents` "memory" needs a model with memory, which a '
                'BERT does not have. Use "windows" or "truncate".'
            )

    def for_model(self, task, model_config):
        """Set a model's default learning rate if no learning rate is given.

        Args:
            task: str, name of the task.
            model_config: XLNetConfig or BertConfig.

        Returns:
            (FinetuningSettings with a learning rate, list of str). If a small
            model gets its default rate, the list has one line, which gives the
            rate. Otherwise the list is empty.
        """
        if self.learning_rate is not None:
            return self, []
        width = model_config.hidden_dim
        rate = default_rate(width, recipe(task).get("learning_rate", RATE))
        if self.lora_rank:
            # Adapters have few weights and start at zero.
            rate *= LORA_RATE
        notes = []
        if is_small(width):
            shown = f"{rate:.0e}".replace("e-0", "e-")
            notes.append(
                f"rate      {shown}, as the model is small (width {width}); "
                "--learning-rate sets it"
            )
        return dataclasses.replace(self, learning_rate=rate), notes

    def resolve(self, steps_per_epoch):
        """Compute all numbers of steps that are not given.

        Args:
            steps_per_epoch: int, number of steps of an epoch.

        Returns:
            FinetuningSettings.
        """
        steps = self.steps or max(1, round(self.epochs * steps_per_epoch))
        interval = self.evaluation_interval or -(-steps // 10)
        return dataclasses.replace(
            self,
            steps=steps,
            evaluation_interval=interval,
            checkpoint_interval=self.checkpoint_interval or interval,
            # Evaluations and checkpoints happen between loops.
            steps_per_loop=min(self.steps_per_loop, interval),
        )
