"""Measure a model without training it: `python -m xlnet_tf.evaluate`.

The command prints the perplexity of a causal model on text, or the metrics of a
task's model on examples:

    python -m xlnet_tf.evaluate --model runs/mine --text 'test/*.txt' \\
        --memory-length 640 --segment-length 128
    python -m xlnet_tf.evaluate --model runs/mine --text 'test/*.txt' \\
        --window 512 --stride 128
    python -m xlnet_tf.evaluate --model runs/rte --task rte --data glue/RTE

`python -m xlnet_tf.train --objective causal` trains a causal model. The model's
memory may be longer in the evaluation than in training.
"""

import argparse
import sys

from data_pipeline.base import command_line
from data_pipeline.base.outputs import check_writable
from data_pipeline.text.options import TEXT_DEFAULTS
from data_pipeline.text.options import add_text_options
from data_pipeline.text.options import fill_text_options
from xlnet_tf.training.startup import check_backend

_SEGMENT_LENGTH = 128
# Options for text that a task does not use, besides the text files.
_OF_TEXT = (
    "tokenizer",
    "segment_length",
    "memory_length",
    "window",
    "stride",
)


def parse_arguments(argv=None):
    """Parse the options of the command."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.evaluate",
        usage="%(prog)s --model PATH (--text GLOB ... | --task NAME --data "
        "PATH) [options]",
        description="Measure the perplexity of a causal model on text, or the "
        "metrics of a task's model on examples.",
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="PATH",
        help="output of a run, preset or .keras file",
    )
    add("--task", metavar="NAME", help="name of a task, see xlnet_tf.finetune")
    add(
        "--data",
        metavar="PATH",
        help="examples of the task: a file, or a directory with a dev split",
    )
    add(
        "--columns",
        help="columns of the data, see xlnet_tf.finetune (default: the run's "
        "columns, otherwise guessed)",
    )
    add(
        "--predictions",
        metavar="FILE",
        help="write predictions and labels to this file, as JSON lines",
    )
    _add_perplexity_options(add)
    add(
        "--output",
        metavar="FILE",
        help="write the metrics to this file, as JSON",
    )
    command_line.add_quiet(parser)
    return command_line.parse(parser, argv)


def _add_perplexity_options(add):
    """Add the command's options for the perplexity on text."""
    add("--text", nargs="+", help="text files, or globs")
    add(
        "--tokenizer",
        metavar="FILE",
        help="a spiece.model (default: the model's tokenizer)",
    )
    add_text_options(add)
    add(
        "--segment-length",
        type=_positive,
        metavar="N",
        help=f"tokens to read at once (default {_SEGMENT_LENGTH})",
    )
    add(
        "--memory-length",
        type=_not_negative,
        metavar="N",
        help="tokens in the memory (default: the model's memory length)",
    )
    add(
        "--window",
        type=_positive,
        metavar="N",
        help="read the text in a sliding window of N tokens, without memory",
    )
    add(
        "--stride",
        type=_positive,
        metavar="N",
        help="move the window by N tokens (default half a window)",
    )
    add(
        "--batch-size",
        type=_positive,
        metavar="N",
        help="parts of the text, or windows, in a batch (default 1); with a "
        "task, rows in a batch (default as in xlnet_tf.finetune)",
    )


def _positive(text):
    return _at_least(text, 1)


def _not_negative(text):
    return _at_least(text, 0)


def _at_least(text, least):
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(
            f"must be an integer from {least} on. Received: {text}"
        )
    return value


def main(argv=None):
    """Run the command; see the module's docstring."""
    options = parse_arguments(argv)
    if bool(options.text) == bool(options.task):
        raise ValueError(
            "give either --text, to measure perplexity, or --task and --data."
        )
    check_backend("evaluation")
    inputs = [*(options.text or ()), *filter(None, [options.data])]
    for file in filter(None, (options.output, options.predictions)):
        check_writable(file, inputs)
    return measure_task(options) if options.task else measure_text(options)


