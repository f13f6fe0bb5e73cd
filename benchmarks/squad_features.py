"""How fast SQuAD's questions become windows.

    python benchmarks/squad_features.py --data train-v1.1.json \
        --tokenizer spiece.model

Prints seconds of processor time for 1,000 questions, on one thread, the best of
`--repeat`: of SentencePiece with offsets alone, and of everything from examples
to windows. Reading the JSON is not in it, nor in the figure of the released
script.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from data_pipeline import command_line
from data_pipeline.features import answer_pieces
from data_pipeline.features import question_answering
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tokenization.tokenizer import Tokenizer

RELEASED = 12.7  # seconds for 1,000 questions of the released script


def timed(repeat, function, *arguments):
    """The result and the processor seconds of the quickest of some calls."""
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        result = function(*arguments)
        seconds.append(time.process_time() - began)
    return result, min(seconds)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="SQuAD's JSON")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--stride", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args(argv)

    tokenizer = Tokenizer(arguments.tokenizer)
    examples = read_examples("squad-2.0", arguments.data)
    _, alone = timed(
        arguments.repeat, answer_pieces.encode_contexts, examples, tokenizer
    )
    windows, seconds = timed(
        arguments.repeat,
        question_answering.make_windows,
        examples,
        tokenizer,
        arguments.sequence_length,
        arguments.stride,
    )
    thousands = len(examples) / 1000
    print("seconds of processor time for 1,000 questions:")
    print(f"  contexts to pieces and offsets {alone / thousands:8.3f}")
    print(
        f"  examples to windows            {seconds / thousands:8.3f}   "
        f"{RELEASED / (seconds / thousands):.0f} times the released script"
    )
    print(windows.report)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
