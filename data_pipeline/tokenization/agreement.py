"""Compare the graph tokenizer of exports with the Python tokenizer.

python -m data_pipeline.tokenization.agreement --tokenizer spiece.model \\
    --input 'text/*.txt'
"""

import sys

from data_pipeline.base import command_line


def agreement(tokenizer, texts, batch_size=256):
    """Find the texts for which the two tokenizers give different ids.

    Args:
        tokenizer: Tokenizer.
        texts: list of str.
        batch_size: int. Default 256.

    Returns:
        list of int, indices of the texts whose ids differ.
    """
    import tensorflow as tf

    from data_pipeline.tokenization.graph import GraphTokenizer

    graph = tf.function(
        GraphTokenizer(tokenizer),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    differences = []
    for begin in range(0, len(texts), batch_size):
        batch = texts[begin : begin + batch_size]
        rows = [text.encode(errors="surrogatepass") for text in batch]
        graph_ids = graph(tf.constant(rows, tf.string)).to_list()
        expected = tokenizer.encode_batch(batch)
        differences.extend(
            begin + row
            for row in range(len(batch))
            if graph_ids[row] != expected[row]
        )
    return differences


def main(argv=None):
    """Run the command: report the lines that `agreement` finds in text files.

    Args:
        argv: list of str, or None for the arguments of the process.

    Returns:
        int, exit status: 0 if all lines have equal ids, else 1.

    Raises:
        OSError: an input cannot be read.
        ValueError: the tokenizer is not valid, or there is no input.
    """
    options = _parse_arguments(argv)
    from data_pipeline.text.documents import read_documents
    from data_pipeline.tokenization.tokenizer import Tokenizer

    tokenizer = Tokenizer(options.tokenizer, options.lowercase)
    lines = [
        line for document in read_documents(options.input) for line in document
    ]
    differences = agreement(tokenizer, lines)
    share = 1 - len(differences) / max(1, len(lines))
    command_line.print_lines(
        f"{len(lines)} lines, {len(differences)} differ, {share:.4%} agree"
    )
    for position in differences[: options.show]:
        command_line.print_lines(f"differs: {lines[position]!r}")
    return 1 if differences else 0


def _parse_arguments(argv):
    parser = command_line.Parser(
        prog="python -m data_pipeline.tokenization.agreement",
        description="Check that the tokenizer of exports gives the same ids as "
        "the Python tokenizer.",
    )
    add = parser.add_argument
    add("--tokenizer", required=True, metavar="FILE", help="a spiece.model")
    add(
        "--input",
        required=True,
        nargs="+",
        metavar="GLOB",
        help="text, see build_records",
    )
    add("--lowercase", action="store_true", help="for an uncased tokenizer")
    add(
        "--show",
        type=int,
        default=5,
        metavar="N",
        help="print at most N lines that differ (default 5)",
    )
    return command_line.parse(parser, argv)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
