"""Measurements: their names, sizes and contenders.

The other contenders of a measurement are compared with its first one. A
contender is a function in `benchmarks.contenders` that sets up and returns the
function to be timed.
"""

import dataclasses

from benchmarks import flops
from benchmarks import workload

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


def all_measurements(sizes, files):
    """Everything that can be measured.

    Args:
        sizes: Sizes of `workload`.
        files: dict of str to str: `text`, `tokenizer` and `directory`, where
            they will be.

    Returns:
        list of Measurement.
    """
    return [
        training_step(sizes, sizes.memory_length),
        training_step(sizes, 0),
        objective_step(sizes),
        pseudo_masks(sizes),
        *(inference(sizes, *shape) for shape in sizes.inference),
        *(generation(sizes, length) for length in sizes.prompts),
        *(long_document(sizes, length) for length in sizes.document_lengths),
        fine_tuning(sizes, *sizes.fine_tuning),
        reading(sizes, files),
        record_building(sizes, files),
        tokenizing(sizes, files),
        question_features(sizes, files),
        export(sizes, files, *sizes.export),
    ]


def training_step(sizes, memory_length):
    """Forward, backward and AdamW, with dropout."""
    shape = {
        "model": sizes.model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": sizes.num_targets,
        "memory_length": memory_length,
    }
    ours = [
        ("XLA", {"jit_compile": True}),
        ("no XLA", {}),
        ("XLA, rematerialised", {"jit_compile": True, "rematerialize": True}),
        ("XLA, layers in a loop", {"jit_compile": True, "scan_layers": True}),
        ("XLA, bfloat16", {"jit_compile": True, "precision": "bfloat16"}),
    ]
    garden, step = "model_garden:training_step", "hugging_face:training_step"
    return Measurement(
        name="training_step" if memory_length else "training_step_no_memory",
        group="training_step",
        title=f"Pretraining step, {_model_name(sizes)}, batch "
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
                for label, options in ours
            ),
            *_garden(garden, shape),
            *_hugging_face(step, shape),
        ),
    )


def objective_step(sizes):
    """Forward, backward and AdamW of BERT's and the other objectives."""
    shape = {
        "model": sizes.model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": round(0.15 * sizes.num_tokens),
    }
    ours = [
        ("masked, XLA", "masked", "bert", True),
        ("masked, no XLA", "masked", "bert", False),
        ("masked on XLNet, XLA", "masked", "xlnet", True),
        ("causal on XLNet, XLA", "causal", "xlnet", True),
        ("pseudo_masked, XLA", "pseudo_masked", "bert", True),
    ]
    step = "masked_step"
    return Measurement(
        name="objective_step",
        group="objective_step",
        title=f"Pretraining step by objective, {_model_name(sizes)}, batch "
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
                for label, objective, backbone, jit_compile in ours
            ),
            *_garden(f"model_garden:{step}", shape),
            *_hugging_face(f"hugging_face:{step}", shape),
        ),
    )


def pseudo_masks(sizes):
    """UniLMv2's one pass beside a pass for every factorization step."""
    model = workload.SMALL if sizes.model == workload.BASE else sizes.model
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


