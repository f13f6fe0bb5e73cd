"""Filling of blanks by beam search.

Each step of the search fills one masked position. The search chooses the
position and the token.

Shapes: B beams in a batch, T tokens, P tokens of blanks, V vocabulary.
"""

import dataclasses
import itertools
import re

import keras
import numpy as np
from keras import ops

from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import MASK_ID
from xlnet_tf.generation.scoring import Sequences
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.model.compiled import compiled
from xlnet_tf.model.masks import CONTEXT_RANK

# Matches <mask>, <mask:3> and <mask:1-4>.
_MARK = re.compile(r"<mask(?::(\d+)(?:-(\d+))?)?>")
_BLANK_RANK = 0
_MOST_LENGTHS = 64  # maximum number of combinations of blank lengths


@dataclasses.dataclass(frozen=True)
class Filling:
    """Text with all blanks filled.

    Attributes:
        text: str, the whole text.
        parts: list of str, the text in each blank.
        token_ids: list of int, the tokens of all blanks.
        log_probability: float, natural logarithm of the joint probability of
            all filled tokens, predicted in the order `order`.
        num_tokens: int, number of tokens in all blanks.
        order: list of int, indices into `token_ids`, in the order in which the
            model filled the tokens.
    """

    text: str
    parts: list
    token_ids: list
    log_probability: float
    num_tokens: int
    order: list

    @property
    def score(self):
        """Mean log-probability per filled token."""
        return self.log_probability / self.num_tokens


class Filler:
    """Class that uses a pretrained model to fill the blanks of texts.

    Args:
        model: XLNetPretrainer with an objective that attends to both sides of a
            target.
        tokenizer: data_pipeline Tokenizer.

    Raises:
        ValueError: if the model does not attend to the text after a blank.
    """

    def __init__(self, model, tokenizer):
        objective = model.objectives[0]
        if not objective.fills_blanks:
            raise ValueError(
                f"this model of the objective {objective.name!r} does not "
                "predict from the text before and after a blank: use "
                "`generate`, or train one with --objective permutation, "
                "masked or pseudo_masked (with its autoencoding loss)."
            )
        self._model = model
        self._tokenizer = tokenizer
        self._sequences = Sequences(model, tokenizer)
        symbols = Symbols(tokenizer.vocabulary_size)
        size = model.config.vocabulary_size
        self._blocked = symbols.blocked(size) | symbols.ends(size)
        self._word_mark = tokenizer.piece_to_id(BLANK)
        self._log_probabilities = compiled(self._compute, model)

    def _compute(self, features):
        objective = self._model.objectives[0]
        outputs = self._model.backbone(
            objective.features(features),
            training=False,
            streams=objective.streams,
        )
        rows = objective.rows(outputs, features)
        return ops.log_softmax(self._model.logits(rows))

    def fill(self, text, num_beams, max_blank_tokens):
        """Find fillings of a text, best first.

        Args:
            text: str, with blanks; see `parse`.
            num_beams: int, number of beams.
            max_blank_tokens: int, maximum number of tokens in a blank.

        Returns:
            list of Filling.

        Raises:
            ValueError: if the text has no blank, or a blank is too long.
        """
        parts, lengths = parse(text, max_blank_tokens)
        found = []
        for chosen in itertools.product(*lengths):
            found += self._fill(parts, chosen, num_beams)
        return sorted(found, key=lambda x: x.score, reverse=True)

    def _fill(self, parts, lengths, num_beams):
        """Find fillings for blanks of fixed lengths."""
        ids, blanks = self._tokens(parts, lengths)
        beams = [(0.0, {}, ())]  # log-probability, tokens by position, order
        for _ in blanks:
            candidates = {}
            for beam, values in zip(
                beams, self._distributions(ids, blanks, beams), strict=True
            ):
                for extended in _extensions(beam, blanks, values, num_beams):
                    # The same tokens in another order are the same filling.
                    key = tuple(sorted(extended[1].items()))
                    best = candidates.get(key)
                    if best is None or extended[0] > best[0]:
                        candidates[key] = extended
            beams = sorted(candidates.values(), key=lambda x: -x[0])
            beams = beams[:num_beams]
        return [self._filling(parts, lengths, blanks, beam) for beam in beams]

    def _tokens(self, parts, lengths):
        """Encode a text with `<mask>` in blanks; list the masked positions."""
        ids, blanks = [], []
        for number, part in enumerate(parts):
            if number:
                places = range(len(ids), len(ids) + lengths[number - 1])
                blanks += places
                ids += [MASK_ID] * len(places)
            encoded = self._tokenizer.encode(part)
            # Text that directly follows a blank, as in "<mask>.", does not
            # begin a word.
            touches = number and part and not part[0].isspace()
            if touches and encoded[:1] == [self._word_mark]:
                encoded = encoded[1:]
            ids += encoded
        return ids, blanks

    def _distributions(self, ids, blanks, beams):
        """Compute log-probabilities [B, P, V], -inf for forbidden tokens."""
        rows = []
        for _, tokens, _ in beams:
            row = list(ids)
            for place, token in tokens.items():
                row[place] = token
            rows.append(row)
        features, begins = self._sequences.batch(rows)
        places = np.array(blanks)[None] + np.array(begins)[:, None]
        features["target_positions"] = places.astype(np.int32)
        if self._model.reads_query:
            rank = np.full(features["token_ids"].shape, CONTEXT_RANK)
            for row, (begin, (_, tokens, _)) in enumerate(
                zip(begins, beams, strict=True)
            ):
                waiting = [x + begin for x in blanks if x not in tokens]
                rank[row, waiting] = _BLANK_RANK
            features["factorization_rank"] = rank.astype(np.int32)
        features = keras.tree.map_structure(ops.convert_to_tensor, features)
        values = ops.convert_to_numpy(self._log_probabilities(features))
        return np.where(self._blocked, -np.inf, values)

    def _filling(self, parts, lengths, blanks, beam):
        value, tokens, order = beam
        texts, chosen, begin = [parts[0]], [], 0
        for part, length in zip(parts[1:], lengths, strict=True):
            pieces = [
                self._tokenizer.piece_bytes(tokens[place])
                for place in blanks[begin : begin + length]
            ]
            begin += length
            filled = b"".join(pieces).decode(errors="replace")
            if texts[-1][-1:].isspace() or not "".join(texts):
                filled = filled.removeprefix(" ")
            chosen.append(filled.strip())
            texts += [filled, part]
        numbers = {place: number for number, place in enumerate(blanks)}
        return Filling(
            "".join(texts),
            chosen,
            [tokens[place] for place in blanks],
            float(value),
            len(blanks),
            [numbers[place] for place in order],
        )


