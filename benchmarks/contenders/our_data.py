"""Contenders for data processing: this library, and SentencePiece alone."""

import itertools
import pathlib
import shutil
import tempfile

from benchmarks.workload.texts import read_lines
from benchmarks.workload.texts import read_questions
from data_pipeline.base import command_line
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.build import build_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.text.documents import Corpus
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.tokenizer import Tokenizer

FRAMEWORK = "tensorflow"


def reading(files, num_tokens, num_targets, batch_size, num_batches):
    """Set up reading of batches as in `xlnet_tf.train`."""
    directory = pathlib.Path(files["directory"]) / "records"
    shutil.rmtree(directory, ignore_errors=True)
    _build(
        files,
        Tokenizer(files["tokenizer"]),
        directory,
        num_tokens,
        command_line.available_cores(),
        num_targets,
    )
    data = PretrainingData(directory, batch_size)
    batches = iter(data.dataset())

    def run():
        for _ in itertools.islice(batches, num_batches):
            pass

    return run


def record_building(files, num_tokens):
    """Set up building of all records from text, in a single process."""
    ours = Tokenizer(files["tokenizer"])

    def run():
        with tempfile.TemporaryDirectory(dir=files["directory"]) as directory:
            _build(files, ours, directory, num_tokens, processes=1)

    return run


def tokenizer(files):
    """Set up tokenizing of all lines in one call, on all cores."""
    ours = Tokenizer(files["tokenizer"])
    lines = read_lines(files["text"])
    return lambda: ours.encode_batch(lines)


def graph_tokenizer(files):
    """Set up tokenizing of all lines in one call, by the ops of an export."""
    import tensorflow as tf

    from data_pipeline.tokenization.graph import GraphTokenizer

    graph = GraphTokenizer(Tokenizer(files["tokenizer"]))
    encode = tf.function(
        lambda texts: graph(texts).flat_values,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    lines = tf.constant(read_lines(files["text"]))
    return lambda: encode(lines).numpy()


def question_features(files, num_questions, num_tokens):
    """Set up encoding of questions as in fine-tuning, with answer positions."""
    from xlnet_tf import XLNetQuestionAnsweringPreprocessor

    examples = read_questions(files, num_questions)
    preprocessor = XLNetQuestionAnsweringPreprocessor(
        Tokenizer(files["tokenizer"]),
        sequence_length=num_tokens,
        stride=num_tokens // 4,
        max_question_length=num_tokens // 8,
    )
    return lambda: preprocessor.encode(examples, training=True)


def sentencepiece(files, num_threads):
    """Set up tokenizing of cleaned text by SentencePiece alone."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(
        model_file=files["tokenizer"]
    )
    lines = [preprocess(line, False) for line in read_lines(files["text"])]
    return lambda: processor.encode(lines, num_threads=num_threads)


def _build(
    files, tokenizer, directory, num_tokens, processes, num_targets=None
):
    build_records(
        Corpus(files["text"], "running"),
        tokenizer,
        directory,
        settings=RecordSettings(
            sequence_length=num_tokens, num_predict=num_targets
        ),
        processes=processes,
    )
