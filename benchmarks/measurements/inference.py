"""Measurements of inference, generation and exports."""

from benchmarks.measurements.measurement import HUGGING_FACE
from benchmarks.measurements.measurement import KERAS_HUB
from benchmarks.measurements.measurement import OURS
from benchmarks.measurements.measurement import Contender
from benchmarks.measurements.measurement import Measurement
from benchmarks.measurements.measurement import garden
from benchmarks.measurements.measurement import hugging_face
from benchmarks.measurements.measurement import model_name
from benchmarks.measurements.measurement import ours
from benchmarks.workload import flops


def inference(sizes, batch_size, num_tokens):
    """Measure inference of the content stream."""
    shape = {
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    return Measurement(
        name=f"inference_{batch_size}x{num_tokens}",
        group="inference",
        title=f"Content-only inference, {model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="sequences",
        items=batch_size,
        flops=flops.forward_flops(**shape),
        contenders=(
            *ours("ours:inference", shape),
            *garden("model_garden:inference", shape),
            *hugging_face("hugging_face:inference", shape),
            *(
                Contender(
                    f"{KERAS_HUB}, {label}",
                    KERAS_HUB,
                    "keras_hub_backbone:inference",
                    {**shape, "jit_compile": jit_compile},
                )
                for label, jit_compile in (("XLA", True), ("no XLA", False))
            ),
        ),
    )


def runtimes(sizes, files, batch_size, num_tokens):
    """Measure a classifier's exports on raw text, by runtime and precision."""
    shape = {
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    ways = [
        ("TensorFlow, float32", {}),
        ("TensorFlow, float32, XLA", {"jit_compile": True}),
        ("TensorFlow, bfloat16", {"precision": "bfloat16"}),
        (
            "TensorFlow, bfloat16, XLA",
            {"precision": "bfloat16", "jit_compile": True},
        ),
        ("OpenVINO, float32", {"runtime": "openvino"}),
        (
            "OpenVINO, bfloat16",
            {"runtime": "openvino", "precision": "bfloat16"},
        ),
        ("TensorFlow, int8", {"precision": "int8"}),
    ]
    return Measurement(
        name=f"runtimes_{batch_size}x{num_tokens}",
        group="runtimes",
        title=f"Raw text into an export, a classifier of {model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens; peers: ready ids",
        item="texts",
        items=batch_size,
        flops=flops.forward_flops(**shape),
        needs_text=True,
        contenders=(
            *(
                Contender(
                    f"{OURS}, {label}",
                    OURS,
                    "our_export:answers",
                    {"files": files, **shape, **settings},
                )
                for label, settings in ways
            ),
            *(
                Contender(
                    f"{HUGGING_FACE}, OpenVINO, {name}",
                    HUGGING_FACE,
                    "hugging_face:openvino_inference",
                    {**shape, "precision": hint},
                )
                for name, hint in (("float32", "f32"), ("bfloat16", "bf16"))
            ),
            *hugging_face("hugging_face:inference", shape),
        ),
    )


def generation(sizes, num_prompt):
    """Measure generation of tokens after a prompt of `num_prompt` tokens."""
    shape = {
        "model": sizes.model,
        "num_prompt": num_prompt,
        "num_new": sizes.new_tokens,
    }
    ways = [
        ("permutation", "permutation", False),
        ("permutation, XLA", "permutation", True),
        ("causal", "causal", False),
        ("causal, XLA", "causal", True),
        ("pseudo_masked", "pseudo_masked", False),
    ]
    return Measurement(
        name=f"generation_{num_prompt}",
        group="generation",
        title=f"Next tokens, one text, {model_name(sizes)}, a prompt of "
        f"{num_prompt} tokens",
        item="tokens",
        items=sizes.new_tokens,
        contenders=(
            *(
                Contender(
                    f"{OURS}, {label}",
                    OURS,
                    "our_generation:next_tokens",
                    {
                        **shape,
                        "objective": objective,
                        "jit_compile": jit_compile,
                    },
                )
                for label, objective, jit_compile in ways
            ),
            *(
                Contender(
                    f"{HUGGING_FACE}, {label}",
                    HUGGING_FACE,
                    f"hugging_face_generation:{function}",
                    shape,
                )
                for label, function in (("XLNet", "xlnet"), ("GPT-2", "gpt2"))
            ),
        ),
    )


def long_document(sizes, length):
    """Measure one long document: in segments, in windows, or all at once."""
    whole = {"model": sizes.model, "length": length}
    windows = {**whole, "segment_length": sizes.num_tokens}
    segments = {**windows, "memory_length": sizes.memory_length}
    return Measurement(
        name=f"long_document_{length}",
        group="long_document",
        title=f"One document of {length} tokens, {model_name(sizes)}, "
        f"segments of {sizes.num_tokens}, memory {sizes.memory_length}",
        item="tokens",
        items=length,
        contenders=(
            Contender(
                f"{OURS}, by memory", OURS, "ours:document_by_memory", segments
            ),
            Contender(
                f"{OURS}, in one piece",
                OURS,
                "ours:document_in_one_piece",
                whole,
            ),
            *(
                Contender(
                    f"{OURS} classifier, {label}",
                    OURS,
                    f"our_documents:{name}",
                    options,
                )
                for name, options, label in (
                    ("segments", segments, "segments that remember"),
                    ("windows", windows, "windows"),
                    ("one_piece", whole, "in one piece"),
                    (
                        "segments_gradient",
                        segments,
                        "segments that remember, gradients",
                    ),
                )
            ),
        ),
    )


def export(sizes, files, batch_size, num_tokens):
    """Measure an export on raw text and on ids, and the Keras model alone."""
    shape = {
        "files": files,
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    labels = {
        "bare_forward": "bare forward pass",
        "ids_in": "SavedModel, ids in",
        "text_in": "SavedModel, raw text in",
    }
    return Measurement(
        name="export",
        group="export",
        title=f"An export's embeddings, {model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="texts",
        items=batch_size,
        needs_text=True,
        contenders=tuple(
            Contender(f"{OURS}, {label}", OURS, f"our_export:{name}", shape)
            for name, label in labels.items()
        ),
    )
