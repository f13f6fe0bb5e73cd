"""Scoring of texts: joint log-probabilities in any order of the tokens.

The targets are the scored tokens. An order contains, for each target, the step
at which the model predicts this target.

Shapes: N texts, B rows of a batch, T tokens, P targets.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from xlnet_tf.model.compiled import common_length
from xlnet_tf.model.compiled import compiled
from xlnet_tf.model.masks import CONTEXT_RANK

ORDERS = ("forward", "backward", "random", "independent")


@dataclasses.dataclass(frozen=True)
class TextScore:
    """Log-probability of a text under a model.

    Attributes:
        log_probability: float, mean of `log_probabilities`.
        log_probabilities: list of float, natural logarithm of the joint
            probability of all targets, one value for each order.
        num_tokens: int, number of targets.
    """

    log_probability: float
    log_probabilities: list
    num_tokens: int

    @property
    def perplexity(self):
        """Perplexity per target."""
        return math.exp(-self.log_probability / max(self.num_tokens, 1))


class Scorer:
    """Class that computes log-probabilities of texts with a pretrained model.

    Args:
        model: XLNetPretrainer.
        tokenizer: data_pipeline Tokenizer.
    """

    def __init__(self, model, tokenizer):
        self._model = model
        self._sequences = Sequences(model, tokenizer)
        self._is_causal = model.next_token == "content"
        self._objective = model.objectives[0]
        self._losses = compiled(self._compute, model)

    def _compute(self, batch):
        outputs = self._model(batch, training=False)
        name = "partially_autoregressive_loss"
        return outputs.get(name, outputs["token_loss"])

    def score(self, texts, orders, spans, batch_size):
        """Compute the log-probabilities of texts.

        Args:
            texts: list of N str.
            orders: list of functions, one for each order. A function has the
                arguments (index of the text, P), and returns an int array [P],
                the step at which the model predicts each target.
            spans: list of N lists of (begin, end), the character ranges of the
                targets; or None: all tokens are targets.
            batch_size: int, number of rows per batch.

        Returns:
            list of N TextScore.

        Raises:
            ValueError: if a text has no target.
        """
        rows, counts = [], []
        for number, text in enumerate(texts):
            of_text = None if spans is None else spans[number]
            ids, targets = self._sequences.encode(text, of_text)
            if self._is_causal:
                # No token predicts the first token.
                targets = targets[targets > 0]
            if not len(targets):
                reason = "a text must have a token to be scored"
                if self._is_causal:
                    reason = "this model does not predict the first token of a "
                    reason += "text, and there is no other to be scored"
                raise ValueError(f"{reason}. Received: {text[:40]!r}.")
            counts.append(len(targets))
            for order in orders:
                steps = np.asarray(order(number, len(targets)))
                _check_order(steps, len(targets))
                rows.append((ids, targets, steps))
        values = []
        for begin in range(0, len(rows), batch_size):
            values += self._sums(rows[begin : begin + batch_size])
        values = np.reshape(values, [len(texts), len(orders)])
        return [
            TextScore(float(row.mean()), row.tolist(), count)
            for row, count in zip(values, counts, strict=True)
        ]

    def _sums(self, rows):
        """Compute a list of the log-probabilities of all rows in a batch."""
        sequences = self._sequences
        batch, begins = sequences.batch([ids for ids, _, _ in rows])
        token_ids = batch["token_ids"]
        size = max(len(targets) for _, targets, _ in rows)
        positions = np.zeros([len(rows), size], np.int32)
        steps, weights = np.zeros_like(positions), np.zeros_like(positions)
        rank = np.full(token_ids.shape, CONTEXT_RANK, np.int32)
        for row, (begin, (_, targets, order)) in enumerate(
            zip(begins, rows, strict=True)
        ):
            count = len(targets)
            positions[row, :count] = targets + begin
            steps[row, :count] = order
            weights[row, :count] = 1
            rank[row, targets + begin] = order
        target_ids = np.take_along_axis(token_ids, positions, axis=1)
        if self._is_causal:
            losses = self._of_next_tokens(batch, positions)
        else:
            batch |= {
                "target_positions": positions,
                "target_ids": target_ids,
                "target_weights": weights.astype(np.float32),
            }
            if self._objective.reads_query:
                batch["factorization_rank"] = rank
            else:
                batch["token_ids"] = np.where(rank >= 0, MASK_ID, token_ids)
            if self._objective.reads_blocks:
                batch["target_blocks"] = steps
            losses = ops.convert_to_numpy(self._losses(_tensors(batch)))
        return (-(losses * weights).sum(axis=1, dtype=np.float64)).tolist()

    def _of_next_tokens(self, batch, positions):
        token_ids, config = batch["token_ids"], self._model.config
        inputs = {
            name: x[:, :-1] if x.ndim > 1 else x for name, x in batch.items()
        }
        inputs["target_ids"] = token_ids[:, 1:]
        if config.same_length:
            # Each token attends to equally many keys, as in `generate`.
            shape = [len(token_ids), config.memory_length]
            inputs["memory_mask"] = np.zeros(shape, bool)
            empty = ops.zeros(
                [*shape, config.hidden_dim], self._model.compute_dtype
            )
            inputs["memories"] = (empty,) * config.num_layers
        losses = ops.convert_to_numpy(self._losses(_tensors(inputs)))
        return np.take_along_axis(losses, np.maximum(positions - 1, 0), axis=1)


def make_orders(objective, order, num_orders, seed):
    """Make the orders in which a model predicts the targets of texts.

    Args:
        objective: Objective of the model.
        order: str, one of `ORDERS`; or a list with the step of each target; or
            a function from the number of targets to such a list.
        num_orders: int, number of random orders.
        seed: int, seed of the random orders.

    Returns:
        list of functions, see `Scorer.score`.

    Raises:
        ValueError: if the model cannot predict the targets in this order.
    """
    name = order if isinstance(order, str) else "given"
    if isinstance(order, str) and order not in ORDERS:
        raise ValueError(
            f"`order` must be one of {', '.join(ORDERS)}, a list of steps or a "
            f"function. Received: order={order!r}."
        )
    if num_orders < 1 or (num_orders > 1 and name != "random"):
        raise ValueError(
            "`num_orders` must be at least 1, and 1 unless order='random'. "
            f"Received: num_orders={num_orders} with order={order!r}."
        )
    # For such models only one order is possible.
    only = {"content": "forward", None: "independent"}
    only = only.get(objective.next_token)
    if only and name != only:
        raise ValueError(
            f"a model of the objective {objective.name!r} scores only in the "
            f"order {only!r}. Received: order={order!r}."
        )
    if name == "random":

        def drawn(place):
            # A text gets the same orders at any position in the list.
            return lambda number, count: np.random.default_rng(
                [seed, 0, place]
            ).permutation(count)

        return [drawn(place) for place in range(num_orders)]
    if callable(order):
        return [lambda number, count: order(count)]
    functions = {
        "forward": np.arange,
        "backward": lambda count: np.arange(count)[::-1],
        "independent": lambda count: np.zeros(count, np.int32),
        "given": lambda count: order,
    }
    return [lambda number, count: functions[name](count)]


def _check_order(steps, count):
    if steps.shape != (count,) or steps.dtype.kind not in "iu":
        raise ValueError(
            f"an order must give a whole number, its step, for each of the "
            f"{count} targets. Received: {steps.dtype} of shape "
            f"{list(steps.shape)}."
        )
    if count and steps.min() < 0:
        raise ValueError("the steps of an order must not be negative.")


def _tensors(batch):
    return keras.tree.map_structure(ops.convert_to_tensor, batch)


class Sequences:
    """Encoder of texts as sequences with special tokens and padding.

    Each sequence contains one text. If the model attends to both sides of a
    target, `<sep>` and `<cls>` are added as in pretraining, because these
    tokens mark the text's end. For a causal model the sequence is only the
    text.

    Args:
        model: XLNetPretrainer.
        tokenizer: data_pipeline Tokenizer.
    """

    def __init__(self, model, tokenizer):
        self._tokenizer = tokenizer
        self._layout = LAYOUTS[model.config.layout]
        self._is_causal = model.next_token == "content"
        self._has_directions = getattr(
            model.config, "reverse_half_batch", False
        )
        self._longest = getattr(model.config, "max_positions", None)

    def encode(self, text, spans=None):
        """Encode a text, and find the positions of the targets.

        Args:
            text: str.
            spans: list of (begin, end), the character ranges of the targets; or
                None: all tokens are targets.

        Returns:
            (list of int, the tokens; int array, the positions of the targets).

        Raises:
            ValueError: if a span is outside the text.
        """
        if spans is None:
            ids = self._tokenizer.encode(text)
            return ids, np.arange(len(ids))
        ids, places = self._tokenizer.encode_with_offsets(text)
        for begin, end in spans:
            if not 0 <= begin < end <= len(text):
                raise ValueError(
                    "a span must have at least one character and lie in its "
                    f"text of {len(text)}. Received: {(begin, end)}."
                )
        targets = [
            place
            for place, (begin, end) in enumerate(places)
            if any(begin < last and first < end for first, last in spans)
        ]
        return ids, np.array(targets, np.int64)

    def batch(self, rows):
        """Make the features of texts, and find where each text begins.

        Args:
            rows: list of B lists of int, the tokens of each text.

        Returns:
            (features, begins). The features are a dict of `token_ids`,
            `segment_ids` and `padding_mask` (int32 arrays [B, T]). For a model
            with `reverse_half_batch`, the dict also has `is_reversed` (bool
            [B]). The begins are a list of B ints, the column of each text's
            first token.

        Raises:
            ValueError: if a text has more tokens than the model has positions.
        """
        before, behind = [], [SEP_ID, CLS_ID]
        if self._is_causal:
            behind = []
        elif self._layout.class_first:
            before, behind = [CLS_ID], [SEP_ID]
        rows = [[*before, *ids, *behind] for ids in rows]
        width = max(map(len, rows))
        if self._longest is not None and width > self._longest:
            raise ValueError(
                f"a text must have at most {self._longest} tokens, the "
                f"positions of the model. Received: {width} tokens."
            )
        width = min(common_length(width), self._longest or math.inf)
        side = "right" if self._is_causal else self._layout.pad_side("left")
        fillers = self._layout.fillers(side)
        shape = (len(rows), width)
        token_ids = np.full(shape, fillers["token_ids"], np.int32)
        segment_ids = np.full(shape, fillers["segment_ids"], np.int32)
        padding_mask = np.zeros(shape, np.int32)
        begins = []
        for row, ids in enumerate(rows):
            begin = 0 if side == "right" else width - len(ids)
            place = slice(begin, begin + len(ids))
            token_ids[row, place] = ids
            segment_ids[row, place] = np.where(
                np.array(ids) == CLS_ID, self._layout.class_segment, 0
            )
            padding_mask[row, place] = 1
            begins.append(begin + len(before))
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        if self._has_directions:
            # Otherwise the backbone would read half of the rows backwards.
            features["is_reversed"] = np.zeros(len(rows), bool)
        return features, begins
