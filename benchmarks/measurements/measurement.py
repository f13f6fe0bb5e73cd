"""A measurement, its contenders, and the contenders that many have.

The other contenders of a measurement are compared with its first one. A
contender is a function in `benchmarks.contenders` that sets up and returns the
function to be timed.
"""

import dataclasses

from benchmarks.workload.sizes import BASE

OURS = "xlnet_tf"
GARDEN = "Model Garden"
HUGGING_FACE = "Hugging Face"
KERAS_HUB = "KerasHub"
SENTENCEPIECE = "SentencePiece"


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Args:
        name: str, in the table.
        library: str, the library that it belongs to.
        factory: str, "module:function" below `benchmarks.contenders`.
        options: dict, the function's arguments.
        items: number, of a call, where it is not the measurement's.
        environment: dict of environment variables of its process.
    """

    name: str
    library: str
    factory: str
    options: dict
    items: float | None = None
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Some contenders at the same work.

    Args:
        name: str, for `--only`.
        group: str, of measurements that differ in size alone; for `--only`.
        title: str, with all sizes.
        item: str, what is counted, such as "tokens".
        items: number, of a call.
        contenders: tuple of Contender, the first is the reference.
        flops: number of one call, or None.
        needs_text: bool, whether text and a tokenizer are prepared first.
    """

    name: str
    group: str
    title: str
    item: str
    items: float
    contenders: tuple
    flops: float | None = None
    needs_text: bool = False


def ours(factory, shape):
    """list of Contender: this library, with and without XLA."""
    return _with_and_without_xla(OURS, factory, shape)


def ours_on_jax(factory, shape):
    """Contender: this library on Keras' JAX backend."""
    backend = {"KERAS_BACKEND": "jax"}
    return Contender(f"{OURS}, JAX", OURS, factory, shape, environment=backend)


def garden(factory, shape):
    """list of Contender: Model Garden, with and without XLA."""
    return _with_and_without_xla(GARDEN, factory, shape)


def hugging_face(factory, shape):
    """list of Contender: Hugging Face, as it is and compiled."""
    return [
        Contender(f"{HUGGING_FACE}, PyTorch", HUGGING_FACE, factory, shape),
        Contender(
            f"{HUGGING_FACE}, torch.compile",
            HUGGING_FACE,
            factory,
            {**shape, "compiled": True},
        ),
    ]


def model_name(sizes):
    """str, of the model for a title."""
    return "XLNet-Base" if sizes.model == BASE else "a tiny XLNet"


def _with_and_without_xla(library, factory, shape):
    return [
        Contender(
            f"{library}, {label}",
            library,
            factory,
            {**shape, "jit_compile": jit_compile},
        )
        for label, jit_compile in (("XLA", True), ("no XLA", False))
    ]
