"""Benchmark of memory in a causal language model: perplexity and speed.

    python benchmarks/recurrence.py --train wiki.train.tokens \\
        --test wiki.valid.tokens --output runs/recurrence

The program trains small causal models with and without memory, with several
seeds, and evaluates them with the commands of this project. The program writes
two tables to OUTPUT/results.md. The first table has the perplexities and their
range over the seeds. The second table has perplexity and speed for several
lengths of context. This table compares two ways to read a text: segment by
segment with memory, and in windows. Each window predicts one token, and a batch
has 16 windows. A finished command is not repeated.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from data_pipeline.base import command_line
from examples.commands import run_once

ROOT = pathlib.Path(__file__).resolve().parents[1]

LENGTH = 64  # tokens of a record and of a segment
MEMORY = 96
CONTEXTS = (64, 128, 256, 512)
VOCABULARY_SIZE = 4000


def evaluate(model, text, name, *options):
    """Run `python -m xlnet_tf.evaluate`; return a dict of the results."""
    place = model / name
    place.mkdir(exist_ok=True)
    file = place / "perplexity.json"
    run_once(
        place,
        *("-m", "xlnet_tf.evaluate", "--model", model, "--text", text),
        *("--text-format", "running", "--output", file, *options),
    )
    return json.loads(file.read_text())


def head_of(text, file, characters):
    """Write the first lines of a text, about `characters` long, to a file."""
    kept, size = [], 0
    for line in text.read_text(encoding="utf-8").splitlines(keepends=True):
        kept.append(line)
        size += len(line)
        if size > characters:
            break
    file.write_text("".join(kept), encoding="utf-8")
    return file


def prepare(options):
    """Make the tokenizer and the records; return the path of the records."""
    output = options.output
    tokenizer = output / "tokenizer" / "spiece.model"
    tokenizer.parent.mkdir(parents=True, exist_ok=True)
    text = ("--input", options.train, "--text-format", "running")
    run_once(
        tokenizer.parent,
        *("-m", "data_pipeline.train_tokenizer", *text),
        *("--output", tokenizer, "--vocabulary-size", VOCABULARY_SIZE),
    )
    run_once(
        output / "records",
        *("-m", "data_pipeline.build_records", *text),
        *("--tokenizer", tokenizer, "--output", output / "records"),
        *("--sequence-length", LENGTH, "--overwrite"),
    )
    return output / "records"


def train(options, records, memory, seed):
    """Train a model; return the path of its run."""
    run = options.output / f"memory-{memory}-seed-{seed}-{options.steps}"
    run_once(
        run,
        *("-m", "xlnet_tf.train", "--records", records, "--output", run),
        *("--recipe", "quick", "--objective", "causal"),
        *("--hide-empty-memory", "--checkpoint-interval", 500),
        *("--evaluation-interval", 10**6),
        *("--memory-length", memory, "--seed", seed),
        *("--steps", options.steps),
    )
    return run


def gains(options, runs):
    """Make the lines of the table of perplexities, with ranges over seeds."""
    lines = [
        "| trained with memory | read with memory | perplexity per token | "
        "per word | bits per character |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for trained, memories in ((0, (0,)), (MEMORY, (0, MEMORY, 4 * MEMORY))):
        for memory in memories:
            found = [
                evaluate(
                    run,
                    options.test,
                    f"memory-{memory}",
                    *("--segment-length", LENGTH, "--batch-size", 8),
                    *("--memory-length", memory),
                )
                for run in runs[trained]
            ]
            cells = [
                _spread([x[name] for x in found], digits)
                for name, digits in (
                    ("perplexity_per_token", 2),
                    ("perplexity_per_word", 1),
                    ("bits_per_character", 3),
                )
            ]
            lines.append(f"| {trained} | {memory} | {' | '.join(cells)} |")
    return lines


def _spread(values, digits):
    middle = statistics.median(values)
    low, high = min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def savings(options, run):
    """Make the lines of the table of perplexity and speed by context length."""
    text = head_of(options.test, options.output / "head.txt", 20_000)
    lines = [
        "| context | memory: perplexity | tokens/s | window: perplexity | "
        "tokens/s | memory is faster by |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for context in CONTEXTS:
        memory = evaluate(
            run,
            text,
            f"context-{context}-memory",
            *("--segment-length", LENGTH, "--memory-length", context),
        )
        window = evaluate(
            run,
            text,
            f"context-{context}-window",
            *("--window", context, "--stride", 1, "--batch-size", 16),
        )
        speeds = [x["tokens_per_second"] for x in (memory, window)]
        lines.append(
            f"| {context} | {memory['perplexity_per_token']:.2f} | "
            f"{speeds[0]:,.0f} | {window['perplexity_per_token']:.2f} | "
            f"{speeds[1]:,.0f} | {speeds[0] / speeds[1]:.0f} times |"
        )
    return lines


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--train", required=True, type=pathlib.Path, help="text to train on")
    add("--test", required=True, type=pathlib.Path, help="text to evaluate")
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "recurrence")
    add("--steps", type=int, default=1000)
    add("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    for name in ("train", "test", "output"):
        setattr(options, name, getattr(options, name).resolve())
    records = prepare(options)
    runs = {
        memory: [
            train(options, records, memory, seed)
            for seed in range(options.seeds)
        ]
        for memory in (0, MEMORY)
    }
    table = "\n".join(
        [*gains(options, runs), "", *savings(options, runs[MEMORY][0])]
    )
    (options.output / "results.md").write_text(table + "\n")
    print(f"\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
