"""Generator of texts that continue raw prompts.

The class `Programs` has the compiled functions for reading prompts, adding
tokens and beam search.

Shapes: B prompts, R texts per prompt, N = B R rows, T tokens, S steps.
"""

import collections
import dataclasses
import math
import weakref

import numpy as np
from keras import ops

from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import LAYOUTS
from xlnet_tf.generation import search
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.model.compiled import common_length
from xlnet_tf.model.compiled import compiled

# Number of steps between two checks for stop strings.
_STEPS_BETWEEN_LOOKS = 8


@dataclasses.dataclass(frozen=True)
class GeneratedText:
    """Generated text and its log-probability.

    Attributes:
        text: str, the new text without the prompt. If its first token begins a
            word, the text begins with a space.
        token_ids: list of int, without the end token. If a stop string (`stop`
            in GenerationSettings) ended the text, `token_ids` includes the
            tokens of the stop string, and `text` ends before the stop string.
        log_probability: float, log-probability of `token_ids` and the end token
            under the model. With beam search, this value includes the tokens
            after a stop string, and depends on rules such as `no_repeat_ngram`.
        score: float, value by which the texts of a prompt are sorted.
        has_ended: bool, whether the model or a stop string ended the text.
            False: the text reached the maximum length.
    """

    text: str
    token_ids: list
    log_probability: float
    score: float
    has_ended: bool


def room_for_prompts(config, settings):
    """Compute the maximum number of tokens in a prompt.

    Args:
        config: XLNetConfig or BertConfig.
        settings: GenerationSettings.

    Returns:
        int, or None if the model's positions are unlimited.

    Raises:
        ValueError: if the new tokens leave no room for a prompt.
    """
    positions = getattr(config, "max_positions", None)
    if positions is None:
        return None
    # A prompt has at least one symbol and one token.
    if positions - settings.max_new_tokens < 2:
        raise ValueError(
            f"`max_new_tokens` must be at most {positions - 2}, because the "
            f"model has {positions} positions. Received: max_new_tokens="
            f"{settings.max_new_tokens}."
        )
    return positions - settings.max_new_tokens


