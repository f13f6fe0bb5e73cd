"""Measurements of training steps."""

from benchmarks.measurements.measurement import GARDEN
from benchmarks.measurements.measurement import OURS
from benchmarks.measurements.measurement import Contender
from benchmarks.measurements.measurement import Measurement
from benchmarks.measurements.measurement import garden
from benchmarks.measurements.measurement import hugging_face
from benchmarks.measurements.measurement import model_name
from benchmarks.measurements.measurement import ours
from benchmarks.measurements.measurement import ours_on_jax
from benchmarks.workload import flops
from benchmarks.workload.sizes import BASE
from benchmarks.workload.sizes import SMALL

# Environment variables that make glibc keep freed memory for the next step.
_KEEPS_MEMORY = {
    "MALLOC_ARENA_MAX": "4",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**62),
}


def training_step(sizes, memory_length):
    """Measure a pretraining step with AdamW and dropout."""
    shape = {
        "model": sizes.model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": sizes.num_targets,
        "memory_length": memory_length,
    }
    ways = [
        ("XLA", {"jit_compile": True}),
        ("no XLA", {}),
        ("XLA, rematerialised", {"jit_compile": True, "rematerialize": True}),
        ("XLA, bfloat16", {"jit_compile": True, "precision": "bfloat16"}),
        ("no XLA, bfloat16", {"precision": "bfloat16"}),
    ]
    return Measurement(
        name="training_step" if memory_length else "training_step_no_memory",
        group="training_step",
        title=f"Pretraining step, {model_name(sizes)}, batch "
        f"{sizes.batch_size}, {sizes.num_tokens} tokens, memory "
        f"{memory_length}, {sizes.num_targets} targets",
        item="tokens",
        items=sizes.batch_size * sizes.num_tokens,
        flops=flops.training_step_flops(**shape),
        contenders=(
            *(
                Contender(
                    f"{OURS}, {label}",
                    OURS,
                    "ours:training_step",
                    {**shape, **options},
                )
                for label, options in ways
            ),
            Contender(
                f"{OURS}, XLA, freed memory kept",
                OURS,
                "ours:training_step",
                {**shape, "jit_compile": True},
                environment=_KEEPS_MEMORY,
            ),
            ours_on_jax("ours:training_step", shape),
            *garden("model_garden:training_step", shape),
            Contender(
                f"{GARDEN}, no XLA, freed memory kept",
                GARDEN,
                "model_garden:training_step",
                {**shape, "jit_compile": False},
                environment=_KEEPS_MEMORY,
            ),
            *hugging_face("hugging_face:training_step", shape),
            *hugging_face("hugging_face:training_step", shape, "bfloat16"),
        ),
    )


def objective_step(sizes):
    """Measure a step of each objective except permutation; BERT is the peer."""
    shape = {
        "model": sizes.model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": round(0.15 * sizes.num_tokens),
    }
    ways = [
        ("masked, XLA", "masked", "bert", True),
        ("masked, no XLA", "masked", "bert", False),
        ("masked on XLNet, XLA", "masked", "xlnet", True),
        ("causal on XLNet, XLA", "causal", "xlnet", True),
        ("pseudo_masked, XLA", "pseudo_masked", "bert", True),
    ]
    return Measurement(
        name="objective_step",
        group="objective_step",
        title=f"Pretraining step by objective, {model_name(sizes)}, batch "
        f"{sizes.batch_size}, {sizes.num_tokens} tokens, "
        f"{shape['num_targets']} targets (causal: all), no memory; peers: BERT",
        item="tokens",
        items=sizes.batch_size * sizes.num_tokens,
        contenders=(
            *(
                Contender(
                    f"{OURS}, {label}",
                    OURS,
                    "ours:objective_step",
                    {
                        **shape,
                        "objective": objective,
                        "backbone": backbone,
                        "jit_compile": jit_compile,
                    },
                )
                for label, objective, backbone, jit_compile in ways
            ),
            *garden("model_garden:masked_step", shape),
            *hugging_face("hugging_face:masked_step", shape),
        ),
    )


def pseudo_masks(sizes):
    """Measure UniLMv2's single pass, and one pass per factorization step."""
    model = SMALL if sizes.model == BASE else sizes.model
    shape = {
        "model": model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": round(0.15 * sizes.num_tokens),
        "jit_compile": True,
    }
    of_one = {"objective": "pseudo_masked", "backbone": "bert"}
    return Measurement(
        name="pseudo_masks",
        group="pseudo_masks",
        title=f"Pseudo-masked step, {model['num_layers']} layers of "
        f"{model['hidden_dim']}, batch {sizes.batch_size}, "
        f"{sizes.num_tokens} tokens, {shape['num_targets']} targets",
        item="tokens",
        items=sizes.batch_size * sizes.num_tokens,
        contenders=(
            Contender(
                f"{OURS}, one pass",
                OURS,
                "ours:objective_step",
                {**shape, **of_one},
            ),
            Contender(
                f"{OURS}, a pass for every step",
                OURS,
                "ours:step_by_step",
                shape,
            ),
        ),
    )


def fine_tuning(sizes, batch_size, num_tokens):
    """Measure a training step of a classifier."""
    shape = {
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    return Measurement(
        name="fine_tuning_step",
        group="fine_tuning_step",
        title=f"Fine-tuning step of a classifier, {model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="sequences",
        items=batch_size,
        flops=flops.training_step_flops(**shape),
        contenders=(
            *ours("ours:fine_tuning_step", shape),
            Contender(
                f"{OURS}, XLA, bfloat16",
                OURS,
                "ours:fine_tuning_step",
                {**shape, "jit_compile": True, "precision": "bfloat16"},
            ),
            ours_on_jax("ours:fine_tuning_step", shape),
            *garden("model_garden:fine_tuning_step", shape),
            *hugging_face("hugging_face:fine_tuning_step", shape),
            *hugging_face("hugging_face:fine_tuning_step", shape, "bfloat16"),
        ),
    )
