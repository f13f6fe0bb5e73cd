"""Continuing texts with a pretrained model, in the graph of an export.

Shapes: N texts, R generated texts of each, T tokens, S new tokens.
"""

import tensorflow as tf

from data_pipeline.features.pairs import column
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures.serving_model import ForwardPass
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import string_specs
from xlnet_tf.generation import sampling
from xlnet_tf.generation.beam_search import beam_search
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.generator import room_for_prompts
from xlnet_tf.generation.symbols import Symbols

_MEANING = {
    "text": "string [N], UTF-8, the prompts",
    "seed": "int64 [N], of the random tokens; equal seeds, equal texts",
    "generated": (
        "string [N, R], what follows each prompt, best first; it begins with a "
        "blank where it begins a word"
    ),
    "log_probabilities": "float32 [N, R], of all tokens together, natural",
    "num_tokens": "int32 [N, R], new tokens",
    "has_ended": "int32 [N, R], 1 = ended by the model or by a stop string",
    "error": 'string [N], why a prompt could not be read, else ""',
}


class GenerateSignature(tf.Module):
    """The signature `generate` of a pretrained model.

    Args:
        served: ServedModel.
        graph_tokenizer: GraphTokenizer.
        tokenizer: data_pipeline Tokenizer.
        layout: Layout of the model.
        settings: ExportSettings with `generation`.

    Raises:
        ValueError: if the model cannot generate, or settings are none of an
            export's.
    """

    _summary = "Texts that follow prompts, by the settings of the export."
    _meaning = _MEANING
    _example = "The door of the house was"
    _noun = "prompt"
    _end = ()  # tokens behind a prompt

    def __init__(self, served, graph_tokenizer, tokenizer, layout, settings):
        super().__init__()
        generation = settings.generation
        if generation.segment_length is not None:
            raise ValueError(
                "an export reads prompts at once: leave `segment_length` of "
                "`generation` out."
            )
        self._settings = generation
        self._served = served
        self._tokenizer = graph_tokenizer
        self._decoder = make_decoder(served.model)
        # The copy keeps all states as memory, which generation does not want.
        self._decoder.config = served.config
        self._begin = [CLS_ID] * layout.class_first
        self._symbols = Symbols(tokenizer.vocabulary_size)
        pieces = map(tokenizer.id_to_piece, range(tokenizer.vocabulary_size))
        with tf.device("CPU:0"):  # GPUs hold no strings
            self._pieces = tf.constant(list(pieces))
        # A negative id is no token.
        self._forward = ForwardPass(settings, {"token_ids": -1}, "left")
        room = room_for_prompts(served.config, generation)
        self._most_tokens = min(
            settings.sequence_length,
            generation.max_prompt_tokens,
            *([] if room is None else [room]),
        )

    def signature(self):
        """The Signature."""
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
        """Texts that follow prompts.

        Args:
            text: string [N], UTF-8.
            seed: int64 [N], where tokens are drawn at random.

        Returns:
            dict, see the model card.
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
        found = self._forward(self._continue, features)
        tokens = tf.where(is_bad[:, None, None], -1, found["tokens"])
        texts, has_stop = self._texts(tokens)
        has_ended = tf.reduce_any(
            tokens[..., None] == tf.constant(self._symbols.end_ids),
            axis=[-2, -1],
        )
        error = tf.where(is_empty, f"the {self._noun} is empty", "")
        error = tf.where(
            is_long,
            f"the {self._noun} has more than "
            f"{self._most_tokens - num_begin} tokens",
            error,
        )
        return {
            "generated": texts,
            "log_probabilities": tf.where(
                is_bad[:, None], 0.0, found["log_probabilities"]
            ),
            "num_tokens": tf.reduce_sum(
                tf.cast(self._is_text(tokens), tf.int32), axis=-1
            ),
            "has_ended": tf.cast(has_ended | has_stop, tf.int32),
            "error": error,
        }

    def _cut(self, token_ids):
        """The tokens of a text that are read."""
        return token_ids

    def _inputs(self, history):
        """Features for a Decoder of prompts [N, T], -1 in padding.

        Returns:
            (dict of features, int32 tensor of shape [N, T], the tokens that
            rules look at, -1 where there is none).
        """
        features = {
            "token_ids": tf.maximum(history, 0),
            "padding_mask": tf.cast(history >= 0, tf.int32),
        }
        return features, history

    def _left_padded(self, token_ids, is_bad):
        """int32 [N, T], -1 in padding; of a bad prompt [SEP] alone."""
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
        """New tokens [N, R, S] and log-probabilities [N, R] of a batch."""
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
                lengths = tf.reduce_sum(tf.cast(tokens >= 0, tf.float32), -1)
                penalty = ((5 + lengths) / 6) ** settings.length_penalty
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
        state = sampling.begin(
            self._decoder, context, tf.repeat(history, rows, axis=0), steps
        )
        state = sampling.extend(
            *(self._decoder, context, state, uniforms, settings),
            *(self._symbols, steps),
        )
        values = tf.reduce_sum(state["log_probabilities"], axis=-1)
        values = tf.reshape(values, [-1, rows])
        tokens = tf.reshape(state["history"][:, -steps:], [-1, rows, steps])
        order = tf.argsort(values, axis=-1, direction="DESCENDING")
        return {
            "tokens": tf.gather(tokens, order, axis=1, batch_dims=1),
            "log_probabilities": tf.gather(values, order, batch_dims=1),
        }

    def _is_text(self, tokens):
        ends = tf.constant(self._symbols.end_ids)
        is_end = tf.reduce_any(tokens[..., None] == ends, axis=-1)
        return (tokens >= 0) & ~is_end

    def _texts(self, tokens):
        """string [N, R], and bool [N, R], whether a stop string ended it."""
        pieces = tf.where(
            self._is_text(tokens),
            tf.gather(self._pieces, tf.maximum(tokens, 0)),
            "",
        )
        texts = tf.strings.reduce_join(pieces, axis=-1)
        texts = tf.strings.regex_replace(texts, BLANK, " ")
        has_stop = tf.zeros(tf.shape(texts), tf.bool)
        for stop in self._settings.stop:
            flat = tf.strings.split(tf.reshape(texts, [-1]), stop, maxsplit=1)
            cut = flat.row_lengths() > 1
            first = flat[:, :1].to_tensor("", shape=[None, 1])[:, 0]
            texts = tf.reshape(first, tf.shape(texts))
            has_stop = has_stop | tf.reshape(cut, tf.shape(texts))
        return texts, has_stop