class TextGenerator:
    """Generator of texts that continue prompts.

    Args:
        model: XLNetPretrainer.
        tokenizer: data_pipeline Tokenizer.
        settings: GenerationSettings.

    Raises:
        ValueError: if the model cannot generate, if `segment_length` is given
            for a model without memory, or if `num_beams` is above 1 on JAX.

    Attributes:
        model, tokenizer, settings: the arguments.
        keeps_prompt: bool, whether the new text continues the prompt. False in
            a generator for sequence to sequence.
    """

    keeps_prompt = True

    def __init__(self, model, tokenizer, settings):
        self.model = model  # `Programs` has only a weak reference
        self.tokenizer = tokenizer
        self.settings = settings
        search.check_beams(settings.num_beams)
        config = model.config
        self._begin_ids = [CLS_ID] * LAYOUTS[config.layout].class_first
        self._max_tokens = settings.max_prompt_tokens
        room = room_for_prompts(config, settings)
        if room is not None:
            self._max_tokens = min(self._max_tokens, room)
        self._segment_length = self._find_segment_length(config)
        self._programs = kept(Programs, model, tokenizer, of_graph(settings))
        self.decoder = self._programs.decoder
        self.symbols = self._programs.symbols

    def _find_segment_length(self, config):
        length = self.settings.segment_length
        memory = getattr(config, "memory_length", 0)
        if length is not None and not memory:
            raise ValueError(
                "`segment_length` needs a model with memory; this one has "
                "none. Leave it out. Received: "
                f"segment_length={length}."
            )
        return length

    def encode(self, prompt):
        """Encode a prompt as tokens.

        Args:
            prompt: str.

        Returns:
            list of int.

        Raises:
            ValueError: if the prompt has no tokens, or too many.
        """
        token_ids = self.tokenizer.encode(prompt)
        if not token_ids:
            raise ValueError(
                "a prompt must have at least one token; this one is empty: "
                f"{prompt!r}."
            )
        token_ids = [*self._begin_ids, *token_ids]
        if len(token_ids) > self._max_tokens:
            raise ValueError(
                f"a prompt must have at most {self._max_tokens} tokens; this "
                f"one has {len(token_ids)}: {prompt[:40]!r}... Cut it, or see "
                "`max_prompt_tokens` and `max_new_tokens`."
            )
        return token_ids

    def all(self, prompts, first=0):
        """Generate texts for any number of prompts, in order.

        Args:
            prompts: iterable of str.
            first: int, number of the first prompt. A prompt's number is part of
                its random seed. Default 0.

        Yields:
            (prompt, list of GeneratedText), or (prompt, ValueError) for an
            invalid prompt.
        """
        number = first
        for batch in _batches(prompts, self.settings.batch_size):
            encoded = []
            for prompt in batch:
                try:
                    encoded.append(self.encode(prompt))
                except ValueError as error:
                    encoded.append(error)
            places = [
                place
                for place, token_ids in enumerate(encoded)
                if not isinstance(token_ids, ValueError)
            ]
            if places:
                batch_texts = self.generate(
                    [encoded[place] for place in places],
                    [number + place for place in places],
                )
                for place, texts in zip(places, batch_texts, strict=True):
                    encoded[place] = texts
            number += len(batch)
            yield from zip(batch, encoded, strict=True)

    def generate(self, prompts, numbers=None):
        """Generate texts for a batch of prompts.

        Args:
            prompts: list of B results of `encode`.
            numbers: list of B ints, the numbers of the prompts, see `all`.
                Default: 0 to B - 1.

        Returns:
            list of B lists of GeneratedText.
        """
        numbers = range(len(prompts)) if numbers is None else numbers
        if self.settings.num_beams > 1:
            features, history = self._batch(prompts)
            context = self._programs.read(features)
            tokens, scores = self._programs.search(context, history)
            return self._from_beams(tokens.numpy(), scores.numpy())
        states = self._states(prompts, numbers, _STEPS_BETWEEN_LOOKS)
        (state,) = collections.deque(states, maxlen=1)
        return self._texts(state)

    def stream(self, prompt, number=0):
        """Yield the new text of one prompt, part by part.

        Args:
            prompt: list of int, the result of `encode`.
            number: int, number of the prompt, see `all`.

        Yields:
            str, the next part of the text.
        """
        shown = whole = ""
        for state in self._states([prompt], [number], 1):
            ((text,),) = self._texts(state)
            whole = text.text
            certain = self._certain(whole)
            if len(certain) > len(shown):
                yield certain[len(shown) :]
                shown = certain
        if len(whole) > len(shown):
            yield whole[len(shown) :]

    def _certain(self, text):
        """Remove the end of a text if later tokens may change this end."""
        # Later tokens may complete the last character, or a stop string.
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        begun = [
            size
            for stop in self.settings.stop
            for size in range(1, len(stop))
            if text.endswith(stop[:size])
        ]
        return text[: len(text) - max(begun, default=0)]

    def _states(self, prompts, numbers, steps):
        """Yield the search's state every `steps` steps.

        If there are no stop strings and `steps` is above 1, yield only the
        last state.
        """
        settings = self.settings
        rows = settings.num_sequences
        features, history = self._batch(prompts)
        context = self._programs.read(features)
        uniforms = np.stack(
            [
                np.random.default_rng([settings.seed, number, row]).random(
                    settings.max_new_tokens, np.float32
                )
                for number in numbers
                for row in range(rows)
            ]
        )
        uniforms = ops.convert_to_tensor(uniforms)
        state = search.begin(
            self.decoder,
            context,
            ops.repeat(history, rows, axis=0),
            settings.max_new_tokens,
        )
        if not settings.stop and steps > 1:
            steps = settings.max_new_tokens
        done = 0
        while done < settings.max_new_tokens:
            done = min(done + steps, settings.max_new_tokens)
            state = self._programs.extend(
                context, state, uniforms, ops.convert_to_tensor(done, "int32")
            )
            is_done = state["is_done"]
            if settings.stop:
                is_done = is_done | self._has_stop(state)
                state = {**state, "is_done": is_done}
            yield state
            if bool(ops.all(is_done)):
                return

    def _batch(self, prompts):
        """Make features and token history of prompts, padded on the left."""
        longest = common_length(max(map(len, prompts)))
        if self._segment_length:
            size = self._segment_length
            longest = math.ceil(longest / size) * size
        history = np.full([len(prompts), longest], -1, np.int32)
        for row, token_ids in zip(history, prompts, strict=True):
            row[longest - len(token_ids) :] = token_ids
        real = history >= 0
        features = {
            "token_ids": ops.convert_to_tensor(np.maximum(history, 0)),
            "padding_mask": ops.convert_to_tensor(real.astype(np.int32)),
        }
        return features, ops.convert_to_tensor(history)

    def _new_tokens(self, state):
        """Select a state's new tokens: int array [N, S], -1 for no token."""
        history = ops.convert_to_numpy(state["history"])
        return history[:, -self.settings.max_new_tokens :]

    def _has_stop(self, state):
        return ops.convert_to_tensor(
            [
                self._text(row).has_stop
                for row in self._new_tokens(state).tolist()
            ]
        )

    def _texts(self, state):
        """Make B lists of GeneratedText from a state of the search."""
        texts_of_rows = []
        log_probabilities = ops.convert_to_numpy(state["log_probabilities"])
        for row, values in zip(
            self._new_tokens(state).tolist(), log_probabilities, strict=True
        ):
            text = self._text(row)
            values = values[: text.num_counted]
            value = float(values.sum(dtype=np.float64))
            penalty = search.length_penalty(
                len(values), self.settings.length_penalty
            )
            texts_of_rows.append(text.generated(value, value / penalty))
        rows = self.settings.num_sequences
        texts_of_prompts = [
            texts_of_rows[begin : begin + rows]
            for begin in range(0, len(texts_of_rows), rows)
        ]
        return [
            sorted(texts, key=lambda x: x.score, reverse=True)
            for texts in texts_of_prompts
        ]

    def _from_beams(self, tokens, scores):
        texts_of_prompts, alpha = [], self.settings.length_penalty
        for rows, values in zip(tokens.tolist(), scores.tolist(), strict=True):
            texts = []
            for row, score in zip(rows, values, strict=True):
                if score == -math.inf:
                    continue
                length = sum(token >= 0 for token in row)
                penalty = search.length_penalty(length, alpha)
                texts.append(self._text(row).generated(score * penalty, score))
            texts_of_prompts.append(texts[: self.settings.num_sequences])
        return texts_of_prompts

    def _text(self, row):
        """Make the _Text of a row, which is a list of S token ids."""
        return _Text(self.tokenizer, row, self.symbols, self.settings.stop)