def measure_text(options):
    """Print the perplexity of a model on text; return the exit status."""
    for name in ("data", "columns", "predictions"):
        if getattr(options, name):
            raise ValueError(f"--{name} needs --task, which is not given.")
    if options.window is None and options.stride is not None:
        raise ValueError("--stride needs --window, which is not given.")
    if options.window is not None and options.memory_length:
        raise ValueError(
            "--window reads without memory; leave --memory-length out."
        )
    if options.window is not None and options.segment_length is not None:
        raise ValueError(
            "--window is read instead of segments; leave --segment-length out."
        )
    fill_text_options(options)
    from data_pipeline.base.files import write_json
    from data_pipeline.tokenization.symbols import UNKNOWN_ID
    from xlnet_tf.loading import open_model
    from xlnet_tf.training import perplexity

    with command_line.warnings_in_a_line():
        stored = open_model(options.model)
        model = stored.load()
        tokenizer = stored.tokenizer_for(model, options.tokenizer)
    token_ids, words, characters = read_text(options, tokenizer)
    rows, progress = options.batch_size or 1, not options.quiet
    if options.window:
        stride = options.stride or max(options.window // 2, 1)
        found = perplexity.evaluate_with_window(
            model, token_ids, options.window, stride, rows, progress
        )
        how = f"windows of {options.window} tokens, stride {stride}"
    else:
        memory, length = options.memory_length, options.segment_length
        memory = model.config.memory_length if memory is None else memory
        length = length or _SEGMENT_LENGTH
        found = perplexity.evaluate_with_memory(
            model, token_ids, length, memory, rows, progress
        )
        how = f"segments of {length} tokens, memory {memory}"
    nats, tokens, seconds = found
    report = perplexity.Perplexity(
        nats, tokens, words, characters, seconds
    ).report()
    unknown = int((token_ids == UNKNOWN_ID).sum())
    report["unknown_tokens"] = unknown
    of_token, of_word = (
        "inf" if report[name] is None else f"{report[name]:.2f}"
        for name in ("perplexity_per_token", "perplexity_per_word")
    )
    command_line.print_lines(
        f"text        {words:,} words, {characters:,} characters, "
        f"{tokens:,} tokens predicted, {unknown:,} unknown",
        f"context     {how}",
        f"perplexity  {of_token} per token, {of_word} per word",
        f"bits        {report['bits_per_character']:.4f} per character",
        f"speed       {report['tokens_per_second']:,.0f} tokens/s",
    )
    if options.output:
        write_json(options.output, report)
    return 0


def measure_task(options):
    """Print the metrics of a model on a task; return the exit status."""
    if not options.data:
        raise ValueError("--task needs --data: a file or a directory.")
    for name in (*_OF_TEXT, *TEXT_DEFAULTS):
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} needs --text, which is not given.")
    from data_pipeline.base.files import write_json
    from data_pipeline.tasks.archives import open_tree
    from data_pipeline.tasks.catalog import find_task
    from xlnet_tf.loading import open_model
    from xlnet_tf.training.evaluation import evaluate_task
    from xlnet_tf.training.evaluation import reading_settings
    from xlnet_tf.training.results.predictions import write_predictions
    from xlnet_tf.training.results.summary import written

    find_task(options.task)
    open_tree(options.data)  # refuses wrong paths before the model is loaded
    stored = open_model(options.model)
    settings = reading_settings(stored)
    if options.batch_size:
        settings["batch_size"] = options.batch_size
    with command_line.warnings_in_a_line():
        model = stored.load()
    metrics, predictions = evaluate_task(
        model,
        options.task,
        options.data,
        options.columns,
        settings,
        progress=not options.quiet,
        run_columns=(stored.results() or {}).get("columns"),
    )
    command_line.print_lines(f"{options.data}: {written(metrics)}")
    if options.predictions:
        write_predictions(options.predictions, predictions)
        command_line.print_lines(f"wrote {options.predictions}")
    if options.output:
        write_json(options.output, metrics)
    return 0


def read_text(options, tokenizer):
    """Read text files as one sequence of tokens; count words and characters.

    Args:
        options: object with the options of the command as attributes.
        tokenizer: Tokenizer.

    Returns:
        (int32 array of N token ids, number of words, number of characters).
        Ends of lines are not counted as characters.

    Raises:
        ValueError: if the text has fewer than two tokens.
    """
    import itertools

    import numpy as np

    from data_pipeline.records.sequences import join_documents
    from data_pipeline.text.documents import Corpus
    from data_pipeline.text.files import ReadLog
    from data_pipeline.text.files import describe_bad_text

    corpus = Corpus(
        options.text,
        options.text_format,
        options.encoding,
        options.on_bad_text,
        options.text_field,
    )
    log = ReadLog()
    command_line.print_notes(*corpus.notes)
    sentences, words, characters = [], 0, 0
    for document in corpus.documents(log):
        sentences.append(document.sentences())
        lines = document.text.split("\n")
        words += sum(len(line.split()) for line in lines)
        characters += sum(map(len, lines))
    command_line.print_notes(*describe_bad_text(log.bad_text))
    stream = join_documents(
        *tokenizer.encode_flat(list(itertools.chain.from_iterable(sentences))),
        np.array(list(map(len, sentences)), np.int64),
    )
    if len(stream.token_ids) < 2:
        raise ValueError("the text must have at least two tokens.")
    return stream.token_ids, words, characters


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
