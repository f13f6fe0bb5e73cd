"""Hugging Face's fast tokenizer, with the same pieces as ours."""

import tempfile

import transformers

from benchmarks.texts import read_lines
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer

FRAMEWORK = "torch"


def tokenizer(files):
    """All lines at once, on all cores."""
    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(Tokenizer(files["tokenizer"]), directory)
        loaded = transformers.AutoTokenizer.from_pretrained(
            directory, local_files_only=True
        )
    lines = read_lines(files["text"])
    return lambda: loaded(
        lines,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
    )
