"""Measurements of data processing, from text to batches."""

import dataclasses

from benchmarks.measurements.measurement import HUGGING_FACE
from benchmarks.measurements.measurement import OURS
from benchmarks.measurements.measurement import SENTENCEPIECE
from benchmarks.measurements.measurement import Contender
from benchmarks.measurements.measurement import Measurement
from benchmarks.measurements.training import training_step


def reading(sizes, files):
    """Measure reading of records, and the training step for comparison."""
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
    """Measure whole builds of records; `record_building.py` measures stages."""
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
    """Measure tokenizing of text lines, on all cores."""
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
    """Measure encoding of questions and contexts as labelled windows."""
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
