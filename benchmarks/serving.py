"""What serving costs: raw text beside the bare model, latency under load.

    python benchmarks/serving.py --config base --requests 200

1. Raw text over the bare forward pass: the same rows of --rows x --tokens
   through the exported signatures of text and of ids, and through the model
   itself, in turns. Their processor time is compared, which other programs on
   the machine disturb less than the time of a clock.
2. Latency: the program of tests/serving, without Python, sends one text after
   another from 1, 8 and 32 threads. Compiled here; needs g++.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import tensorflow as tf
import tensorflow_text

from benchmarks import texts as sample
from data_pipeline.tokenizer import Tokenizer
from saved_models.export import export_model
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer

PROGRAM = pathlib.Path(__file__).parents[1] / "tests" / "serving" / "serve.cc"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--config", default="base", help="tiny, small, base (default), large")
    add("--precision", default="float32")
    add("--rows", type=int, default=8)
    add("--tokens", type=int, default=128)
    add("--rounds", type=int, default=9, help="of the comparison")
    add("--requests", type=int, default=200, help="at each concurrency")
    add("--concurrency", default="1,8,32")
    add("--text", help="glob of text files; default: what is found or made up")
    add("--tokenizer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        source = sample.prepare(directory, 1, options.text, options.tokenizer)
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
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        texts = _texts(directory, tokenizer, options)
        _overhead(model, export, texts, options)
        _latency(directory, export, texts, options)


def _texts(directory, tokenizer, options):
    """Texts that fill the length, one a line."""
    content = (directory / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(" ".join(content.split())[:400_000])
    length = options.tokens
    count = min(len(ids) // length, 100)
    return [
        " ".join(tokenizer.decode(ids[i * length : (i + 1) * length]).split())
        for i in range(count)
    ]


def _overhead(model, export, texts, options):
    served = tf.saved_model.load(str(export)).signatures
    rows = tf.constant((texts * options.rows)[: options.rows])
    outputs = served["embed"](text=rows)
    ids = outputs["token_ids"]
    features = {
        "token_ids": ids,
        "segment_ids": tf.where(ids == 3, 2, 0),
        "padding_mask": outputs["padding_mask"],
    }

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
            if number:  # the first traces
                clock = time.perf_counter() - begun
                spent[name].append((time.process_time() - used, clock))
    print(f"\n{ids.shape[0]} x {ids.shape[1]} tokens, {options.rounds} rounds")
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


def _latency(directory, export, texts, options):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        print("\nno C++ compiler: latency was not measured")
        return
    libraries = tf.sysconfig.get_lib()
    program = directory / "serve"
    subprocess.run(
        [compiler, "-std=c++17", "-O2", PROGRAM]
        + ["-isystem", tf.sysconfig.get_include(), f"-L{libraries}"]
        + ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
        + [f"-Wl,-rpath,{libraries}", "-pthread", "-o", program],
        check=True,
    )
    lines = directory / "lines.txt"
    lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
    ops = pathlib.Path(tensorflow_text.__file__).parent
    ops /= "python/ops/_sentencepiece_tokenizer.so"
    result = subprocess.run(
        [program, export, ops, "--texts", lines, "--signature", "embed"]
        + ["--load", str(options.requests)]
        + ["--concurrency", options.concurrency],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(f"\none text of {options.tokens} tokens a request, without Python")
    for line in map(json.loads, result.stdout.splitlines()):
        print(
            f"{line['concurrency']:3} at once: "
            f"p50 {line['p50_ms']:8.1f} ms  p95 {line['p95_ms']:8.1f} ms  "
            f"p99 {line['p99_ms']:8.1f} ms  "
            f"{line['requests_per_second']:8.1f} requests/s  resident "
            f"{line['resident_mb'][1]:.0f} to {line['resident_mb'][-1]:.0f} MB"
            + (f"  {line['failed']} failed" if line["failed"] else "")
        )


if __name__ == "__main__":
    main()
