"""Benchmark of prediction in any order: scores and fillings of hidden tokens.

    make demo
    python benchmarks/any_order.py --model runs/demo/model \\
        --text held_out.txt --output runs/any_order

The program hides spans of tokens in the sentences of a text. The text is plain,
or divided into tokens as in WikiText. The program writes two tables to
OUTPUT/results.md. The first table compares independent prediction of the hidden
tokens with prediction in several orders. Each row has the perplexity and the
gain over independent prediction in bits per token, with the standard error over
the sentences. The second table has the share of hidden tokens that the model
fills in correctly.
"""

import argparse
import math
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

from data_pipeline.base import command_line

ROOT = pathlib.Path(__file__).resolve().parents[1]

ORDERS = {
    "independent": ("independent", 1),
    "forward": ("forward", 1),
    "backward": ("backward", 1),
    "random, mean of 4": ("random", 4),
}
SPANS, SPAN_TOKENS = 2, 3
TOKENS = (12, 48)  # minimum and maximum tokens of a sentence


def read_sentences(path):
    """Read the sentences of a text, without WikiText's marks and added spaces.

    Args:
        path: path of UTF-8 text.

    Returns:
        list of str. Headings and sentences with unknown words are left out.
    """
    text = path.read_text(encoding="utf-8")
    text = re.sub(r" @(.)@ ", r"\1", text)
    text = re.sub(r" ([.,;:!?)]|'s\b)", r"\1", text).replace("( ", "(")
    # Books break lines inside sentences; a paragraph of Wikipedia is one line.
    text = re.sub(r"(?<=\S)\n(?=[a-z])", " ", text)
    return [
        sentence
        for line in text.split("\n")
        for sentence in re.split(r"(?<=[.!?]) +", line.strip())
        if "<unk>" not in sentence and not sentence.startswith("=")
    ]


def choose(tokenizer, lines, count, seed):
    """Choose random sentences, and spans of tokens to hide in each sentence.

    Returns:
        (sentences, spans, hidden): list of str; for each sentence, a list of
        (begin, end) in characters; for each sentence, a list of token ids per
        span.
    """
    draw = random.Random(seed)
    lines = list(dict.fromkeys(line.strip() for line in lines))
    draw.shuffle(lines)
    texts, spans, hidden = [], [], []
    for line in lines:
        ids, places = tokenizer.encode_with_offsets(line)
        if not TOKENS[0] <= len(ids) <= TOKENS[1] or 0 in ids:
            continue
        # Each half of a sentence has one span, so that spans do not touch.
        half = len(ids) // SPANS
        begins = [
            part * half + draw.randrange(1, half - SPAN_TOKENS)
            for part in range(SPANS)
        ]
        texts.append(line)
        spans.append(
            [
                (places[begin][0], places[begin + SPAN_TOKENS - 1][1])
                for begin in begins
            ]
        )
        hidden.append([ids[x : x + SPAN_TOKENS] for x in begins])
        if len(texts) == count:
            return texts, spans, hidden
    raise ValueError(
        f"the text has {len(texts)} sentences of {TOKENS[0]} to {TOKENS[1]} "
        f"tokens, one a line; {count} are wanted."
    )


def scores(model, texts, spans, seed):
    """Make the lines of the table of perplexities."""
    found = {
        name: model.score(
            texts, order, num_orders=count, seed=seed, spans=spans
        )
        for name, (order, count) in ORDERS.items()
    }
    per_text = {
        name: np.array([x.log_probability for x in values])
        for name, values in found.items()
    }
    of_orders = [x.log_probabilities for x in found["random, mean of 4"]]
    per_text["random, best of 4"] = np.max(of_orders, axis=1)
    tokens = sum(x.num_tokens for x in found["forward"])
    alone = per_text["independent"]
    lines = [
        "| order of the hidden tokens | perplexity | bits per token gained |",
        "| --- | ---: | ---: |",
    ]
    for name, values in per_text.items():
        gain = (values - alone) / math.log(2) * len(texts) / tokens
        error = gain.std(ddof=1) / math.sqrt(len(texts))
        shown = "" if values is alone else f"{gain.mean():.3f} ± {error:.3f}"
        perplexity = math.exp(-values.sum() / tokens)
        lines.append(f"| {name} | {perplexity:.1f} | {shown} |")
    return lines


def fillings(model, texts, spans, hidden):
    """Make the lines of the table of correctly filled tokens."""

    def blanked(mark):
        for text, of_text in zip(texts, spans, strict=True):
            for begin, end in reversed(of_text):
                before, behind = text[:begin].rstrip(), text[end:].lstrip()
                text = f"{before} {mark} {behind}"
            yield text

    lines = [
        "| filled in | tokens right |",
        "| --- | ---: |",
    ]
    alone = by_itself(model, list(blanked(" ".join(["<mask>"] * SPAN_TOKENS))))
    lines.append(f"| each token by itself | {share(alone, hidden):.3f} |")
    for name, num_beams in (("greedy", 1), ("8 beams", 8)):
        found = model.fill(
            list(blanked(f"<mask:{SPAN_TOKENS}>")), num_beams=num_beams
        )
        right = share([x.token_ids for x in found], hidden)
        lines.append(f"| all together, {name} | {right:.3f} |")
    return lines


def by_itself(model, texts):
    """Predict each hidden token independently: a list of ids per sentence."""
    from saved_models.settings import ExportSettings
    from saved_models.signatures import signatures_for

    settings = ExportSettings(sequence_length=4 * TOKENS[1], num_candidates=1)
    tokenizer = model.preprocessor.tokenizer
    module = signatures_for(model)(model, tokenizer, settings)
    found = module.fill_in(texts)["token_ids"].numpy()
    return found[:, :, 0].tolist()


def share(chosen, hidden):
    """Compute the share of hidden tokens that were predicted correctly."""
    right = total = 0
    for found, spans in zip(chosen, hidden, strict=True):
        expected = sum(spans, [])
        total += len(expected)
        right += sum(x == y for x, y in zip(found, expected, strict=False))
    return right / total


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", required=True, help="run or preset trained on permutations")
    add("--text", required=True, type=pathlib.Path, help="held-out text")
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "any_order")
    add("--sentences", type=int, default=300)
    add("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    import xlnet_tf

    model = xlnet_tf.load(options.model)
    lines = read_sentences(options.text)
    texts, spans, hidden = choose(
        model.preprocessor.tokenizer, lines, options.sentences, options.seed
    )
    table = "\n".join(
        [
            *scores(model, texts, spans, options.seed),
            "",
            *fillings(model, texts, spans, hidden),
        ]
    )
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.md").write_text(table + "\n")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
