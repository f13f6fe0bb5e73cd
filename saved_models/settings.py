"""Settings of an export, such as lengths, precision and static shapes."""

import dataclasses

from data_pipeline.base import settings
from data_pipeline.base.settings import setting
from xlnet_tf.generation.settings import GenerationSettings

RUNTIMES = ("tensorflow", "openvino")
PRECISIONS = ("float32", "bfloat16", "int8")

_MIN_LENGTH = 3
_AT_LEAST = "at least 3: a token, [SEP] and [CLS]"
_LENGTH = settings.Range(_AT_LEAST, _AT_LEAST, lambda x: x >= _MIN_LENGTH)


@dataclasses.dataclass(frozen=True)
class ExportSettings(settings.Settings):
    """Settings of an export; each field is also an option of the command.

    Args:
        sequence_length: int, maximum number of tokens of a text, with [SEP] and
            [CLS]; longer texts are truncated at the end. Default None:
            `for_model` chooses the largest of `seq_length_buckets`. Without
            buckets, `for_model` chooses the length of the task's preprocessor.
            Without a preprocessor, `for_model` chooses 512, or BertConfig's
            `max_positions` if this number is smaller.
        stride: int, number of tokens between the starts of successive windows
            of a context. Only for question answering. Default None: as in
            fine-tuning.
        max_question_length: int, maximum number of tokens of a question. For
            multiple choice, the maximum applies to a question together with an
            option. Default None: as in fine-tuning.
        window_stride: int, number of tokens between the starts of successive
            windows of a long text; the outputs of the windows are averaged.
            Only for classifiers and regressors of texts. Default None: a long
            text is truncated at the end.
        num_candidates: int, number of suggested tokens for each blank, or of
            answers to each question. Default 5.
        runtime: "tensorflow" (default) writes a SavedModel. "openvino" writes a
            network for OpenVINO. OpenVINO supports tasks and embeddings, but
            not the signatures of long documents.
        precision: "float32" (default) keeps the model's own dtype, even if this
            dtype is not float32. "bfloat16" applies to weights and activations.
            "int8" stores kernels and embeddings in 8 bits and computes in the
            model's own dtype. int8 saves disk space but no memory.
        seq_length_buckets: tuple of int, increasing. A batch is padded to the
            smallest bucket that fits, so that the model is traced only for
            these lengths. Default (): pad to the longest text of the batch.
        max_batch: int, maximum number of rows that are computed at once; a
            larger request is computed in several batches. Default None: the
            largest power of two with which a batch has at most 4096 tokens, but
            at least 1.
        max_request_bytes: int, maximum number of bytes of all texts in a
            request. Default 4 MiB.
        max_request_tokens: int, maximum number of tokens of all sequences in a
            request. Padding and generated tokens are counted. Tokens in windows
            are not counted. Default 524,288.
        max_request_windows: int, maximum number of windows of long texts or
            contexts in a request. Default 8192.
        jit_compile: bool, whether XLA compiles the model. With XLA, the number
            of rows in a batch is padded to a power of two, or to `max_batch` if
            `max_batch` is smaller. The number of blanks is padded to a power of
            two. Default False.
        memory_length: int, M, number of tokens whose hidden states the
            signature `document_segment` returns as memory. 0: the export does
            not have this signature. Default None: the model's `memory_length`,
            or `sequence_length` if the model has no memory.
        generation: GenerationSettings or a dict of some of its fields, for the
            signature `generate` of pretrained and sequence-to-sequence models.
            Default None: a pretrained model is exported without `generate`. A
            sequence-to-sequence model keeps the task's generation settings.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    sequence_length: int | None = setting(
        None,
        "maximum tokens of a text (default: the largest bucket, else as in "
        "fine-tuning, else 512)",
        _LENGTH,
        metavar="TOKENS",
    )
    stride: int | None = setting(
        None,
        "tokens between the starts of two windows of a context (default: as in "
        "fine-tuning)",
        settings.POSITIVE,
        metavar="TOKENS",
    )
    max_question_length: int | None = setting(
        None,
        "maximum tokens of a question (default: as in fine-tuning)",
        settings.POSITIVE,
        metavar="TOKENS",
    )
    window_stride: int | None = setting(
        None,
        "tokens between the starts of two windows of a long text, whose "
        "outputs are averaged; for classifiers and regressors (default: as in "
        "fine-tuning, else the text is truncated)",
        settings.POSITIVE,
        metavar="TOKENS",
    )
    num_candidates: int = setting(
        5,
        "number of tokens per blank, or of answers per question",
        settings.POSITIVE,
        metavar="N",
    )
    runtime: str = setting(
        "tensorflow",
        "tensorflow: a SavedModel; openvino: a network for OpenVINO, faster on "
        "CPUs, for tasks and embeddings",
        choices=RUNTIMES,
    )
    precision: str = setting(
        "float32",
        "float32: the model's dtype; bfloat16: weights and activations; int8: "
        "stored weights",
        choices=PRECISIONS,
        meant={"fp32": "float32", "bf16": "bfloat16"},
    )
    seq_length_buckets: tuple[int, ...] = setting(
        (), "pad texts to one of these lengths (default: to the longest text)"
    )
    max_batch: int | None = setting(
        None,
        "compute at most this many texts at once (default: 4096 tokens)",
        settings.POSITIVE,
        metavar="ROWS",
    )
    max_request_bytes: int = setting(
        2**22,
        "refuse requests with more bytes of text",
        settings.POSITIVE,
        metavar="BYTES",
    )
    max_request_tokens: int = setting(
        2**19,
        "refuse requests with more tokens, padding included",
        settings.POSITIVE,
        metavar="TOKENS",
    )
    max_request_windows: int = setting(
        2**13,
        "refuse requests with more windows of long texts",
        settings.POSITIVE,
        metavar="N",
    )
    jit_compile: bool = setting(False, "compile with XLA")
    memory_length: int | None = setting(
        None,
        "memory of document_segment; 0 omits this signature (default: the "
        "model's, or --sequence-length)",
        settings.NOT_NEGATIVE,
        metavar="TOKENS",
    )
    generation: GenerationSettings | dict | None = setting(
        None, "settings of the signature `generate` (default: none)"
    )

    def __post_init__(self):
        if isinstance(self.generation, dict):
            generation = GenerationSettings.of(self.generation)
            object.__setattr__(self, "generation", generation)
        super().__post_init__()
        buckets, length = self.seq_length_buckets, self.sequence_length
        _check_buckets(buckets)
        if length is not None and buckets and buckets[-1] != length:
            raise ValueError(
                "the largest bucket must be `sequence_length`. Received: "
                f"sequence_length={length}, seq_length_buckets={buckets}."
            )
        if self.runtime == "openvino":
            self._check_openvino()
        if length is None or self.window_stride is None:
            return
        room = length - 2
        if self.window_stride > room:
            raise ValueError(
                f"`window_stride` must lie between 1 and {room}, the tokens "
                "of a window without [SEP] and [CLS]. Received: "
                f"window_stride={self.window_stride}."
            )

    def for_model(self, model):
        """Fill in `sequence_length` from a model if the length is missing.

        Args:
            model: a backbone or a task.

        Returns:
            ExportSettings.

        Raises:
            ValueError: if `window_stride` is too long for `sequence_length`.
        """
        if self.sequence_length is not None:
            return self
        preprocessor = getattr(model, "preprocessor", None)
        config = getattr(model, "backbone", model).config
        length = min(512, getattr(config, "max_positions", 512))
        if self.seq_length_buckets:
            length = self.seq_length_buckets[-1]
        elif preprocessor is not None:
            length = preprocessor.sequence_length
        return dataclasses.replace(self, sequence_length=length)

    def _check_openvino(self):
        """Refuse settings that only the runtime TensorFlow has."""
        for name, value in (("precision", "int8"), ("jit_compile", True)):
            if getattr(self, name) == value:
                raise ValueError(
                    "the runtime openvino compiles the model itself, in "
                    f"float32 or bfloat16. Received: {name}={value!r}."
                )

    @property
    def weight_precision(self):
        """Precision of the traced graph; always float32 for OpenVINO."""
        return "float32" if self.runtime == "openvino" else self.precision

    def memory_of(self, config):
        """Number of tokens in the memory that `document_segment` returns, M.

        Args:
            config: XLNetConfig or BertConfig of the model.
        """
        if "memory_length" not in config.to_dict():
            return 0  # a model without memory
        if self.runtime == "openvino":
            return 0
        if self.memory_length is not None:
            return self.memory_length
        return config.memory_length or self.sequence_length


def _check_buckets(buckets):
    """Refuse buckets that do not increase or are too short for a text."""
    if list(buckets) != sorted(set(buckets)):
        raise ValueError(
            "`seq_length_buckets` must rise. "
            f"Received: seq_length_buckets={buckets}."
        )
    if buckets and buckets[0] < _MIN_LENGTH:
        raise ValueError(
            "every bucket must be at least 3: a token, [SEP] and [CLS]. "
            f"Received: seq_length_buckets={buckets}."
        )
