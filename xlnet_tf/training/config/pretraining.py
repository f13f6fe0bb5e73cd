"""Settings of pretraining runs.

Loads nothing heavy, for the command lists these fields in its `--help`.
"""

import dataclasses
import re

from data_pipeline.objectives import READERS
from data_pipeline.settings import FRACTION
from data_pipeline.settings import FRACTION_BELOW_1
from data_pipeline.settings import FRACTION_BETWEEN
from data_pipeline.settings import NOT_NEGATIVE
from data_pipeline.settings import POSITIVE
from data_pipeline.settings import SEED
from data_pipeline.settings import Settings
from data_pipeline.settings import setting

# Settings of when a run evaluates, saves and ends, not of what a step learns.
WITHOUT_INFLUENCE = (
    "steps_per_loop",
    "evaluation_interval",
    "evaluation_steps",
    "checkpoint_interval",
    "checkpoint_time_interval",
    "checkpoints_to_keep",
    "exports_to_keep",
    "patience",
    "time_limit",
    "grace_period",
    "worker_timeout",
    "on_not_finite",
    "log_to",
    "profile",
)
# Units of times.
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Settings):
    """Settings of a pretraining run; the model has a config of its own.

    The defaults are those of the paper and the released code where they do not
    depend on the size of the machine. Rows are sequences.

    Example:
        ```python
        from xlnet_tf.training.config import TrainingConfig

        config = TrainingConfig(steps=1000, batch_size=16)
        config.warmup_steps  # 80
        config.replica_batch_size(num_replicas=2)  # 8
        ```

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    steps: int = setting(1000, "total optimizer steps", POSITIVE)
    batch_size: int = setting(
        32, "rows of one step, over all replicas", POSITIVE
    )
    gradient_accumulation_steps: int = setting(
        1, "micro-batches that the rows of a replica are split into", POSITIVE
    )
    learning_rate: float = setting(1e-4, "peak learning rate", POSITIVE)
    warmup_steps: int | None = setting(
        None,
        "warm-up steps of the learning rate (default 8% of the steps, as in "
        "the paper)",
        NOT_NEGATIVE,
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
    max_gradient_norm: float = setting(
        0.25,
        "global norm that gradients are clipped to; 0: no clipping",
        NOT_NEGATIVE,
    )
    objective: str = setting(
        "permutation",
        "training objective: permutation (XLNet), causal (Transformer-XL), "
        "masked (BERT) or pseudo_masked (UniLMv2)",
        choices=tuple(READERS),
    )
    order: str = setting(
        "random",
        "order in which permutation predicts targets: random, forward, "
        "backward, or block (neighbours together)",
        choices=("random", "forward", "backward", "block"),
    )
    masked_unit: str = setting(
        "words",
        "unit that masked hides: whole words, or pieces",
        choices=("words", "pieces"),
    )
    masked_fraction: float = setting(
        0.15,
        "share of the tokens that masked and pseudo_masked hide",
        FRACTION_BETWEEN,
    )
    pseudo_masked_losses: str = setting(
        "both",
        "losses that pseudo_masked trains: both, autoencoding or "
        "partially_autoregressive",
        choices=("both", "autoencoding", "partially_autoregressive"),
    )
    next_sentence_weight: float = setting(
        0.0,
        "weight of the next-sentence loss, added to that of the tokens",
        NOT_NEGATIVE,
    )
    precision: str = setting(
        "float32",
        "float32, bfloat16, or float16 for GPUs without bfloat16 (mixed "
        "precision: weights stay float32)",
        choices=("float32", "bfloat16", "float16"),
        meant={"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"},
    )
    jit_compile: bool = setting(False, "compile the step with XLA")
    rematerialize: bool = setting(
        False,
        "recompute layers in the backward pass: less memory, more time, the "
        "same results",
    )
    attention_kernel: str = setting(
        "auto",
        "auto, plain (readable), memory_efficient, or fused (for TPUs, and for "
        "GPUs on JAX); all give the same results",
        choices=("auto", "plain", "memory_efficient", "fused"),
    )
    on_not_finite: str = setting(
        "stop",
        "stop at a step whose loss or gradients are NaN or infinite, or skip "
        "it (at most 20 in a row); float16 always skips",
        choices=("stop", "skip"),
    )
    steps_per_loop: int = setting(20, "steps between progress lines", POSITIVE)
    evaluation_interval: int = setting(
        500, "steps between evaluations", POSITIVE
    )
    evaluation_steps: int = setting(
        100, "most batches of one evaluation", POSITIVE
    )
    checkpoint_interval: int = setting(
        500, "steps between checkpoints", POSITIVE
    )
    checkpoint_time_interval: str | None = setting(
        None,
        "also save a checkpoint once the newest is this old, such as 10m, at "
        "the end of a loop of --steps-per-loop (default none)",
        metavar="TIME",
    )
    checkpoints_to_keep: int = setting(
        3, "number of newest checkpoints to keep", POSITIVE
    )
    time_limit: str | None = setting(
        None,
        "stop with a checkpoint this long after the start of the command, such "
        "as 90s, 45m or 3h (default none)",
        metavar="TIME",
    )
    grace_period: float = setting(
        30.0,
        "seconds that stopping may take: --time-limit stops this much earlier",
        NOT_NEGATIVE,
    )
    worker_timeout: float = setting(
        600.0,
        "seconds that workers wait for one another, at the start and in a step",
        POSITIVE,
    )
    exports_to_keep: int = setting(
        3, "number of newest SavedModels of --export to keep", POSITIVE
    )
    hide_empty_memory: bool = setting(
        False,
        "mask memory that was never written, and reset memory at the ends of "
        "shards; by default, as released, rows attend to its zeros and it is "
        "never reset",
    )
    log_to: str = setting(
        "tensorboard",
        "tracker that losses are sent to, besides TensorBoard's files and "
        "metrics.jsonl: tensorboard (no other), wandb (Weights & Biases) or "
        "mlflow, whose client must be installed",
        choices=("tensorboard", "wandb", "mlflow"),
    )
    profile: bool = setting(
        False,
        "record the second loop of --steps-per-loop for TensorBoard's profiler",
    )
    seed: int = setting(
        0, "seed of weights, data order, permutations and dropout", SEED
    )

    def __post_init__(self):
        for name in ("time_limit", "checkpoint_time_interval"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                object.__setattr__(self, name, str(value))  # of a file
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
        for name, objectives in _OF_OBJECTIVES.items():
            value = getattr(self, name)
            is_set = value != self.__dataclass_fields__[name].default
            if is_set and self.objective not in objectives:
                raise ValueError(
                    f"`{name}` needs the objective {' or '.join(objectives)}. "
                    f"Received: {name}={value!r}, objective="
                    f"{self.objective!r}."
                )
        if self.warmup_steps is None and self.steps is not None:
            object.__setattr__(self, "warmup_steps", self._default_warmup())

    def _default_warmup(self):
        return int(0.08 * self.steps)

    @property
    def policy(self):
        """Keras' name of the precision."""
        if self.precision == "float32":
            return self.precision
        return f"mixed_{self.precision}"

    @property
    def time_limit_seconds(self):
        """float, or None without a limit."""
        return self._seconds("time_limit")

    @property
    def checkpoint_time_seconds(self):
        """float, the most time between checkpoints, or None."""
        return self._seconds("checkpoint_time_interval")

    def _seconds(self, name):
        value = getattr(self, name)
        if value is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value)
        if not found:
            raise ValueError(
                f"`{name}` must be a number of seconds, or one with the unit "
                f"s, m, h or d, such as 3h. Received: {name}={value!r}."
            )
        return float(found[1]) * _SECONDS[found[2]]

    def replica_batch_size(self, num_replicas):
        """Rows of one replica in one step.

        Raises:
            ValueError: if the batch does not divide among the replicas and
                their parts.
        """
        parts = num_replicas * self.gradient_accumulation_steps
        if self.batch_size % parts:
            raise ValueError(
                f"`batch_size` must be a multiple of {parts} = {num_replicas} "
                f"replicas x {self.gradient_accumulation_steps} accumulation "
                f"steps. Received: batch_size={self.batch_size}."
            )
        return self.batch_size // num_replicas


# Settings that only some objectives have.
_OF_OBJECTIVES = {
    "order": ("permutation",),
    "masked_unit": ("masked",),
    "masked_fraction": ("masked", "pseudo_masked"),
    "pseudo_masked_losses": ("pseudo_masked",),
}
