"""Demo from text to predictions, on any machine: `make demo`.

The program collects English sentences from the docstrings of installed
packages, or reads your text (`make demo CORPUS=path`). Then the program runs
the same commands as a user, which train a tokenizer, build records, pretrain a
model, export the model and predict words. Every command is printed before it
runs. The demo takes about five minutes on two cores.
"""

import argparse
import ast
import math
import os
import pathlib
import re
import shutil
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.commands import run  # noqa: E402
from examples.guesses import draw_guesses  # noqa: E402
from examples.guesses import guesses_of  # noqa: E402
from examples.guesses import held_out_blanks  # noqa: E402
from examples.guesses import share_found  # noqa: E402

# Options of BERT's backbone, for the objective that XLNet's backbone does not
# support.
BERT = ("--backbone", "bert", "--set", "relative_position_buckets=32")
OBJECTIVES = {
    "permutation": "Permutation language modelling",
    "causal": "Causal language modelling",
    "masked": "Masked language modelling",
    "pseudo_masked": "Pseudo-masked language modelling, autoencoding",
}
SEQUENCE_LENGTH = 64
VOCABULARY_SIZE = 4000
MAX_CHARACTERS = 6_000_000
NUM_SENTENCES, NUM_HELD_OUT = 5, 200

_PROSE = re.compile(r"[A-Z][A-Za-z0-9 ,;:'\"()\-]{30,400}[.!?]$")


