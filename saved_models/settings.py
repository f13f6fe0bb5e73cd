"""What an export can be told: sizes, precision, static shapes."""

import dataclasses

PRECISIONS = ("float32", "bfloat16", "int8")


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """How a model is exported.

    Args:
        sequence_length: int, tokens of a text at most, [SEP] and [CLS]
            included; longer texts lose their end. Default the largest bucket;
            without buckets that of the task's preprocessor, where fine-tuning
            leaves its own (`for_model`); else 512.
        num_candidates: int, tokens returned for every blank. Default 5.
        precision: "float32" (default: the model's own), "bfloat16" (weights
            and activations) or "int8" (kernels and embeddings are stored in 8
            bits and computed with in the model's own precision).
        seq_length_buckets: tuple of int, rising. Every batch is padded to the
            smallest that fits, so that the model sees these lengths alone.
            Default (): the length of the longest text.
        max_batch: int, rows that the model computes at once; larger requests
            are computed piece by piece. Default None: no limit.
        jit_compile: bool, whether the model is compiled by XLA. Rows and
            blanks are then padded to powers of two. Default False.
        memory_length: int, states of a document that `document_segment`
            carries on; 0 leaves that signature out. Default None: that of the
            model, or `sequence_length` if it has none.
        window_stride: int, of classifiers and regressors: a text that is too
            long is read in windows that begin so many tokens after each other,
            and what the model says of them is averaged. Default None: the text
            loses its end.

    Raises:
        ValueError: if a value is out of its range.
    """

    sequence_length: int | None = None
    num_candidates: int = 5
    precision: str = "float32"
    seq_length_buckets: tuple = ()
    max_batch: int | None = None
    jit_compile: bool = False
    memory_length: int | None = None
    window_stride: int | None = None

    def __post_init__(self):
        buckets = tuple(self.seq_length_buckets)
        object.__setattr__(self, "seq_length_buckets", buckets)
        if list(buckets) != sorted(set(buckets)):
            raise ValueError(
                "`seq_length_buckets` must rise. "
                f"Received: seq_length_buckets={buckets}."
            )
        if self.sequence_length is None:
            length = buckets[-1] if buckets else 512
            object.__setattr__(self, "sequence_length", length)
        if min((self.sequence_length, *buckets)) < 3:
            raise ValueError(
                "`sequence_length` and every bucket must be at least 3: a "
                "token, [SEP] and [CLS]. Received: sequence_length="
                f"{self.sequence_length}, seq_length_buckets={buckets}."
            )
        if buckets and buckets[-1] != self.sequence_length:
            raise ValueError(
                "the largest bucket must be `sequence_length`. Received: "
                f"sequence_length={self.sequence_length}, "
                f"seq_length_buckets={buckets}."
            )
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"`precision` must be one of {', '.join(PRECISIONS)}. "
                f"Received: precision={self.precision!r}."
            )
        if self.max_batch is not None and self.max_batch < 1:
            raise ValueError(
                "`max_batch` must be at least 1. "
                f"Received: max_batch={self.max_batch}."
            )
        if self.memory_length is not None and self.memory_length < 0:
            raise ValueError(
                "`memory_length` must be at least 0. "
                f"Received: memory_length={self.memory_length}."
            )
        room = self.sequence_length - 2
        if self.window_stride is not None and not (
            1 <= self.window_stride <= room
        ):
            raise ValueError(
                f"`window_stride` must lie between 1 and {room}, the tokens "
                "of a window without [SEP] and [CLS]. Received: "
                f"window_stride={self.window_stride}."
            )

    @classmethod
    def for_model(cls, model, **settings):
        """The settings, with the defaults that a model has of its own.

        Args:
            model: XLNetBackbone or a task.
            **settings: see the class.

        Returns:
            ExportSettings.
        """
        preprocessor = getattr(model, "preprocessor", None)
        if (
            preprocessor is not None
            and settings.get("sequence_length") is None
            and not settings.get("seq_length_buckets")
        ):
            settings["sequence_length"] = preprocessor.sequence_length
        return cls(**settings)

    def memory_of(self, config):
        """M, states that `document_segment` carries on, for a config."""
        if self.memory_length is not None:
            return self.memory_length
        return config.memory_length or self.sequence_length
