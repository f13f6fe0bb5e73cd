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

# They decide when a run evaluates, saves and ends, not what a step learns.
WITHOUT_INFLUENCE = (
    "steps_per_loop",
    "evaluation_interval",
    "evaluation_steps",
    "checkpoint_interval",
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
# Units of `time_limit`.
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

    steps: int = setting(1000, "optimizer steps in all", POSITIVE)
    batch_size: int = setting(
        32, "rows of all replicas together in one step", POSITIVE
    )
    gradient_accumulation_steps: int = setting(
        1, "parts that the rows of a replica are computed in, in turn", POSITIVE
    )
    learning_rate: float = setting(1e-4, "peak of the learning rate", POSITIVE)
    warmup_steps: int | None = setting(
        None,
        "steps until the peak (default 8% of the steps, as in the paper)",
        NOT_NEGATIVE,
    )
    decay: str = setting(
        "linear",
        "fall of the learning rate: linear, cosine or constant",
        choices=("linear", "cosine", "constant"),
    )
    final_learning_rate_fraction: float = setting(
        0.0, "share of the peak at the last step", FRACTION
    )
    weight_decay: float = setting(0.01, "decoupled weight decay", NOT_NEGATIVE)
    adam_beta_1: float = setting(
        0.9, "decay of Adam's first moment", FRACTION_BELOW_1
    )
    adam_beta_2: float = setting(
        0.999, "decay of Adam's second moment", FRACTION_BELOW_1
    )
    adam_epsilon: float = setting(1e-6, "Adam's epsilon", POSITIVE)
    max_gradient_norm: float = setting(
        0.25,
        "norm that gradients are clipped to, 0 for no clipping",
        NOT_NEGATIVE,
    )
    objective: str = setting(
        "permutation",
        "what is predicted: permutation (XLNet), causal (Transformer-XL), "
        "masked (BERT) or pseudo_masked (UniLMv2)",
        choices=tuple(READERS),
    )
    order: str = setting(
        "random",
        "order of the targets of permutation: random, forward, backward, or "
        "block (neighbours together)",
        choices=("random", "forward", "backward", "block"),
    )
    masked_unit: str = setting(
        "words",
        "what masked hides: whole words, or pieces",
        choices=("words", "pieces"),
    )
    masked_fraction: float = setting(
        0.15,
        "share of the tokens that masked and pseudo_masked hide",
        FRACTION_BETWEEN,
    )
    pseudo_masked_losses: str = setting(
        "both",
        "losses of pseudo_masked that are trained: both, autoencoding or "
        "partially_autoregressive",
        choices=("both", "autoencoding", "partially_autoregressive"),
    )
    next_sentence_weight: float = setting(
        0.0,
        "weight of the next-sentence loss beside that of the tokens",
        NOT_NEGATIVE,
    )
    precision: str = setting(
        "float32",
        "float32, bfloat16, or float16 for GPUs without bfloat16 (mixed: "
        "weights stay float32)",
        choices=("float32", "bfloat16", "float16"),
    )
    jit_compile: bool = setting(False, "compile the step with XLA")
    rematerialize: bool = setting(
        False,
        "recompute layers in the backward pass: less memory, more time, the "
        "same numbers",
    )
    scan_layers: bool = setting(
        False,
        "compile one layer and run it for all: sooner compiled, more memory, "
        "the same numbers",
    )
    attention_kernel: str = setting(
        "auto",
        "auto, plain (readable), memory_efficient, or fused (of a TPU, and of "
        "a GPU on JAX), the same numbers",
        choices=("auto", "plain", "memory_efficient", "fused"),
    )
    on_not_finite: str = setting(
        "stop",
        "at a step whose loss or gradients are NaN or infinite: stop, or skip "
        "it (20 in a row at most), as with float16 in any case",
        choices=("stop", "skip"),
    )
    steps_per_loop: int = setting(20, "steps between progress lines", POSITIVE)
    evaluation_interval: int = setting(
        500, "steps between evaluations", POSITIVE
    )
    evaluation_steps: int = setting(
        100, "batches of one evaluation at most", POSITIVE
    )
    checkpoint_interval: int = setting(
        500, "steps between checkpoints", POSITIVE
    )
    checkpoints_to_keep: int = setting(3, "newest checkpoints kept", POSITIVE)
    time_limit: str | None = setting(
        None,
        "time from the start of the command until it stops with a checkpoint, "
        "such as 90s, 45m or 3h (default none)",
        metavar="TIME",
    )
    grace_period: float = setting(
        30.0,
        "seconds that stopping may take: --time-limit stops so much earlier",
        NOT_NEGATIVE,
    )
    worker_timeout: float = setting(
        600.0,
        "seconds that workers wait for one another, at the start and in a step",
        POSITIVE,
    )
    exports_to_keep: int = setting(
        3, "newest SavedModels of --export kept", POSITIVE
    )
    hide_empty_memory: bool = setting(
        False,
        "mask memory that was never written and reset it at the ends of "
        "shards; as released, zeros are attended and memory never resets",
    )
    log_to: str = setting(
        "tensorboard",
        "where losses go beside TensorBoard's files and metrics.jsonl: "
        "tensorboard, wandb (Weights & Biases) or mlflow, whose client has to "
        "be installed",
        choices=("tensorboard", "wandb", "mlflow"),
    )
    profile: bool = setting(
        False,
        "record the second loop of --steps-per-loop for TensorBoard's profiler",
    )
    seed: int = setting(
        0, "seed of weights, order, permutations and dropout", SEED
    )

    def __post_init__(self):
        limit = self.time_limit
        if isinstance(limit, (int, float)) and not isinstance(limit, bool):
            object.__setattr__(self, "time_limit", str(limit))  # of a file
        super().__post_init__()
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
                    f"`{name}` is of the objective {' and '.join(objectives)}. "
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
        if self.time_limit is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", self.time_limit)
        if not found:
            raise ValueError(
                "`time_limit` must be a number of seconds, or one with the "
                "unit s, m, h or d, such as 3h. Received: "
                f"time_limit={self.time_limit!r}."
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


# Settings of some objectives alone.
_OF_OBJECTIVES = {
    "order": ("permutation",),
    "masked_unit": ("masked",),
    "masked_fraction": ("masked", "pseudo_masked"),
    "pseudo_masked_losses": ("pseudo_masked",),
}
