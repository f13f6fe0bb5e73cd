"""Signature `generate`, which continues texts in the graph of an export.

Shapes: N prompts, R generated texts per prompt, T tokens, S new tokens.
"""

import tensorflow as tf

from data_pipeline.features.answers import valid_utf8
from data_pipeline.features.pairs import column
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures.checks import after
from saved_models.signatures.checks import at_most
from saved_models.signatures.serving_model import ForwardPass
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import string_specs
from xlnet_tf.generation import search
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.generator import room_for_prompts
from xlnet_tf.generation.search import beam_search
from xlnet_tf.generation.search import length_penalty
from xlnet_tf.generation.settings import Symbols

_MEANING = {
    "text": "string [N], UTF-8, the prompts",
    "seed": "int64 [N], random seeds; equal seeds give equal texts",
    "generated": (
        "string [N, R], new texts for each prompt, best first; a text that "
        "begins a word begins with a space"
    ),
    "log_probabilities": "float32 [N, R], natural, sums over the new tokens",
    "num_tokens": "int32 [N, R], numbers of new tokens, with stop strings",
    "has_ended": "int32 [N, R], 1 = ended by the model or by a stop string",
    "error": 'string [N], reason why a prompt is invalid, else ""',
}


class GenerateSignature(tf.Module):
    """Signature `generate` of a pretrained model.

    Args:
        served: ServedModel.
        graph_tokenizer: GraphTokenizer.
        tokenizer: data_pipeline Tokenizer.
        layout: Layout of the model.
        settings: ExportSettings with `generation`.

    Raises:
        ValueError: if the model cannot generate, or exports do not support a
            generation setting.
    """

    _summary = "Texts that follow prompts, by the settings of the export."
    _meaning = _MEANING
    _example = "The door of the house was"
    _noun = "prompt"
    _end: tuple[int, ...] = ()  # tokens after a prompt

    def __init__(self, served, graph_tokenizer, tokenizer, layout, settings):
        super().__init__()
        generation = settings.generation
        if generation.segment_length is not None:
            raise ValueError(
                "an export reads whole prompts: leave `segment_length` of "
                "`generation` out."
            )
        self._settings = generation
        self._served = served
        self._tokenizer = graph_tokenizer
        self._decoder = make_decoder(served.model)
        # The served copy's config keeps all states as memory, but generation
        # needs the original memory length.
        self._decoder.config = served.config
        self._begin = [CLS_ID] * layout.class_first
        self._symbols = Symbols(tokenizer.vocabulary_size)
        pieces = [
            tokenizer.piece_bytes(token)
            for token in range(tokenizer.vocabulary_size)
        ]
        with tf.device("CPU:0"):  # GPUs cannot store strings
            self._pieces = tf.constant(pieces)
        self._bytes = tf.constant([len(piece) for piece in pieces])
        self._most_request_tokens = settings.max_request_tokens
        # Padding has the id -1, because a negative id is not a token.
        self._forward = ForwardPass(settings, {"token_ids": -1}, "left")
        room = room_for_prompts(served.config, generation)
        self._most_tokens = min(
            settings.sequence_length,
            generation.max_prompt_tokens,
            *([] if room is None else [room]),
        )

    def signature(self):
        """Make the Signature object."""
        inputs = string_specs(text=1)
        example = {"text": [self._example]}
        if self._settings.samples:
            inputs["seed"] = tf.TensorSpec([None], tf.int64, name="seed")
            example["seed"] = [0]
        return Signature(
            self.generate,
            inputs,
            self._summary,
            self._meaning,
            [
                {
                    name: tf.constant(value, inputs[name].dtype).numpy()
                    for name, value in example.items()
                }
            ],
        )

    def generate(self, text, seed=None):
        """Generate texts that continue prompts.

        Args:
            text: string [N], UTF-8.
            seed: int64 [N], random seeds; required if tokens are drawn at
                random.

        Returns:
            dict of tensors; the model card describes them.
        """
        token_ids = self._cut(self._tokenizer(text))
        lengths = token_ids.row_lengths()
        num_begin = len(self._begin)
        is_empty = lengths == 0
        is_long = lengths + num_begin + len(self._end) > self._most_tokens
        is_bad = is_empty | is_long
        history = self._left_padded(token_ids, is_bad)
        features = {"token_ids": history}
        if seed is not None:
            features["seed"] = seed
        features = after([self._check_tokens(history)], features)
        found = self._forward(self._continue, features)
        answer = self._best_first(
            tf.where(is_bad[:, None, None], -1, found["tokens"]),
            found["log_probabilities"],
        )
        answer["log_probabilities"] = tf.where(
            is_bad[:, None], 0.0, answer["log_probabilities"]
        )
        error = tf.where(is_empty, f"the {self._noun} is empty", "")
        error = tf.where(
            is_long,
            f"the {self._noun} has more than "
            f"{self._most_tokens - num_begin} tokens",
            error,
        )
        return {**answer, "error": error}

    def _check_tokens(self, history):
        """Make an op that refuses too many prompt tokens and new tokens."""
        settings = self._settings
        new = settings.max_new_tokens * max(
            settings.num_beams, settings.num_sequences
        )
        shape = tf.shape(history, tf.int64)
        return at_most(
            shape[0] * (shape[1] + new),
            self._most_request_tokens,
            "tokens in a request, padding and new ones included",
        )

    def _best_first(self, tokens, log_probabilities):
        """Sort the texts of each prompt; make all outputs except `error`.

        Args:
            tokens: int32 [N, R, S], -1 for no token.
            log_probabilities: float32 [N, R, S], one for each token. With beam
                search, [N, R], one for each text; these texts are already
                sorted.
        """
        texts, has_stop, is_counted = self._texts(tokens)
        is_end = tokens[..., None] == tf.constant(self._symbols.end_ids)
        has_ended = tf.reduce_any(is_end, axis=[-2, -1]) | has_stop
        is_text = self._is_text(tokens) & is_counted
        answer = {
            "generated": texts,
            "log_probabilities": log_probabilities,
            "num_tokens": tf.reduce_sum(tf.cast(is_text, tf.int32), axis=-1),
            "has_ended": tf.cast(has_ended, tf.int32),
        }
        if self._settings.num_beams > 1:
            return answer
        values = tf.where(is_counted, log_probabilities, 0.0)
        values = tf.reduce_sum(values, axis=-1)
        answer["log_probabilities"] = values
        counts = tf.reduce_sum(tf.cast(is_counted, tf.float32), axis=-1)
        scores = values / length_penalty(counts, self._settings.length_penalty)
        order = tf.argsort(scores, direction="DESCENDING", stable=True)
        return {
            name: tf.gather(value, order, axis=1, batch_dims=1)
            for name, value in answer.items()
        }

    def _cut(self, token_ids):
        """Return the prompts unchanged; a subclass may truncate prompts."""
        return token_ids

    def _inputs(self, history):
        """Make features for a Decoder from prompts [N, T], -1 in padding.

        Returns:
            (dict of features, history). The history is int32 [N, T], the tokens
            to which rules such as the repetition penalty apply; -1 for no
            token.
        """
        features = {
            "token_ids": tf.maximum(history, 0),
            "padding_mask": tf.cast(history >= 0, tf.int32),
        }
        return features, history

    def _left_padded(self, token_ids, is_bad):
        """Pad prompts on the left with -1 to [N, T].

        [SEP] replaces the text of each prompt for which `is_bad` is True.
        """
        keeps = tf.repeat(~is_bad, token_ids.row_lengths())
        kept = tf.ragged.boolean_mask(token_ids, token_ids.with_values(keeps))
        count = token_ids.nrows()
        begin = column(self._begin, count)
        filler = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(tf.cast(is_bad, tf.int32))], SEP_ID),
            tf.cast(is_bad, tf.int64),
        )
        end = column(self._end, count)
        rows = tf.concat([begin, kept, filler, end], axis=1)
        backwards = tf.reverse(rows, [1]).to_tensor(-1)
        return tf.reverse(backwards, [1])

    def _continue(self, features):
        """Generate tokens [N, R, S] for a batch, with log-probabilities.

        With beam search there is one log-probability for each text, [N, R].
        Otherwise there is one log-probability for each token, [N, R, S].
        """
        settings, decoder = self._settings, self._decoder
        steps = settings.max_new_tokens
        with self._served.weights():
            inputs, history = self._inputs(features["token_ids"])
            context = decoder.read(inputs, steps)
            if settings.num_beams > 1:
                tokens, scores = beam_search(
                    *(decoder, context, history),
                    *(steps, settings, self._symbols),
                )
                # After the loop of beam search, the static number of steps is
                # unknown; set it again.
                beams = [None, settings.num_beams, steps]
                tokens = tf.ensure_shape(tokens, beams)
                lengths = tf.reduce_sum(tf.cast(tokens >= 0, tf.float32), -1)
                penalty = length_penalty(lengths, settings.length_penalty)
                rows = settings.num_sequences
                return {
                    "tokens": tokens[:, :rows],
                    "log_probabilities": (scores * penalty)[:, :rows],
                }
            return self._sample(context, history, features.get("seed"))

    def _sample(self, context, history, seed):
        settings = self._settings
        steps, rows = settings.max_new_tokens, settings.num_sequences
        count = tf.shape(history)[0]
        uniforms = tf.zeros([count * rows, steps])
        if seed is not None:
            uniforms = tf.map_fn(
                lambda number: tf.random.stateless_uniform(
                    [rows, steps], tf.stack([number, 0])
                ),
                seed,
                fn_output_signature=tf.TensorSpec([rows, steps]),
            )
            uniforms = tf.reshape(uniforms, [-1, steps])
        state = search.begin(
            self._decoder, context, tf.repeat(history, rows, axis=0), steps
        )
        state = search.extend(
            *(self._decoder, context, state, uniforms, settings),
            *(self._symbols, steps),
        )
        return {
            name: tf.reshape(value[:, -steps:], [-1, rows, steps])
            for name, value in (
                ("tokens", state["history"]),
                ("log_probabilities", state["log_probabilities"]),
            )
        }

    def _is_text(self, tokens):
        ends = tf.constant(self._symbols.end_ids)
        is_end = tf.reduce_any(tokens[..., None] == ends, axis=-1)
        return (tokens >= 0) & ~is_end

    def _texts(self, tokens):
        """Decode tokens [N, R, S] to texts that end before any stop string.

        Returns:
            (texts, has_stop, is_counted). `texts` is string [N, R]. `has_stop`
            is bool [N, R], whether a stop string ended the text. `is_counted`
            is bool [N, R, S], False where there is no token (-1) and after the
            token that completes the stop string.
        """
        is_text = self._is_text(tokens)
        ids = tf.maximum(tokens, 0)
        pieces = tf.where(is_text, tf.gather(self._pieces, ids), "")
        sizes = tf.where(is_text, tf.gather(self._bytes, ids), 0)
        ends = tf.cumsum(sizes, axis=-1)
        texts = tf.strings.reduce_join(pieces, axis=-1)
        sizes = tf.strings.length(texts)
        found = []  # for each stop string: (number of tokens, position)
        for stop in self._settings.stop:
            flat = tf.strings.split(tf.reshape(texts, [-1]), stop, maxsplit=1)
            has_stop = tf.reshape(flat.row_lengths() > 1, tf.shape(texts))
            first = flat[:, :1].to_tensor("", shape=[None, 1])[:, 0]
            place = tf.reshape(tf.strings.length(first), tf.shape(texts))
            is_before = ends < (place + len(stop.encode()))[..., None]
            count = 1 + tf.reduce_sum(tf.cast(is_before, tf.int32), axis=-1)
            count = tf.where(has_stop, count, tokens.shape[-1] + 1)
            found.append((count, tf.where(has_stop, place, sizes)))
        if not found:
            has_stop = tf.zeros_like(sizes, tf.bool)
            return valid_utf8(texts), has_stop, tokens >= 0
        counts, places = map(tf.stack, zip(*found, strict=True))
        count = tf.reduce_min(counts, axis=0)
        # Among stop strings that the same token completes, the first in the
        # text counts.
        places = tf.where(counts == count, places, sizes)
        texts = tf.strings.substr(
            texts, tf.zeros_like(sizes), tf.reduce_min(places, axis=0)
        )
        is_counted = tf.range(tokens.shape[-1]) < count[..., None]
        is_counted &= tokens >= 0
        return valid_utf8(texts), count <= tokens.shape[-1], is_counted
