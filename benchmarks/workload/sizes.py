"""Sizes of models and measurements for the benchmarks."""

import dataclasses

BASE = {
    "vocabulary_size": 32000,
    "num_layers": 12,
    "num_heads": 12,
    "hidden_dim": 768,
    "head_dim": 64,
    "intermediate_dim": 3072,
}
TINY = {
    "vocabulary_size": 512,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 32,
    "head_dim": 16,
    "intermediate_dim": 64,
}
SMALL = {
    "vocabulary_size": 8000,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 128,
    "head_dim": 64,
    "intermediate_dim": 512,
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of all measurements; the default model is XLNet-Base."""

    model: dict = dataclasses.field(default_factory=lambda: BASE)
    batch_size: int = 2
    num_tokens: int = 512
    memory_length: int = 384
    num_targets: int = 85
    inference: tuple = ((1, 128), (8, 128), (2, 512))
    prompts: tuple = (64, 512, 2048, 4096)
    new_tokens: int = 4
    fine_tuning: tuple = (8, 128)
    document_lengths: tuple = (512, 1024, 2048, 4096, 8192, 16384)
    reading_batches: int = 64
    reading_batch_size: int = 32
    export: tuple = (8, 128)
    megabytes: float = 2.0
    questions: int = 1000


TINY_SIZES = Sizes(
    model=TINY,
    num_tokens=32,
    memory_length=16,
    num_targets=5,
    inference=((1, 8), (2, 8), (2, 32)),
    prompts=(8, 16),
    new_tokens=2,
    fine_tuning=(4, 8),
    document_lengths=(32, 64),
    reading_batches=3,
    reading_batch_size=2,
    export=(2, 16),
    megabytes=0.05,
    questions=20,
)
