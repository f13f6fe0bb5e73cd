"""Draw masks, attention, memory or curves: `python -m xlnet_tf.show`.

    python -m xlnet_tf.show masks --pieces New York is a city --order 3 4 5 1 2
    python -m xlnet_tf.show attention --model runs/mine --text "A fine film."
    python -m xlnet_tf.show memory --model runs/mine --before "It rained." \\
        --text "The street was wet."
    python -m xlnet_tf.show curve runs/one runs/two --output curves.svg

`--output` is a .png or .svg file. In Python, functions of `xlnet_tf.pictures`
return the pictures as Matplotlib figures.
"""

import os
import sys

from data_pipeline.base import command_line
from data_pipeline.base.files import written_whole
from data_pipeline.base.outputs import check_writable
from xlnet_tf.training.startup import check_backend

FORMATS = (".png", ".svg")


def parse_arguments(argv=None):
    """Parse the options of the command."""
    parser = command_line.Parser(
        prog="python -m xlnet_tf.show",
        description="Draw masks, attention, memory or curves.",
    )
    pictures = parser.add_subparsers(dest="picture", required=True)

    def picture(name, text):
        added = pictures.add_parser(name, help=text, description=text)
        added.add_argument(
            "--output",
            default=f"{name}.png",
            metavar="FILE",
            help=f"a .png or .svg file (default {name}.png)",
        )
        return added.add_argument

    add = picture("masks", "attention masks of both streams")
    add("--pieces", nargs="+", metavar="PIECE", help="tokens of a sequence")
    add("--text", help="a text, split into tokens with --tokenizer")
    add("--tokenizer", metavar="FILE", help="a spiece.model, run or preset")
    add(
        "--order",
        nargs="+",
        metavar="ORDER",
        help="forward, backward, random, or positions from 1 on: 3 2 4 1 "
        "(default random)",
    )
    add(
        "--blocks",
        nargs="+",
        metavar="POSITIONS",
        help="draw the pseudo mask of UniLMv2 instead, for the positions of "
        "each step, such as 4,5 2",
    )
    add(
        "--memory",
        nargs="+",
        default=[],
        metavar="PIECE",
        help="remembered tokens before the pieces",
    )
    add(
        "--seed", type=int, default=0, help="seed of a random order (default 0)"
    )
    for name, text in (
        ("attention", "attention weights of a head over a text"),
        ("memory", "attention weights over a text and the text before it"),
    ):
        add = picture(name, text)
        add("--model", required=True, metavar="PATH", help="run or preset")
        add(
            "--tokenizer",
            metavar="FILE",
            help="a spiece.model (default: the model's tokenizer)",
        )
        add("--text", required=True, help="the text to read")
        if name == "memory":
            add("--before", required=True, help="earlier text, in the memory")
        add("--layer", type=int, help="layer, from 0 (default the last)")
        add("--head", type=int, help="head, from 0 (default the mean of all)")
        add(
            "--distances",
            action="store_true",
            help="draw the weights over the distance, for all layers",
        )
    add = picture("curve", "a metric of one or several runs")
    add("runs", nargs="+", metavar="RUN", help="directories of runs")
    add("--metric", default="loss", help="name in metrics.jsonl (default loss)")
    texts = ("before", "pieces", "text")
    return command_line.parse(parser, argv, texts)


def main(argv=None):
    """Run the command; see the module's docstring."""
    options = parse_arguments(argv)
    output = options.output
    ending = os.path.splitext(output)[1]
    if ending not in FORMATS:
        raise ValueError(
            f"--output must end in {' or '.join(FORMATS)}. Received: {output}."
        )
    check_writable(output)
    if options.picture != "curve":
        check_backend("drawing", ())
    with command_line.warnings_in_a_line():
        figure = _DRAW[options.picture](options)
        with written_whole(output) as file:
            figure.savefig(file, dpi=150, format=ending[1:])
    command_line.print_lines(f"wrote {output}")
    return 0


def _draw_masks(options):
    from xlnet_tf import pictures

    if (options.pieces is None) == (options.text is None):
        raise ValueError("give either --pieces or --text.")
    pieces = options.pieces
    if pieces is None:
        if options.tokenizer is None:
            raise ValueError("--text needs --tokenizer.")
        from xlnet_tf.loading import load_tokenizer

        tokenizer = load_tokenizer(options.tokenizer)
        ids = tokenizer.encode(options.text)
        pieces = [tokenizer.id_to_piece(x) for x in ids]
    if options.blocks:
        if options.memory:
            raise ValueError("--blocks draws a text without --memory.")
        if options.order:
            raise ValueError("give either --order or --blocks.")
        blocks = [_numbers("--blocks", x.split(",")) for x in options.blocks]
        return pictures.draw_pseudo_masks(pieces, blocks)
    order = options.order or ["random"]
    named = len(order) == 1 and not order[0].isdigit()
    order = order[0] if named else _numbers("--order", order)
    return pictures.draw_masks(pieces, order, options.seed, options.memory)


def _numbers(name, words):
    if not all(word.isdigit() for word in words):
        raise ValueError(
            f"{name} takes positions from 1 on. Received: {' '.join(words)}."
        )
    return [int(word) for word in words]


def _draw_attention(options):
    from xlnet_tf import pictures
    from xlnet_tf.loading import open_model

    chosen = [x for x in (options.layer, options.head) if x is not None]
    if options.distances and chosen:
        raise ValueError(
            "--distances draws all layers and heads; leave --layer and --head "
            "out."
        )
    stored = open_model(options.model)
    model = stored.load()
    attention = pictures.read_attention(
        model,
        stored.tokenizer_for(model, options.tokenizer),
        options.text,
        getattr(options, "before", None),
    )
    if options.distances:
        return pictures.draw_distances(attention)
    layer = -1 if options.layer is None else options.layer
    return pictures.draw_attention(attention, layer, options.head)


def _draw_curve(options):
    from xlnet_tf import pictures

    return pictures.draw_curves(options.runs, options.metric)


_DRAW = {
    "masks": _draw_masks,
    "attention": _draw_attention,
    "memory": _draw_attention,
    "curve": _draw_curve,
}


def command():
    """Run the command and return its exit status."""
    return command_line.run(main)


if __name__ == "__main__":
    sys.exit(command())
