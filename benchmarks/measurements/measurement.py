"""Classes `Measurement` and `Contender`, and contenders for many uses.

The first contender of a measurement is the reference for all others. A
contender is a function in `benchmarks.contenders` that sets up and returns the
function to time.
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
    """One implementation in a measurement.

    Args:
        name: str, name in the table.
        library: str, library of the contender.
        factory: str, "module:function" below `benchmarks.contenders`.
        options: dict, arguments of the factory.
        items: float, number of items that a call processes. None: the number
            in the measurement.
        environment: dict, environment variables of the process.
    """

    name: str
    library: str
    factory: str
    options: dict
    items: float | None = None
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Contenders that do the same work.

    Args:
        name: str, name for `--only`.
        group: str, name by which `--only` selects all measurements that differ
            only in size.
        title: str, title with all sizes.
        item: str, the counted unit, such as "tokens".
        items: float, number of items that a call processes.
        contenders: tuple of Contender. The first contender is the reference.
        flops: float, number of operations of one call, or None if unknown.
        needs_text: bool, whether text and a tokenizer must be prepared.
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
    """Make contenders of this library, with and without XLA."""
    return _with_and_without_xla(OURS, factory, shape)


def ours_on_jax(factory, shape):
    """Make the contender of this library on Keras' JAX backend."""
    backend = {"KERAS_BACKEND": "jax"}
    return Contender(f"{OURS}, JAX", OURS, factory, shape, environment=backend)


def garden(factory, shape):
    """Make contenders of Model Garden, with and without XLA."""
    return _with_and_without_xla(GARDEN, factory, shape)


def hugging_face(factory, shape, precision=None):
    """Make contenders of Hugging Face, with and without torch.compile.

    Args:
        factory, shape: see `Contender`.
        precision: "bfloat16" for matrix products in bfloat16. None: float32.

    Returns:
        list of Contender.
    """
    options = {"precision": precision} if precision else {}
    suffix = f", {precision}" if precision else ""
    return [
        Contender(
            f"{HUGGING_FACE}, {label}{suffix}",
            HUGGING_FACE,
            factory,
            {**shape, **options, **way},
        )
        for label, way in (
            ("PyTorch", {}),
            ("torch.compile", {"compiled": True}),
        )
    ]


def model_name(sizes):
    """Name of the model, for the title of a measurement."""
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
