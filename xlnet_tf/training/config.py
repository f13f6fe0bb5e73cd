"""How a pretraining run trains: everything that is not the model itself."""

import dataclasses
import json
import math
import pathlib


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of a run; the model has its own config.

    Batch sizes count rows (sequences). The defaults are those of the paper and
    the released code where they do not depend on the size of the machine.

    Args:
        steps: int, optimizer steps in all.
        batch_size: int, rows of all replicas together in one step.
        gradient_accumulation_steps: int, parts that the rows of a replica are
            computed in, one after the other. Default 1.
        learning_rate: float, the peak. Default 1e-4.
        warmup_steps: int or None for 8 % of the steps, as in the paper.
        decay: "linear" (default), "cosine" or "constant".
        final_learning_rate_fraction: float, share of the peak at the end.
        weight_decay: float, default 0.01.
        adam_beta_1, adam_beta_2, adam_epsilon: floats, 0.9, 0.999, 1e-6.
        max_gradient_norm: float, default 0.25 as released; 0 for no clipping.
        next_sentence_weight: float, of next-sentence prediction's loss beside
            that of the tokens (see `XLNetPretrainer`). Default 0, as released,
            without it.
        precision: "float32" (default) or "bfloat16" (mixed: weights stay
            float32).
        jit_compile: bool, compile the step with XLA. Default False.
        rematerialize: bool, compute the layers again for the gradient instead
            of keeping their inner results: less memory, more time, the same
            numbers. Default False.
        scan_layers: bool, compile one layer and run it for all: less code,
            sooner compiled, more memory, the same numbers. Default False.
        steps_per_loop: int, steps between two looks at the progress.
        evaluation_interval: int, steps between evaluations. Default 500.
        evaluation_steps: int, batches of one evaluation at most. Default 100.
        checkpoint_interval: int, steps between checkpoints. Default 500.
        checkpoints_to_keep: int, default 3.
        hide_empty_memory: bool, mask memory that was never written and forget
            at the ends of shards. Default False: as released, zeros are
            attended and memory never resets.
        seed: int, of the initial weights, the order, the permutations and the
            dropout.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    steps: int = 1000
    batch_size: int = 32
    gradient_accumulation_steps: int = 1
    learning_rate: float = 1e-4
    warmup_steps: int | None = None
    decay: str = "linear"
    final_learning_rate_fraction: float = 0.0
    weight_decay: float = 0.01
    adam_beta_1: float = 0.9
    adam_beta_2: float = 0.999
    adam_epsilon: float = 1e-6
    max_gradient_norm: float = 0.25
    next_sentence_weight: float = 0.0
    precision: str = "float32"
    jit_compile: bool = False
    rematerialize: bool = False
    scan_layers: bool = False
    steps_per_loop: int = 20
    evaluation_interval: int = 500
    evaluation_steps: int = 100
    checkpoint_interval: int = 500
    checkpoints_to_keep: int = 3
    hide_empty_memory: bool = False
    seed: int = 0

    def __post_init__(self):
        for name in (
            "steps",
            "batch_size",
            "gradient_accumulation_steps",
            "steps_per_loop",
            "evaluation_interval",
            "evaluation_steps",
            "checkpoint_interval",
            "checkpoints_to_keep",
        ):
            self._check(name, int, lambda x: x > 0, "a positive integer")
        if self.warmup_steps is None:
            object.__setattr__(self, "warmup_steps", int(0.08 * self.steps))
        for name in ("warmup_steps", "seed"):
            self._check(name, int, lambda x: x >= 0, "an integer from 0 up")
        for name in ("learning_rate", "adam_epsilon"):
            self._check(
                name, float, lambda x: 0 < x < math.inf, "a positive number"
            )
        for name in (
            "weight_decay",
            "max_gradient_norm",
            "next_sentence_weight",
        ):
            self._check(
                name, float, lambda x: 0 <= x < math.inf, "a number from 0 up"
            )
        for name in ("adam_beta_1", "adam_beta_2"):
            self._check(name, float, lambda x: 0 <= x < 1, "in [0, 1)")
        name = "final_learning_rate_fraction"
        self._check(name, float, lambda x: 0 <= x <= 1, "in [0, 1]")
        for name in (
            "jit_compile",
            "rematerialize",
            "scan_layers",
            "hide_empty_memory",
        ):
            self._check(name, bool, lambda x: True, "true or false")
        for name, choices in (
            ("decay", ("linear", "cosine", "constant")),
            ("precision", ("float32", "bfloat16")),
        ):
            self._check(name, str, choices.__contains__, f"one of {choices}")

    def _check(self, name, kind, is_valid, expected):
        value = getattr(self, name)
        kinds = (int, float) if kind is float else kind
        right_kind = isinstance(value, kinds) and (
            kind is bool or not isinstance(value, bool)
        )
        if not right_kind or not is_valid(value):
            error = ValueError if right_kind else TypeError
            raise error(
                f"`{name}` must be {expected}. Received: {name}={value!r}."
            )

    @property
    def policy(self):
        """Keras' name of the precision."""
        return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[
            self.precision
        ]

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

    @classmethod
    def from_json(cls, path, **overrides):
        """Reads a JSON object of these fields; overrides win.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not a JSON object, or has unknown fields.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no training config at {path}.")
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a JSON file: {error}.") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} does not hold a JSON object.")
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(
                f"{path} has unknown fields: {', '.join(unknown)}. Known are: "
                f"{', '.join(known)}."
            )
        return cls(**{**values, **overrides})

    def to_dict(self):
        """All fields, ready for the constructor."""
        return dataclasses.asdict(self)
