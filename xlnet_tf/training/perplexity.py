"""Perplexity of a causal language model on running text.

An evaluation uses one of two kinds of context for all tokens:

- Memory: the text is read in segments, each with the memory of earlier
  segments. Every token is computed once.
- Sliding window: a window moves by `stride` tokens at a time, and the last
  `stride` tokens of the window are predicted. Every token is computed
  `window / stride` times.

Shapes: N tokens of the text, R rows read in parallel, S tokens of a segment
or window, M memory length, D model dim.
"""

import dataclasses
import math
import time

import numpy as np
from keras import ops

from data_pipeline.base.progress import track
from xlnet_tf.model.compiled import compiled


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Result of a perplexity evaluation.

    Attributes:
        nats: float, the sum of the losses of all predicted tokens, with natural
            logarithms.
        tokens: int, number of predicted tokens.
        words: int, number of words, separated by white space. Ends of lines are
            not tokens here and are not counted. The published perplexities for
            WikiText include the prediction of ends of lines, and count ends of
            lines as words.
        characters: int, number of characters without ends of lines.
        seconds: float, time of the evaluation without the time for compiling.
    """

    nats: float
    tokens: int
    words: int
    characters: int
    seconds: float

    def report(self):
        """Return a dict of loss, perplexities, bits, counts and speed.

        A perplexity that is too large for a float is None. An example is the
        perplexity per word in a language without blanks between words.
        """
        return {
            "loss": self.nats / self.tokens,
            "perplexity_per_token": _perplexity(self.nats / self.tokens),
            "perplexity_per_word": _perplexity(self.nats / self.words),
            "bits_per_character": self.nats / math.log(2) / self.characters,
            "tokens": self.tokens,
            "words": self.words,
            "characters": self.characters,
            "tokens_per_second": self.tokens / self.seconds,
        }


def _perplexity(nats):
    try:
        return math.exp(nats)
    except OverflowError:
        return None


def evaluate_with_memory(
    model, token_ids, segment_length, memory_length, rows=1, progress=False
):
    """Sum the losses of a text's tokens, read in segments with memory.

    Args:
        model: XLNetPretrainer with the objective `Causal`.
        token_ids: int array [N].
        segment_length: int, S.
        memory_length: int, M. It may be longer than in training. With 0 a token
            attends only to its segment.
        rows: int, R, number of parts of the text that are read in parallel.
            More parts are faster, but each part begins without memory. Default
            1.
        progress: bool, whether to print progress. Default False.

    Returns:
        (nats, tokens, seconds), see `Perplexity`.

    Raises:
        ValueError: if the model is not causal, or the text is too short.
    """
    _check_causal(model)
    model = _with_memory(model, memory_length)
    num_targets = len(token_ids) - 1
    steps = -(-num_targets // (rows * segment_length))
    most = max(1, -(-num_targets // segment_length))
    if rows > most:
        raise ValueError(
            f"`rows` must be at most {most:,}, the segments of the text. "
            f"Received: rows={rows}."
        )
    # Row r predicts the targets from position r * steps * S on.
    places = np.arange(rows * steps * segment_length).reshape(
        rows, steps, segment_length
    )
    shape = (rows, memory_length, model.config.hidden_dim)
    empty = {}
    if memory_length:
        zeros = ops.zeros(shape, model.compute_dtype)
        empty = {
            "memories": (zeros,) * model.config.num_layers,
            "memory_mask": ops.zeros(shape[:2], "bool"),
        }

    def batch(step):
        return _batch(token_ids, places[:, step])

    function = _losses(model, tuple(empty))
    function(**batch(0), **empty)  # compiles
    nats, state, begin = 0.0, empty, time.monotonic()
    for step in track(range(steps), "text", "segments", shown=progress):
        sums, state = function(**batch(step), **state)
        nats += float(sums)
    return nats, num_targets, time.monotonic() - begin


def evaluate_with_window(
    model, token_ids, window, stride, rows=1, progress=False
):
    """Sum the losses of a text's tokens, read in a sliding window.

    The model's memory is not used. After the first `window` tokens, every token
    attends to at least `window - stride` tokens.

    Args:
        model: XLNetPretrainer with the objective `Causal`.
        token_ids: int array [N].
        window: int, S, number of tokens in the window.
        stride: int, number of tokens by which the window moves. Every window
            after the first predicts this number of tokens.
        rows: int, R, number of windows that are computed at once. Default 1.
        progress: bool, whether to print progress. Default False.

    Returns:
        (nats, tokens, seconds), see `Perplexity`.

    Raises:
        ValueError: if the model is not causal, or the stride is out of range.
    """
    _check_causal(model)
    if not 1 <= stride <= window:
        raise ValueError(
            f"`stride` must be between 1 and the window, {window}. Received: "
            f"stride={stride}."
        )
    model = _with_memory(model, 0)
    num_targets = len(token_ids) - 1
    first = np.arange(0, max(num_targets - window, 0) + stride, stride)
    places = first[:, None] + np.arange(window)
    # The first window predicts all its tokens, every other window only its
    # last `stride` tokens.
    counts = (np.arange(window) >= window - stride) | (first == 0)[:, None]

    def batch(begin):
        chosen = slice(begin, begin + rows)
        missing = rows - len(places[chosen])
        padding = [[0, missing], [0, 0]]
        return _batch(
            token_ids,
            np.pad(places[chosen], padding),
            np.pad(counts[chosen], padding),
        )

    function = _losses(model, ())
    function(**batch(0))  # compiles
    nats, begin = 0.0, time.monotonic()
    begins = range(0, len(places), rows)
    for place in track(begins, "text", "batches of windows", shown=progress):
        sums, _ = function(**batch(place))
        nats += float(sums)
    return nats, num_targets, time.monotonic() - begin


def _batch(token_ids, places, counts=True):
    """Make the features of the tokens at the positions `places`, [R, S].

    Positions after the end of the text have the weight 0.
    """
    real = (places < len(token_ids) - 1) & counts
    last = len(token_ids) - 1
    return {
        "token_ids": ops.convert_to_tensor(token_ids[np.minimum(places, last)]),
        "target_ids": ops.convert_to_tensor(
            token_ids[np.minimum(places + 1, last)]
        ),
        "target_weights": ops.convert_to_tensor(real.astype("float32")),
    }


def _losses(model, names):
    """Make a function that computes the sum of the losses of a batch.

    The function returns (sum, dict of the model's outputs in `names`). `names`
    are `memories` and `memory_mask`, or empty without memory.
    """

    def losses(**features):
        outputs = model(features, training=False)
        nats, _, _ = model.loss_sums(outputs, features)
        return nats, {name: outputs[name] for name in names}

    return compiled(losses, model)


def _check_causal(model):
    if not hasattr(model, "objectives"):
        raise ValueError(
            "perplexity needs a language model; measure a task's model with "
            f"--task and --data. Received: {type(model).__name__}."
        )
    if model.next_token != "content":
        raise ValueError(
            "perplexity of running text needs a model that was trained with "
            "--objective causal. `python -m xlnet_tf.train --eval-records` "
            "evaluates other models on held-out records. Received: "
            f"objective={model.objectives[0].name!r}."
        )


def _with_memory(model, memory_length):
    """Copy a model for reading text from left to right with a memory."""
    config = model.get_config()
    config["memory"] = None
    config["backbone"]["config"] |= {
        "memory_length": memory_length,
        "reuse_length": 0,
        "reverse_half_batch": False,
    }
    copy = type(model).from_config(config)
    copy.backbone.set_weights(model.backbone.get_weights())
    copy.head.set_weights(model.head.get_weights())
    return copy
