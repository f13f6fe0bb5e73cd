"""Benchmark of serving: cost of raw text, and latency under load.

    python benchmarks/serving.py --config base --requests 200

1. Cost of raw text: the same rows of --rows x --tokens run through the exported
   signatures of text and of ids, and through the model itself, in turns. Times
   are processor time, which other programs disturb less than wall-clock time.
2. Latency: the C++ program of tests/slow/native_server sends rows one after
   another from 1, 8 and 32 threads, as raw text and as token ids. The benchmark
   compiles the program, which needs g++.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks.contest import machine
from benchmarks.run import positive
from benchmarks.workload.texts import prepare
from data_pipeline.base import command_line
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.export import export_model
from saved_models.settings import PRECISIONS
from tests.slow.native_server import serving_program
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer


def _concurrency(text):
    return [positive(part) for part in text.split(",")]


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", default="base", help="tiny, small, base (default), large")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--rows", type=positive, default=8)
    add("--tokens", type=positive, default=128)
    add("--rounds", type=positive, default=9, help="rounds of part 1")
    add("--requests", type=positive, default=200, help="per concurrency")
    add("--concurrency", type=_concurrency, default=[1, 8, 32], metavar="1,8")
    add("--text", help="glob of text files; default: found or made up")
    add("--tokenizer")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        source = prepare(directory, 1, options.text, options.tokenizer)
        tokenizer = Tokenizer(directory / "spiece.model")
        config = XLNetConfig.from_size(
            options.config, vocabulary_size=tokenizer.vocabulary_size
        )
        model = XLNetPretrainer(XLNetBackbone(config))
        export = directory / "model" / "1"
        export_model(
            model,
            tokenizer,
            export,
            sequence_length=options.tokens,
            precision=options.precision,
            memory_length=0,
        )
        print(
            f"{options.config}, {options.precision}, {source}; "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, matrix "
            f"products at {machine.matmul_rate('tensorflow', 2048) / 1e9:.0f} "
            "GFLOP/s"
        )
        texts = _texts(directory, tokenizer, options)
        served = tf.saved_model.load(str(export)).signatures
        rows = (texts * options.rows)[: options.rows]
        features = _features(served, rows)
        _overhead(model, served, rows, features, options)
        _latency(directory, export, texts, features, options)


def _texts(directory, tokenizer, options):
    """Make up to 100 texts of `--tokens` tokens each, without line breaks."""
    content = (directory / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(" ".join(content.split())[:400_000])
    length = options.tokens
    count = min(len(ids) // length, 100)
    if not count:
        raise ValueError(
            f"the text has {len(ids)} tokens; --tokens {length} needs as many "
            "at least."
        )
    return [
        " ".join(tokenizer.decode(ids[i * length : (i + 1) * length]).split())
        for i in range(count)
    ]


def _features(served, rows):
    """Compute the features of raw texts, for the model without an export."""
    outputs = served["embed"](text=tf.constant(rows))
    ids = outputs["token_ids"]
    return {
        "token_ids": ids,
        "segment_ids": tf.where(ids == CLS_ID, CLS_SEGMENT, FIRST_SEGMENT),
        "padding_mask": outputs["padding_mask"],
    }


def _overhead(model, served, rows, features, options):
    rows = tf.constant(rows)

    @tf.function
    def bare(features):
        return model.backbone(features, training=False)["content"]

    ways = {
        "bare forward pass": lambda: bare(features),
        "signature of ids": lambda: served["embed_ids"](**features),
        "signature of text": lambda: served["embed"](text=rows),
    }
    spent = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, run in ways.items():
            begun, used = time.perf_counter(), time.process_time()
            run()
            if number:  # the first round traces
                clock = time.perf_counter() - begun
                spent[name].append((time.process_time() - used, clock))
    shape = " x ".join(map(str, features["token_ids"].shape))
    print(f"\n{shape} tokens, {options.rounds} rounds")
    reference = None
    for name, times in spent.items():
        processor, clock = (
            statistics.median(t) for t in zip(*times, strict=True)
        )
        reference = reference or processor
        print(
            f"{name:20} processor {1000 * processor:8.1f} ms  "
            f"({processor / reference - 1:+.1%})  clock {1000 * clock:8.1f} ms"
        )


def _latency(directory, export, texts, features, options):
    if not (shutil.which("g++") or shutil.which("c++")):
        print("\nno C++ compiler: latency was not measured")
        return
    columns = {name: value.numpy() for name, value in features.items()}
    requests = {
        "raw text": [
            ("embed", {"text": np.array([text], object)}) for text in texts
        ],
        "ready ids": [
            (
                "embed_ids",
                {name: x[row : row + 1] for name, x in columns.items()},
            )
            for row in range(options.rows)
        ],
    }
    for kind, some in requests.items():
        print(f"\none row of {options.tokens} tokens a request, {kind}")
        for line in serving_program.load_lines(
            export,
            some,
            directory,
            options.requests,
            options.concurrency,
        ):
            print(
                f"{line['concurrency']:3} at once: "
                f"p50 {line['p50_ms']:8.1f} ms  p95 {line['p95_ms']:8.1f} ms  "
                f"p99 {line['p99_ms']:8.1f} ms  "
                f"{line['requests_per_second']:8.1f} requests/s  resident "
                f"{line['resident_mb'][1]:.0f} to "
                f"{line['resident_mb'][-1]:.0f} MB"
                + (f"  {line['failed']} failed" if line["failed"] else "")
            )


if __name__ == "__main__":
    sys.exit(command_line.run(main))
