"""Benchmark of `build_records` and of each of its stages.

    python benchmarks/record_building.py --input 'text/*.txt' \
        --tokenizer spiece.model

The program prints megabytes of text per second of processor time. Other
programs disturb processor time little. The program measures each stage,
SentencePiece alone on lines that are already clean, and whole builds with the
default settings, on 1 core and on all cores. The figures of a build are
megabytes per second and core, and megabytes per second of processor time. A
build's figure per second of processor time is the mean of `--repeat` runs; all
other figures are the best of these runs. Use 100 MB of text or more, because
the start of a process takes half a second.
"""

import argparse
import itertools
import pathlib
import resource
import shutil
import sys
import tempfile
import time

import numpy as np
import sentencepiece

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from data_pipeline.base import command_line
from data_pipeline.records import part
from data_pipeline.records import targets
from data_pipeline.records.build import build_records
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.schema import RecordSettings
from data_pipeline.records.schema import stored_features
from data_pipeline.records.sequences import build_sequences
from data_pipeline.records.sequences import join_documents
from data_pipeline.text.documents import TEXT_FORMATS
from data_pipeline.text.documents import Corpus
from data_pipeline.text.documents import stream_documents
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.tokenizer import Tokenizer

RELEASED = 0.48  # MB per second and core of the released script


def timed(repeat, function, *arguments, clock=time.process_time):
    """Call a function several times; return the last result and best time."""
    seconds = []
    for _ in range(repeat):
        began = clock()
        result = function(*arguments)
        seconds.append(clock() - began)
    return result, min(seconds)


def processor_seconds():
    """Processor time of this process and of its finished child processes."""
    usage = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def stages(pattern, text_format, tokenizer, settings, repeat):
    """Yield the name of each stage and the seconds for the whole text."""

    def read():
        return list(stream_documents(pattern, text_format))

    documents, seconds = timed(repeat, read)
    yield "read", seconds
    split, seconds = timed(
        repeat, lambda: [document.sentences() for document in documents]
    )
    yield "split into sentences", seconds
    clean = [
        preprocess(line, tokenizer.lowercase)
        for document in documents
        for line in document.text.split("\n")
        if line.strip()
    ]
    alone = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer.model_proto
    )
    _, seconds = timed(repeat, lambda: alone.encode(clean, num_threads=1))
    yield "SentencePiece alone, clean lines", seconds
    sentences = list(itertools.chain.from_iterable(split))
    flat, seconds = timed(repeat, tokenizer.encode_flat, sentences)
    yield "SentencePiece (which cleans) and commas", seconds
    counts = np.array(list(map(len, split)), np.int64)
    stream, seconds = timed(repeat, join_documents, *flat, counts)
    yield "join documents", seconds
    lengths = (settings.sequence_length, settings.reuse_length)
    sequences, seconds = timed(
        repeat,
        lambda: build_sequences(stream, *lengths, np.random.default_rng(0)),
    )
    yield "sequences", seconds
    chosen, seconds = timed(
        repeat,
        lambda: targets.sample_targets(
            sequences.token_ids,
            tokenizer.starts_word,
            np.random.default_rng(0),
            settings.reuse_length,
            settings.num_predict,
        ),
    )
    yield "targets", seconds
    yield (
        "frame and checksum",
        timed(repeat, frame, sequences, chosen, tokenizer, settings)[1],
    )


def frame(sequences, chosen, tokenizer, settings):
    """Encode sequences as records with checksums, block by block."""
    stored = stored_features(
        settings.sequence_length,
        settings.num_predict,
        tokenizer.vocabulary_size,
    )
    values = {
        **sequences._asdict(),
        "is_target": chosen,
        "is_reversed": np.zeros(len(chosen), np.uint8),
    }
    for chunk in part._encoded_chunks(values, stored, 0, settings):
        chunk.tobytes()


def build(arguments, tokenizer, processes):
    """Build records in a temporary directory; return their manifest."""
    output = tempfile.mkdtemp()
    try:
        build_records(
            Corpus(arguments.input, arguments.text_format),
            tokenizer,
            output,
            processes=processes,
        )
        return read_manifest(output)
    finally:
        shutil.rmtree(output)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text-format", choices=TEXT_FORMATS, default="auto")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args(argv)

    tokenizer = Tokenizer(arguments.tokenizer)
    settings = RecordSettings().resolved()
    documents = stream_documents(arguments.input, arguments.text_format)
    size = sum(len(document.text.encode()) for document in documents) / 1e6
    print(f"{size:.1f} MB of text; MB a second of processor time:")
    options = (arguments.input, arguments.text_format, tokenizer, settings)
    for name, seconds in stages(*options, arguments.repeat):
        print(f"  {name:40} {size / seconds:8.1f}")
    for processes in sorted({1, command_line.available_cores()}):
        used = processor_seconds()
        manifest, seconds = timed(
            *(arguments.repeat, build, arguments, tokenizer, processes),
            clock=time.perf_counter,
        )
        used = (processor_seconds() - used) / arguments.repeat
        rate = size / seconds / processes
        print(
            f"build_records, {processes} process(es)      {rate:8.2f}   "
            f"{rate / RELEASED:.1f} times the released script; "
            f"{size / used:.2f} MB a second of processor time; "
            f"{seconds:.1f} s, {manifest.num_records('train')} records"
        )


if __name__ == "__main__":
    sys.exit(command_line.run(main))
