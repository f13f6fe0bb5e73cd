"""Settings of runs: each field is an option, a key of a file, and its help.

Loads nothing heavy, for the commands list these fields in their `--help`.
"""

import dataclasses
import re

from data_pipeline.settings import FRACTION
from data_pipeline.settings import FRACTION_ABOVE_0
from data_pipeline.settings import FRACTION_BELOW_1
from data_pipeline.settings import FRACTION_BETWEEN
from data_pipeline.settings import NOT_NEGATIVE
from data_pipeline.settings import POSITIVE
from data_pipeline.settings import Settings
from data_pipeline.settings import given_options
from data_pipeline.settings import read_file
from data_pipeline.settings import setting
from xlnet_tf.training.recipes import recipe

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
        "what is predicted: permutation (XLNet), causal (Transformer-XL) or "
        "masked (BERT)",
        choices=("permutation", "causal", "masked"),
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
        0.15, "share of the tokens that masked hides", FRACTION_BETWEEN
    )
    next_sentence_weight: float = setting(
        0.0,
        "weight of the next-sentence loss beside that of the tokens",
        NOT_NEGATIVE,
    )
    precision: str = setting(
        "float32",
        "float32, or bfloat16 (mixed: weights stay float32)",
        choices=("float32", "bfloat16"),
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
        "auto, plain (readable), or memory_efficient (fast), the same numbers",
        choices=("auto", "plain", "memory_efficient"),
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
    exports_to_keep: int = setting(
        3, "newest SavedModels of --export kept", POSITIVE
    )
    hide_empty_memory: bool = setting(
        False,
        "mask memory that was never written and reset it at the ends of "
        "shards; as released, zeros are attended and memory never resets",
    )
    seed: int = setting(
        0, "seed of weights, order, permutations and dropout", NOT_NEGATIVE
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
        return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[
            self.precision
        ]

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
    "masked_fraction": ("masked",),
}
# Fields that only pretraining uses; fine-tuning accepts them in a file.
PRETRAINING_ONLY = (
    "objective",
    "order",
    "masked_unit",
    "masked_fraction",
    "next_sentence_weight",
    "evaluation_steps",
    "exports_to_keep",
    "hide_empty_memory",
)


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(TrainingConfig):
    """Settings of a fine-tuning run: those of TrainingConfig, and these.

    A row is a text, a pair, a question with its options, a query with its
    documents, or a window of a context.

    Example:
        ```python
        from xlnet_tf.training.config import FinetuningConfig

        config = FinetuningConfig.for_task("rte", options={"batch_size": 16})
        config.resolve(steps_per_epoch=155).steps  # 5 epochs: 775
        ```

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    steps: int | None = setting(None, "optimizer steps in all", POSITIVE)
    epochs: float = setting(
        3.0, "passes over the examples, unless --steps is given", POSITIVE
    )
    warmup_steps: int | None = setting(
        None, "steps until the peak (default 10% of the steps)", NOT_NEGATIVE
    )
    learning_rate: float = setting(2e-5, "peak of the learning rate", POSITIVE)
    max_gradient_norm: float = setting(
        1.0,
        "norm that gradients are clipped to, 0 for no clipping",
        NOT_NEGATIVE,
    )
    evaluation_interval: int | None = setting(
        None, "steps between evaluations (default ten in the run)", POSITIVE
    )
    checkpoint_interval: int | None = setting(
        None, "steps between checkpoints (default as evaluations)", POSITIVE
    )
    seed: int = setting(0, "seed of head, order and dropout", NOT_NEGATIVE)
    sequence_length: int | None = setting(
        None, "tokens at most (default the task's)", POSITIVE
    )
    layer_decay: float = setting(
        1.0,
        "share of the learning rate that each layer has of the one above it; "
        "0.75 for SQuAD in the paper",
        FRACTION_ABOVE_0,
    )
    layer_decay_on: str = setting(
        "step",
        "step, or gradient as released, which Adam mostly undoes",
        choices=("step", "gradient"),
    )
    dropout: float | None = setting(
        None,
        "dropout of the model and its head (default the preset's)",
        FRACTION_BELOW_1,
    )
    attention_dropout: float | None = setting(
        None,
        "dropout of attention probabilities (default the preset's)",
        FRACTION_BELOW_1,
    )
    class_weights: str = setting(
        "none",
        "none, or balanced: each class counts as much as any other",
        choices=("none", "balanced"),
    )
    patience: int | None = setting(
        None,
        "evaluations without a better main metric until the run stops "
        "(default never)",
        POSITIVE,
    )
    hold_out: float = setting(
        0.1,
        "share of the training examples kept for evaluation where the task "
        "has no other",
        FRACTION_BETWEEN,
    )
    long_documents: str = setting(
        "truncate",
        "texts beyond the sequence length: truncate, windows (scores are "
        "averaged), or memory (segments in turn)",
        choices=("truncate", "windows", "memory"),
    )
    stride: int | None = setting(
        None,
        "tokens between windows (default 128 for questions, half a window for "
        "texts)",
        POSITIVE,
    )
    document_length: int | None = setting(
        None,
        "tokens at most of a text read with memory (default 8 segments)",
        POSITIVE,
    )
    max_question_length: int = setting(64, "pieces of a question", POSITIVE)
    fill_blanks: bool | None = setting(
        None,
        "put an option in place of each _ of its question, as released, or "
        "behind every question (default in place; a resumed run goes on as "
        "it began)",
    )
    max_answer_length: int = setting(64, "pieces of an answer", POSITIVE)
    n_best_size: int = setting(5, "answers kept for a question", POSITIVE)
    num_documents: int = setting(
        8, "documents of a query that are compared at once", POSITIVE
    )

    def _default_warmup(self):
        return self.steps // 10

    @classmethod
    def for_task(cls, task, path=None, options=None):
        """Settings of a task's recipe, of a file and of options.

        Options win over the file, the file over the recipe. Given epochs or
        steps replace both of the recipe, and its warm-up.

        Args:
            task: str, its name.
            path: str or path of a JSON or YAML file, or None.
            options: argparse.Namespace or dict, or None.

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
        if {"steps", "epochs"} & set(given):
            # The recipe's warm-up belongs to its own number of steps.
            for name in ("steps", "epochs", "warmup_steps"):
                defaults.pop(name, None)
        return cls(**{**defaults, **given})

    def resolve(self, steps_per_epoch):
        """The config with all numbers of steps known.

        Args:
            steps_per_epoch: int.

        Returns:
            FinetuningConfig.
        """
        steps = self.steps or max(1, round(self.epochs * steps_per_epoch))
        interval = self.evaluation_interval or -(-steps // 10)
        return dataclasses.replace(
            self,
            steps=steps,
            evaluation_interval=interval,
            checkpoint_interval=self.checkpoint_interval or interval,
            # Evaluations and checkpoints come between two loops.
            steps_per_loop=min(self.steps_per_loop, interval),
        )
