"""Texts as sequences of a model, to be scored or filled in.

Shapes: B rows, T tokens.
"""

import numpy as np

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.symbols import SEP_ID


class Sequences:
    """Sequences of one text each, in the layout of a model.

    A model that sees both sides gets `<sep>` and `<cls>` as in pretraining, so
    that it knows where a text ends; a causal one gets the text alone.

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
        """Tokens of a text, and which of them are targets.

        Args:
            text: str.
            spans: list of (begin, end), characters of the targets, or None for
                all tokens.

        Returns:
            (list of int, int array of places in it).

        Raises:
            ValueError: if a span lies outside of the text.
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
        """Features of texts, and where each begins in its row.

        Args:
            rows: list of B lists of int.

        Returns:
            (dict of int32 arrays [B, T]: `token_ids`, `segment_ids` and
            `padding_mask`, and for models of both directions `is_reversed` [B];
            list of B ints).

        Raises:
            ValueError: if a text has more tokens than a model has positions.
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
            # Half of the rows would be read backwards.
            features["is_reversed"] = np.zeros(len(rows), bool)
        return features, begins