def options_of(objective, steps):
    """Make the options of `xlnet_tf.train` that an objective needs.

    Args:
        objective: str, a key of `OBJECTIVES`.
        steps: int, number of training steps.

    Returns:
        tuple.
    """
    if objective != "pseudo_masked":
        return ()
    # With a shorter warm-up, BERT learns only the frequencies of tokens for
    # thousands of steps.
    return (*BERT, "--warmup-steps", min(300, steps // 3))


def collect_docstrings(directory):
    """Collect English sentences from the docstrings below a directory.

    Args:
        directory: path of installed packages.

    Yields:
        list of str, the sentences of one module.
    """
    seen, characters = set(), 0
    for file in sorted(directory.rglob("*.py")):
        sentences = []
        for docstring in _docstrings(file):
            for paragraph in re.split(r"\n\s*\n", docstring):
                for sentence in _sentences(paragraph):
                    if sentence not in seen:
                        seen.add(sentence)
                        sentences.append(sentence)
        if sentences:
            yield sentences
            characters += sum(map(len, sentences))
            if characters > MAX_CHARACTERS:
                return


def _docstrings(file):
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            text = ast.get_docstring(node)
            if text:
                yield text


def _sentences(paragraph):
    """Yield a paragraph's sentences of prose, without code, tables or lists."""
    text = " ".join(paragraph.replace("`", "").split())
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", text):
        if _PROSE.fullmatch(sentence):
            yield sentence


def write_corpus(file):
    """Write the sentences collected from docstrings to a file, one per line.

    A blank line separates the sentences of two modules.
    """
    directory = pathlib.Path(sysconfig.get_path("purelib"))
    with file.open("w", encoding="utf-8") as handle:
        for sentences in collect_docstrings(directory):
            handle.write("\n".join(sentences) + "\n\n")
    size = file.stat().st_size
    print(f"collected {size / 1e6:.1f} MB of docstrings in {file}")
    if size < 200_000:
        raise SystemExit(
            f"error: only {size} bytes of prose were found below {directory}; "
            "give a text of your own: make demo CORPUS=path"
        )


def unigram_bits(records, objective):
    """Compute the entropy of the targets' frequencies, in bits per token.

    This entropy is the lowest possible loss of a model that ignores the
    context. The frequencies are counted in the held-out targets.

    Args:
        records: directory of records with a validation split.
        objective: str, name of the objective whose targets are counted.

    Returns:
        float.
    """
    import numpy as np

    from data_pipeline.pretraining import PretrainingData

    data = PretrainingData(
        records, batch_size=1, split="validation", objective=objective
    )
    counts = np.zeros(data.manifest.tokenizer["vocabulary_size"])
    for batch in data.dataset().take(data.steps_per_epoch):
        np.add.at(
            counts, batch["target_ids"].numpy(), batch["target_weights"].numpy()
        )
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


def bits_per_token(values):
    """Convert the loss in a line of `metrics.jsonl` to bits per token.

    The loss of pseudo-masked modelling is a sum of two losses. In this case,
    only the autoencoding loss is converted.
    """
    loss = values.get("autoencoding_loss", values["loss"])
    return loss / math.log(2)


def draw(run_directory, unigram, picture, title):
    """Draw the loss of a run, and the unigram entropy as a horizontal line.

    Args:
        run_directory: path of the directory with `metrics.jsonl`.
        unigram: float, unigram entropy in bits per token.
        picture: path of the PNG to write.
        title: str.

    Returns:
        float, bits per token in the last evaluation.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from data_pipeline.base.files import read_json_lines

    values = read_json_lines(run_directory / "metrics.jsonl")
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for kind, label, style in (
        ("train", "training", {"color": "tab:blue", "alpha": 0.6}),
        ("eval", "held out", {"color": "tab:red", "marker": "o"}),
    ):
        points = [value for value in values if value["kind"] == kind]
        axes.plot(
            [point["step"] for point in points],
            [bits_per_token(point) for point in points],
            label=label,
            **style,
        )
    axes.axhline(unigram, color="gray", linestyle="--", label="unigram entropy")
    axes.set_xlabel("step")
    axes.set_ylabel("bits per token")
    axes.set_title(title)
    axes.legend(loc="upper right")
    axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=120)
    return bits_per_token([v for v in values if v["kind"] == "eval"][-1])


def blank_sentences(corpus, tokenizer_file, text_format, count):
    """Replace a word by a blank in some sentences of the corpus.

    Args:
        corpus: path or glob pattern of the text.
        tokenizer_file: path of the SentencePiece model.
        text_format: str, see `build_records`.
        count: int, maximum number of sentences.

    Returns:
        list of (text with a blank, the replaced word).
    """
    from data_pipeline.text.documents import read_documents
    from data_pipeline.tokenization.symbols import BLANK
    from data_pipeline.tokenization.symbols import UNKNOWN_ID
    from data_pipeline.tokenization.tokenizer import Tokenizer

    tokenizer = Tokenizer(tokenizer_file)
    found = []
    for document in read_documents(str(corpus), text_format):
        for sentence in document[1:60:20]:
            words = sentence.split()
            if not 8 <= len(words) <= 24:
                continue
            # Choose a short word in the middle that is a single piece.
            for place in range(3, len(words) - 3):
                word = words[place]
                known = tokenizer.piece_to_id(BLANK + word) != UNKNOWN_ID
                if known and word.isalpha() and len(word) > 2:
                    blank = [*words[:place], "<mask>", *words[place + 1 :]]
                    found.append((" ".join(blank), word))
                    break
        if len(found) >= 40 * count:
            break
    return found[:: max(1, len(found) // count)][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--corpus", help="your text: a file or a quoted glob pattern")
    add("--text-format", default="auto", help="see build_records")
    add("--output", default="runs/demo")
    add("--steps", type=int, default=1000)
    add("--objective", choices=OBJECTIVES, default="permutation")
    arguments = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    output = (ROOT / arguments.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    corpus = arguments.corpus
    text_format = arguments.text_format
    if not corpus:
        corpus = output / "docstrings.txt"
        text_format = "sentences"
        write_corpus(corpus)
    run(
        "-m", "data_pipeline.train_tokenizer",
        "--input", corpus,
        "--text-format", text_format,
        "--output", output / "spiece.model",
        "--vocabulary-size", VOCABULARY_SIZE,
    )  # fmt: skip
    run(
        "-m", "data_pipeline.build_records",
        "--input", corpus,
        "--text-format", text_format,
        "--tokenizer", output / "spiece.model",
        "--output", output / "records",
        "--sequence-length", SEQUENCE_LENGTH,
        "--validation-fraction", 0.03,
        "--overwrite",
    )  # fmt: skip
    # Remove the run of an earlier demo, which had other records.
    shutil.rmtree(output / "model", ignore_errors=True)
    run(
        "-m", "xlnet_tf.train",
        "--recipe", "quick",
        "--records", output / "records",
        "--output", output / "model",
        "--objective", arguments.objective,
        "--steps", arguments.steps,
        *options_of(arguments.objective, arguments.steps),
    )  # fmt: skip
    run(
        "-m", "saved_models.export",
        "--model", output / "model",
        "--output", output / "export" / "1",
        "--sequence-length", SEQUENCE_LENGTH,
        "--overwrite",
    )  # fmt: skip
    sentences = blank_sentences(
        corpus, output / "spiece.model", text_format, NUM_SENTENCES
    )
    held_out = held_out_blanks(output / "records", NUM_HELD_OUT)
    lines = [text + "\n" for text, _ in sentences + held_out]
    (output / "blanks.txt").write_text("".join(lines), encoding="utf-8")
    answers = run(
        "-m", "saved_models.predict",
        "--model", output / "export",
        "--file", output / "blanks.txt",
        capture=True,
    )  # fmt: skip
    report(
        output, sentences, answers.splitlines(), arguments.objective, held_out
    )


def report(output, sentences, answers, objective, held_out=()):
    """Print the results of the demo and the paths of its outputs.

    Args:
        output: path of the demo's outputs.
        sentences: list of (text with a blank, the word), which are printed.
        answers: list of str, lines printed by `predict`, first for `sentences`,
            then for `held_out`.
        objective: str, a key of `OBJECTIVES`.
        held_out: list of (text with a blank, the word), in which the correct
            guesses are counted.
    """
    unigram = unigram_bits(output / "records", objective)
    picture = output / "loss.png"
    title = OBJECTIVES[objective]
    reached = draw(output / "model", unigram, picture, title)
    print(
        f"\nheld out: {reached:.2f} bits per token, perplexity "
        f"{2**reached:.0f}; knowing only how frequent each token is: "
        f"{unigram:.2f} bits, perplexity {2**unigram:.0f}.\n"
    )
    shown = answers[: len(sentences)]
    for (text, word), answer in zip(sentences, shown, strict=True):
        guesses = ", ".join(guess for guess, _ in guesses_of(answer))
        print(f"{text}\n    was: {word}   guesses: {guesses}")
    print(share_found(held_out, answers[len(sentences) :]))
    pictures = [picture, output / "model" / "loss.png"]
    if sentences:
        pictures.append(output / "guesses.png")
        draw_guesses(sentences, shown, pictures[-1])
    print(
        "pictures:",
        *(f"  {x}" for x in pictures if x.is_file()),
        f"export:\n  {output / 'export' / '1'}",
        "next: fine-tune it on a table with a column of texts and one of "
        "classes",
        "  python -m xlnet_tf.finetune --task classification --data FILE.csv "
        f"--preset {output / 'model'} --output DIR",
        sep="\n",
    )
    if not math.isfinite(reached) or reached >= unigram:
        raise SystemExit(
            "All was made and exported, but the model does not predict better "
            "than the frequencies of tokens yet: give it more --steps (make "
            "demo STEPS=2000) or more text."
        )


if __name__ == "__main__":
    main()