def _batches(values, size):
    """Yield lists of `size` values; the last list may be shorter."""
    batch = []
    for value in values:
        batch.append(value)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class _Text:
    """New text of a row, cut before the first stop string."""

    def __init__(self, tokenizer, row, symbols, stop):
        given = [token for token in row if token >= 0]
        self.token_ids = [x for x in given if x not in symbols.end_ids]
        self.has_ended = len(self.token_ids) < len(given)
        # Number of tokens whose probabilities count, including the end token.
        self.num_counted = len(given)
        self.text = _decode(tokenizer, self.token_ids)
        self.has_stop = any(x in self.text for x in stop)
        if self.has_stop:
            # Stop strings are checked only every few steps, so tokens may
            # follow a stop string.
            self.num_counted = next(
                count
                for count in range(1, len(self.token_ids) + 1)
                if any(
                    x in _decode(tokenizer, self.token_ids[:count])
                    for x in stop
                )
            )
            self.token_ids = self.token_ids[: self.num_counted]
            text = _decode(tokenizer, self.token_ids)
            self.text = text[: min(text.find(x) for x in stop if x in text)]

    def generated(self, log_probability, score):
        return GeneratedText(
            self.text,
            self.token_ids,
            log_probability,
            score,
            self.has_ended or self.has_stop,
        )


def _decode(tokenizer, token_ids):
    """Decode tokens; prepend a space if the first token begins a word."""
    text = tokenizer.decode(token_ids)
    if token_ids and tokenizer.id_to_piece(token_ids[0]).startswith(BLANK):
        return f" {text}"
    return text


# From a model to a dict from (class, the model's computation, arguments) to an
# object of the class.
_KEPT: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def kept(cls, model, tokenizer, *arguments):
    """Make an object with compiled functions, or reuse an earlier object.

    Args:
        cls: class; its constructor has the arguments (model, tokenizer,
            *arguments).
        model: XLNetPretrainer or XLNetSeq2Seq. The object has only a weak
            reference to the model.
        tokenizer: data_pipeline Tokenizer.
        *arguments: hashable values.

    Returns:
        object of the class; the same object for equal arguments.
    """
    of_model = _KEPT.setdefault(model, {})
    # A compiled function keeps the model's computation at the time of tracing,
    # so the key contains this computation.
    key = (cls, repr(model.computation()), id(tokenizer), *arguments)
    if key not in of_model:
        # A reference to the tokenizer is kept, so that no other object gets the
        # tokenizer's id.
        made = cls(weakref.proxy(model), tokenizer, *arguments)
        of_model[key] = made, tokenizer
    return of_model[key][0]


class Programs:
    """Compiled functions of a model for given settings.

    Args:
        model: XLNetPretrainer or XLNetSeq2Seq.
        tokenizer: data_pipeline Tokenizer.
        settings: GenerationSettings, the result of `of_graph`.

    Attributes:
        decoder: Decoder.
        symbols: Symbols.

    Raises:
        ValueError: if the model cannot generate.
    """

    def __init__(self, model, tokenizer, settings):
        self.decoder = make_decoder(model)
        self.symbols = Symbols(tokenizer.vocabulary_size)
        self._settings = settings
        # A trace has a fixed number of segments, so segments need a fixed
        # length.
        one_segment = settings.segment_length is None
        self.read = compiled(self._read, model, relaxes=one_segment)
        self.extend = compiled(self._extend, model)
        self.search = compiled(self._search, model)

    def _read(self, features):
        """Read the context of prompts, see `Decoder.read`."""
        settings = self._settings
        return self.decoder.read(
            features, settings.max_new_tokens, settings.segment_length
        )

    def _extend(self, context, state, uniforms, last_step):
        """Compute the state after some steps, see `search.extend`."""
        return search.extend(
            *(self.decoder, context, state, uniforms),
            *(self._settings, self.symbols, last_step),
        )

    def _search(self, context, history):
        """Find texts and scores, see `search.beam_search`."""
        settings = self._settings
        return search.beam_search(
            *(self.decoder, context, history),
            *(settings.max_new_tokens, settings, self.symbols),
        )


def of_graph(settings):
    """Set the fields that do not affect compiled functions to their defaults.

    Args:
        settings: GenerationSettings.

    Returns:
        GenerationSettings.
    """
    fields = {x.name: x.default for x in dataclasses.fields(settings)}
    names = ("stop", "seed", "max_prompt_tokens", "batch_size")
    return dataclasses.replace(settings, **{x: fields[x] for x in names})