def inference(sizes, batch_size, num_tokens):
    """The content stream alone."""
    shape = {
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    return Measurement(
        name=f"inference_{batch_size}x{num_tokens}",
        group="inference",
        title=f"Content-only inference, {_model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="sequences",
        items=batch_size,
        flops=flops.forward_flops(**shape),
        contenders=(
            *_ours("ours:inference", shape),
            *_garden("model_garden:inference", shape),
            *_hugging_face("hugging_face:inference", shape),
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


def generation(sizes, num_prompt):
    """New tokens behind a prompt, one at a time."""
    shape = {
        "model": sizes.model,
        "num_prompt": num_prompt,
        "num_new": sizes.new_tokens,
    }
    ours = [
        ("permutation", "permutation", False),
        ("permutation, XLA", "permutation", True),
        ("causal", "causal", False),
        ("causal, XLA", "causal", True),
        ("pseudo_masked", "pseudo_masked", False),
    ]
    return Measurement(
        name=f"generation_{num_prompt}",
        group="generation",
        title=f"Next tokens, one text, {_model_name(sizes)}, a prompt of "
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
                for label, objective, jit_compile in ours
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
    """One document by memory, and in one piece: embedded, and classified."""
    whole = {"model": sizes.model, "length": length}
    windows = {**whole, "segment_length": sizes.num_tokens}
    segments = {**windows, "memory_length": sizes.memory_length}
    return Measurement(
        name=f"long_document_{length}",
        group="long_document",
        title=f"One document of {length} tokens, {_model_name(sizes)}, "
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


def fine_tuning(sizes, batch_size, num_tokens):
    """A classifier's training step."""
    shape = {
        "model": sizes.model,
        "batch_size": batch_size,
        "num_tokens": num_tokens,
    }
    return Measurement(
        name="fine_tuning_step",
        group="fine_tuning_step",
        title=f"Fine-tuning step of a classifier, {_model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="sequences",
        items=batch_size,
        flops=flops.training_step_flops(**shape),
        contenders=(
            *_ours("ours:fine_tuning_step", shape),
            *_garden("model_garden:fine_tuning_step", shape),
            *_hugging_face("hugging_face:fine_tuning_step", shape),
        ),
    )


def reading(sizes, files):
    """Records that can be read, and records that a training step consumes."""
    step = training_step(sizes, sizes.memory_length).contenders[0]
    return Measurement(
        name="reading",
        group="reading",
        title=f"Reading records of {sizes.num_tokens} tokens, batches of "
        f"{sizes.reading_batch_size}, beside the pretraining step that "
        "consumes them",
        item="records",
        items=sizes.reading_batches * sizes.reading_batch_size,
        needs_text=True,
        contenders=(
            Contender(
                f"{OURS}, PretrainingData",
                OURS,
                "our_data:reading",
                {
                    "files": files,
                    "num_tokens": sizes.num_tokens,
                    "num_targets": sizes.num_targets,
                    "batch_size": sizes.reading_batch_size,
                    "num_batches": sizes.reading_batches,
                },
            ),
            dataclasses.replace(
                step,
                name=f"{OURS}, training step, XLA",
                items=sizes.batch_size,
            ),
        ),
    )


def record_building(sizes, files):
    """Whole builds; `record_building.py` has the stages."""
    return Measurement(
        name="record_building",
        group="record_building",
        title=f"Building records from {sizes.megabytes} MB of text",
        item="MB",
        items=sizes.megabytes,
        needs_text=True,
        contenders=(
            Contender(
                f"{OURS}, build_records, 1 process",
                OURS,
                "our_data:record_building",
                {"files": files, "num_tokens": sizes.num_tokens},
            ),
            Contender(
                f"{SENTENCEPIECE} alone, 1 thread",
                SENTENCEPIECE,
                "our_data:sentencepiece",
                {"files": files, "num_threads": 1},
            ),
        ),
    )


def tokenizing(sizes, files):
    """Text to ids, a line at a time, on all cores."""
    return Measurement(
        name="tokenizing",
        group="tokenizing",
        title=f"Tokenizing {sizes.megabytes} MB of text, all cores",
        item="MB",
        items=sizes.megabytes,
        needs_text=True,
        contenders=(
            Contender(
                f"{OURS}, encode_batch",
                OURS,
                "our_data:tokenizer",
                {"files": files},
            ),
            Contender(
                f"{OURS}, TensorFlow graph",
                OURS,
                "our_data:graph_tokenizer",
                {"files": files},
            ),
            Contender(
                f"{SENTENCEPIECE} alone",
                SENTENCEPIECE,
                "our_data:sentencepiece",
                {"files": files, "num_threads": -1},
            ),
            Contender(
                f"{HUGGING_FACE}, fast tokenizer",
                HUGGING_FACE,
                "hugging_face_tokenizer:tokenizer",
                {"files": files},
            ),
        ),
    )


def question_features(sizes, files):
    """Questions about contexts to labelled windows."""
    options = {
        "files": files,
        "num_questions": sizes.questions,
        "num_tokens": sizes.num_tokens,
    }
    return Measurement(
        name="question_features",
        group="question_features",
        title=f"SQuAD preparation, {sizes.questions:,} questions to windows of "
        f"{sizes.num_tokens} tokens",
        item="questions",
        items=sizes.questions,
        needs_text=True,
        contenders=(
            Contender(
                f"{OURS}, labelled windows",
                OURS,
                "our_data:question_features",
                options,
            ),
            Contender(
                f"{HUGGING_FACE}, fast tokenizer, windows alone",
                HUGGING_FACE,
                "hugging_face_tokenizer:question_windows",
                options,
            ),
        ),
    )


def export(sizes, files, batch_size, num_tokens):
    """Raw text into an export, beside the model alone."""
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
        title=f"An export's embeddings, {_model_name(sizes)}, "
        f"{batch_size} x {num_tokens} tokens",
        item="texts",
        items=batch_size,
        needs_text=True,
        contenders=tuple(
            Contender(f"{OURS}, {label}", OURS, f"our_export:{name}", shape)
            for name, label in labels.items()
        ),
    )


def _ours(factory, shape):
    return _with_and_without_xla(OURS, factory, shape)


def _garden(factory, shape):
    return _with_and_without_xla(GARDEN, factory, shape)


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


def _hugging_face(factory, shape):
    return [
        Contender(f"{HUGGING_FACE}, PyTorch", HUGGING_FACE, factory, shape),
        Contender(
            f"{HUGGING_FACE}, torch.compile",
            HUGGING_FACE,
            factory,
            {**shape, "compiled": True},
        ),
    ]


def _model_name(sizes):
    return "XLNet-Base" if sizes.model == workload.BASE else "a tiny XLNet"
