"""Pictures of the attention masks of XLNet's two streams and of UniLMv2.

UniLMv2 is trained by pseudo-masked language modelling. The pictures show the
masks that the models use.

Shapes: T tokens, M tokens in memory.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from xlnet_tf.config import XLNetConfig
from xlnet_tf.model.masks import CONTEXT_RANK
from xlnet_tf.model.masks import attention_mask
from xlnet_tf.model.masks import pseudo_masks
from xlnet_tf.pictures.grid import draw_grid
from xlnet_tf.pictures.grid import figure_of

ORDERS = ("forward", "backward", "random")


def make_order(
    order: str | Sequence[int], num_tokens: int, seed: int = 0
) -> np.ndarray:
    """Make the factorization order of a text, as positions from 0.

    Args:
        order: "forward", "backward", "random", or a list of the positions 1 to
            T in the order of prediction, such as [3, 2, 4, 1] in the paper.
        num_tokens: int, T.
        seed: int, seed of a random order. Default 0.

    Returns:
        int array [T].

    Raises:
        ValueError: if `order` is invalid.
    """
    positions = np.arange(num_tokens)
    if isinstance(order, str):
        if order not in ORDERS:
            raise ValueError(
                f"`order` must be {', '.join(ORDERS)} or positions. Received: "
                f"order={order!r}."
            )
        if order == "random":
            return np.random.default_rng(seed).permutation(positions)
        return positions[:: -1 if order == "backward" else 1]
    places = np.asarray(order) - 1
    if sorted(places.tolist()) != positions.tolist():
        raise ValueError(
            f"`order` must hold each position from 1 to {num_tokens} once. "
            f"Received: order={(places + 1).tolist()}."
        )
    return places


def draw_masks(
    pieces: Sequence[str],
    order: str | Sequence[int] = "random",
    seed: int = 0,
    memory: Sequence[str] = (),
):
    """Draw the attention masks of the content stream and the query stream.

    Args:
        pieces: list of T strs.
        order, seed: see `make_order`.
        memory: list of M strs, the pieces in memory. Default: none.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: if the order does not fit the pieces.

    Source: figure 1 of https://arxiv.org/abs/1906.08237.

    Example:

    ```python
    from xlnet_tf.pictures import draw_masks
    figure = draw_masks(["New", "York", "is", "a", "city"], [3, 4, 5, 1, 2])
    figure.savefig("masks.png")
    ```
    """
    places = make_order(order, len(pieces), seed)
    rank = np.empty(len(pieces), "int32")
    rank[places] = np.arange(len(pieces))
    columns = [*memory, *pieces]
    figure = figure_of(len(pieces), len(columns), panels=2)
    rows = [
        f"{piece}  {step}" for piece, step in zip(pieces, rank + 1, strict=True)
    ]
    titles = ("content stream", "query stream")
    features = {"token_ids": rank[None], "factorization_rank": rank[None]}
    targets = np.arange(len(pieces))[None]
    config = XLNetConfig.from_size("tiny")
    both = attention_mask(features, targets, config, len(memory))
    masks = np.split(ops.convert_to_numpy(both)[0], 2)
    for axes, mask, title in zip(
        figure.subplots(1, 2), masks, titles, strict=True
    ):
        draw_grid(axes, mask, rows, columns, title)
        if memory:
            axes.axvline(len(memory) - 0.5, color="#333333", linewidth=1.5)
    steps = " → ".join(str(position + 1) for position in places)
    figure.suptitle(f"row may attend to column, order {steps}", fontsize=10)
    return figure


def draw_pseudo_masks(pieces: Sequence[str], blocks: Sequence[Sequence[int]]):
    """Draw the attention mask of pseudo-masked language modelling (UniLMv2).

    Args:
        pieces: list of T strs.
        blocks: list with one list for each prediction step, in order. The list
            of a step has the positions of the step's targets, counted from 1.

    Returns:
        matplotlib.figure.Figure. The first T rows and columns are the text,
        with [M] at the targets. After the text, each step has its targets
        twice: first marked with [P], then as true tokens.

    Raises:
        ValueError: if a position is outside the text, or occurs twice.

    Source: figure 2 of https://arxiv.org/abs/2002.12804.
    """
    targets = [position - 1 for block in blocks for position in block]
    within = all(0 <= x < len(pieces) for x in targets)
    if not targets or not within or len(set(targets)) < len(targets):
        raise ValueError(
            f"`blocks` must hold positions from 1 to {len(pieces)}, each once. "
            f"Received: blocks={blocks}."
        )
    names = ["[M]" if i in targets else x for i, x in enumerate(pieces)]
    rank = [CONTEXT_RANK] * len(pieces)
    is_pseudo = [False] * len(pieces)
    for step, block in enumerate(blocks):
        for pseudo in (True, False):
            for position in block:
                piece = pieces[position - 1]
                names.append(f"[P] {piece}" if pseudo else piece)
                rank.append(step)
                is_pseudo.append(pseudo)
    mask = pseudo_masks(np.array([rank], "int32"), np.array([is_pseudo]))
    figure = figure_of(len(names), len(names))
    axes = figure.subplots()
    mask = ops.convert_to_numpy(mask)[0]
    steps = " → ".join(
        "{" + ", ".join(map(str, block)) + "}" for block in blocks
    )
    title = f"row may attend to column, steps {steps}"
    draw_grid(axes, mask, names, names, title)
    return figure
