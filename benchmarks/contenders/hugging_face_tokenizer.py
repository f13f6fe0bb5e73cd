"""Contenders with Hugging Face's fast tokenizer and our vocabulary."""

import tempfile

import transformers

from benchmarks.workload.texts import read_lines
from benchmarks.workload.texts import read_questions
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer

FRAMEWORK = "torch"


def tokenizer(files):
    """Set up tokenizing of all lines in one call, on all cores."""
    fast = _fast_tokenizer(files)
    lines = read_lines(files["text"])
    return lambda: fast(
        lines,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
    )


def question_windows(files, num_questions, num_tokens):
    """Set up windows with offsets, as in Hugging Face's example for SQuAD."""
    fast = _fast_tokenizer(files)
    examples = read_questions(files, num_questions)
    contexts = [example.context for example in examples]
    questions = [example.question for example in examples]
    return lambda: fast(
        contexts,
        questions,
        truncation="only_first",
        max_length=num_tokens,
        stride=num_tokens // 2,  # Hugging Face's stride is the overlap
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def _fast_tokenizer(files):
    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(Tokenizer(files["tokenizer"]), directory)
        return transformers.AutoTokenizer.from_pretrained(
            directory, local_files_only=True
        )