def _extensions(beam, blanks, values, count):
    """Yield the likeliest extensions of a beam by one token in any blank."""
    score, tokens, order = beam
    waiting = [x for x, place in enumerate(blanks) if place not in tokens]
    flat = values[waiting].ravel()
    best = np.argpartition(-flat, min(count, flat.size - 1))[:count]
    for index in best:
        blank, token = divmod(int(index), values.shape[1])
        if flat[index] == -np.inf:
            continue
        place = blanks[waiting[blank]]
        yield (
            score + float(flat[index]),
            {**tokens, place: token},
            (*order, place),
        )


def parse(text, max_blank_tokens):
    """Split a text at its blanks, and find the possible lengths of each blank.

    Args:
        text: str, with `<mask>` for one token, `<mask:3>` for three, or
            `<mask:1-4>` for one to four.
        max_blank_tokens: int, maximum number of tokens in a blank.

    Returns:
        (list of str, the parts before, between and after the blanks; list of
        ranges, the possible lengths of each blank).

    Raises:
        ValueError: if the text has no blank, a length is out of range, or the
            lengths have too many combinations.
    """
    parts, lengths, begin = [], [], 0
    for match in _MARK.finditer(text):
        first = int(match[1] or 1)
        last = int(match[2] or first)
        if not 1 <= first <= last <= max_blank_tokens:
            raise ValueError(
                f"a blank must have from 1 to {max_blank_tokens} tokens, the "
                f"smaller number first. Received: {match[0]}."
            )
        parts.append(text[begin : match.start()])
        lengths.append(range(first, last + 1))
        begin = match.end()
    if not lengths:
        raise ValueError(
            "a text must have a blank, <mask>, <mask:3> or <mask:1-4>. "
            f"Received: {text[:60]!r}."
        )
    ways = np.prod([float(len(x)) for x in lengths])
    if ways > _MOST_LENGTHS:
        raise ValueError(
            f"the blanks of a text may have {_MOST_LENGTHS} combinations of "
            f"lengths, these have {ways:.0f}: {text[:60]!r}. Give fewer "
            "lengths."
        )
    return [*parts, text[begin:]], lengths
