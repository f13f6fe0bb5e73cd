"""Attention weights of a model for a text and its memory, and their pictures.

Shapes: T tokens, M tokens in memory, K = M + T keys, N heads, L layers.
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from xlnet_tf.pictures.grid import draw_grid
from xlnet_tf.pictures.grid import figure_of


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention weights of one text.

    Attributes:
        keys: list of K strs, the pieces of the keys: M pieces in memory, then T
            pieces of the text.
        num_remembered: int, M.
        weights: float array [L, N, T, K]. The weights over all K keys sum to 1.

    Example:

    ```python
    from xlnet_tf.pictures import Attention, draw_distances
    weights = np.full((1, 2, 3, 3), 1 / 3)  # one layer with two heads
    attention = Attention(["a", "b", "c"], num_remembered=0, weights=weights)
    draw_distances(attention).savefig("distances.svg")
    ```
    """

    keys: list
    num_remembered: int
    weights: np.ndarray

    @property
    def rows(self):
        """List of the T pieces of the text."""
        return self.keys[self.num_remembered :]


def read_attention(
    model: Any, tokenizer: Any, text: str, memory_text: str | None = None
) -> Attention:
    """Compute the attention weights of a text, with or without a memory.

    Args:
        model: a backbone, or a model with a backbone.
        tokenizer: data_pipeline Tokenizer.
        text: str.
        memory_text: str, the text before `text`. The memory contains all tokens
            of `memory_text`. Default None: no memory.

    Returns:
        Attention.

    Raises:
        ValueError: if a text is empty or too long, or `memory_text` is given
            for a model without memory.
    """
    backbone = getattr(model, "backbone", model)
    config = backbone.config
    ids = _encode(tokenizer, text, config.layout)
    features, remembered = {"token_ids": np.array([ids], "int32")}, []
    if memory_text is not None:
        if not backbone.has_query_stream:
            raise ValueError(
                f"a {backbone.kind} has no memory. Leave the text before out."
            )
        remembered = _encode(tokenizer, memory_text)
        before = backbone(
            {"token_ids": np.array([remembered], "int32")},
            training=False,
            layer_inputs=True,
        )
        features["memories"] = before["layer_inputs"]
    outputs = backbone(features, training=False, attention_weights=True)
    weights = [
        ops.convert_to_numpy(ops.cast(x, "float32"))[0]
        for x in outputs["attention_weights"]
    ]
    pieces = [tokenizer.id_to_piece(x) for x in [*remembered, *ids]]
    return Attention(pieces, len(remembered), np.stack(weights))


def _encode(tokenizer, text, layout=None):
    from data_pipeline.tokenization.symbols import CLS_ID
    from data_pipeline.tokenization.symbols import SEP_ID

    ids = tokenizer.encode(text)
    if not ids:
        raise ValueError(f"the text has no tokens. Received: {text!r}.")
    if layout is None:
        return ids
    if layout == "bert":
        return [CLS_ID, *ids, SEP_ID]
    return [*ids, SEP_ID, CLS_ID]


def draw_attention(
    attention: Attention, layer: int = -1, head: int | None = None
):
    """Draw the attention weights of a head; rows attend to columns.

    Args:
        attention: Attention.
        layer: int, from 0. Negative numbers count from the last layer. Default
            -1.
        head: int, or None (default) for the mean of all heads.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: if the layer or the head does not exist.
    """
    layers, heads = attention.weights.shape[:2]
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if value is not None and not -count <= value < count:
            raise ValueError(
                f"`{name}` must be from 0 to {count - 1}. Received: "
                f"{name}={value}."
            )
    weights = attention.weights[layer]
    weights = weights.mean(axis=0) if head is None else weights[head]
    rows, keys = attention.rows, attention.keys
    figure = figure_of(len(rows), len(keys))
    axes = figure.subplots()
    of_head = "mean of heads" if head is None else f"head {head % heads}"
    title = f"layer {layer % layers}, {of_head}"
    if attention.num_remembered:
        title += f"; {attention.num_remembered} remembered tokens on the left"
        line = attention.num_remembered - 0.5
        axes.axvline(line, color="tab:red", linewidth=1.5)
    draw_grid(axes, weights, rows, keys, title, highest=weights.max())
    return figure


def draw_distances(attention: Attention):
    """Draw each layer's mean attention weight against the distance to the key.

    Args:
        attention: Attention.

    Returns:
        matplotlib.figure.Figure. The distance is the row's position minus the
        key's position. At each distance, the mean is over all heads and over
        all rows that have a key at this distance.
    """
    import matplotlib
    from matplotlib.figure import Figure

    layers, _, rows, keys = attention.weights.shape
    distance = (
        np.arange(rows)[:, None] + attention.num_remembered - np.arange(keys)
    )
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, layers))
    places = np.unique(distance)
    for layer in range(layers):
        mean = attention.weights[layer].mean(axis=0)
        values = [mean[distance == place].mean() for place in places]
        axes.plot(places, values, color=colours[layer], label=f"layer {layer}")
    axes.set_xlabel("distance, row minus key: left of 0 is ahead")
    axes.set_ylabel("mean weight")
    axes.legend(fontsize=8, loc="upper right")
    axes.grid(alpha=0.3)
    return figure
