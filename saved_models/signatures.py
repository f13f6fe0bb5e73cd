"""The functions an export serves: raw text in, flat dicts of tensors out.

Only TensorFlow's own ops and SentencePiece's two are used, so that TensorFlow
Serving and the C runtime load the result with nothing of ours installed.

Shapes: N texts, T tokens, P blanks to fill in, k candidates, D model dim,
V vocabulary.
"""

import tensorflow as tf

from data_pipeline.graph_tokenizer import GraphTokenizer
from data_pipeline.symbols import CLS_ID
from data_pipeline.symbols import MASK_ID
from data_pipeline.symbols import SEP_ID

BLANK = "<mask>"  # stands for one missing token in a raw text

# Rank of the blanks in the factorization order: one step after the context, so
# that every blank is predicted from all words that are given, and no other.
_CONTEXT_RANK, _BLANK_RANK = -1, 0


class PretrainerSignatures(tf.Module):
    """Fill-in and embeddings of a pretrained model, for raw text and for ids.

    Args:
        model: XLNetPretrainer.
        tokenizer: data_pipeline Tokenizer.
        sequence_length: int, tokens of a text at most, [SEP] and [CLS]
            included; longer texts lose their end.
        num_candidates: int, k.
    """

    def __init__(self, model, tokenizer, sequence_length, num_candidates):
        super().__init__()
        self._model = model
        # tf.Module finds variables in lists; it does not look into Keras 3
        # models.
        self._model_variables = [v.value for v in model.variables]
        self._tokenizer = GraphTokenizer(tokenizer)
        self._pieces = tf.constant(
            [tokenizer.id_to_piece(i) for i in range(tokenizer.vocabulary_size)]
        )
        self._word_mark = tokenizer.piece_to_id("\u2581")
        self._sequence_length = sequence_length
        self._num_candidates = num_candidates

    def signatures(self):
        """The named functions to export.

        Returns:
            dict of str to concrete function.
        """
        text = tf.TensorSpec([None], tf.string, name="text")
        ids = {
            name: tf.TensorSpec([None, None], tf.int32, name=name)
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        positions = tf.TensorSpec([None, None], tf.int32, "target_positions")
        fill_in = _function(self.fill_in, text=text)
        return {
            "serving_default": fill_in,
            "fill_in": fill_in,
            "embed": _function(self.embed, text=text),
            "fill_in_ids": _function(
                self.fill_in_ids, **ids, target_positions=positions
            ),
            "embed_ids": _function(self.embed_ids, **ids),
        }

    def fill_in(self, text):
        """Likely tokens for every `<mask>` of each text.

        Args:
            text: string [N], UTF-8, with any number of `<mask>`.

        Returns:
            dict: `pieces` string [N, P, k], best first, "\u2581" marking the
            beginning of a word; `token_ids` int32 [N, P, k];
            `log_probabilities` float32 [N, P, k], natural logarithms; `count`
            int32 [N], blanks of each text: rows of P from there on are filler.
        """
        features, count = self._blanks(text)
        log_probabilities = self._log_probabilities(features)
        best = tf.math.top_k(log_probabilities, k=self._num_candidates)
        return {
            "pieces": tf.gather(self._pieces, best.indices),
            "token_ids": best.indices,
            "log_probabilities": best.values,
            "count": count,
        }

    def embed(self, text):
        """Contextual embeddings of raw text.

        Args:
            text: string [N], UTF-8.

        Returns:
            dict: `embeddings` float32 [N, T, D], the content stream;
            `mean_embedding` float32 [N, D] over real tokens; `token_ids` int32
            and `padding_mask` int32, 1 = a real token, both [N, T].
        """
        features = self._features(self._tokenizer(text))
        return {
            **self._embeddings(features),
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
        }

    def fill_in_ids(
        self, token_ids, segment_ids, padding_mask, target_positions
    ):
        """Log-probabilities at chosen positions, given the rest.

        Args:
            token_ids: int32 [N, T]; what stands at the targets is not seen.
            segment_ids: int32 [N, T].
            padding_mask: int32 [N, T], 1 = a real token.
            target_positions: int32 [N, P].

        Returns:
            dict: `log_probabilities` float32 [N, P, V], natural logarithms.
        """
        num_tokens = tf.shape(token_ids)[1]
        is_target = tf.reduce_any(
            tf.range(num_tokens) == target_positions[:, :, None], axis=1
        )
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
            "target_positions": target_positions,
            "factorization_rank": tf.where(
                is_target, _BLANK_RANK, _CONTEXT_RANK
            ),
        }
        return {"log_probabilities": self._log_probabilities(features)}

    def embed_ids(self, token_ids, segment_ids, padding_mask):
        """Contextual embeddings of ready ids; see `embed` and `fill_in_ids`."""
        return self._embeddings(
            {
                "token_ids": token_ids,
                "segment_ids": segment_ids,
                "padding_mask": padding_mask,
            }
        )

    def _blanks(self, text):
        """Features with targets at the blanks, and the number of blanks."""
        parts = tf.strings.split(text, BLANK)  # [N, (parts)]
        ids = self._tokenizer(parts.flat_values)  # [all parts, (T)]
        # Every part but a text's first has the blank that it follows in front.
        follows = tf.ones_like(parts.flat_values, tf.int64)
        follows = parts.with_flat_values(follows)
        follows = tf.concat(
            [tf.zeros_like(follows[:, :1]), follows[:, 1:]], axis=1
        ).flat_values
        # A part that touches its blank, as in "<mask>.", begins no word.
        touches = (follows == 1) & ~tf.strings.regex_full_match(
            parts.flat_values, r"(?s)\s.*"
        )
        first = ids[:, :1].to_tensor(-1, shape=[None, 1])[:, 0]
        drop = touches & (first == self._word_mark)
        ids = tf.ragged.boolean_mask(
            ids,
            tf.ragged.range(ids.row_lengths())
            >= tf.cast(drop, tf.int64)[:, None],
        )
        blank = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(follows)], MASK_ID), follows
        )
        ids = tf.concat([blank, ids], axis=1)
        ids = parts.with_flat_values(ids).merge_dims(1, 2)  # [N, (T)]
        # A blank is known by its id, which no text encodes to.
        features = self._features(ids)
        is_blank = tf.equal(features["token_ids"], MASK_ID)
        count = tf.reduce_sum(tf.cast(is_blank, tf.int32), axis=1)
        positions = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_blank)[:, 1], tf.int32), count
        ).to_tensor()
        # At least one column, for the model has no place for none.
        missing = tf.maximum(1 - tf.shape(positions)[1], 0)
        features["target_positions"] = tf.pad(positions, [[0, 0], [0, missing]])
        features["factorization_rank"] = tf.where(
            is_blank, _BLANK_RANK, _CONTEXT_RANK
        )
        return features, count

    def _features(self, ids):
        """Ragged ids -> `[ids sep cls]`, padded on the right."""
        ids = ids[:, : self._sequence_length - 2]
        rows = ids.nrows(out_type=tf.int32)
        ends = tf.tile([[SEP_ID, CLS_ID]], [rows, 1])
        ids = tf.concat([ids, tf.RaggedTensor.from_tensor(ends)], axis=1)
        token_ids = ids.to_tensor()
        # Two columns where there is no text: reshapes need a size above 0.
        missing = tf.maximum(2 - tf.shape(token_ids)[1], 0)
        token_ids = tf.pad(token_ids, [[0, 0], [0, missing]])
        padding_mask = tf.sequence_mask(
            ids.row_lengths(), tf.shape(token_ids)[1], dtype=tf.int32
        )
        return {
            "token_ids": token_ids,
            # as in pretraining, where [CLS] has a segment of its own
            "segment_ids": tf.where(token_ids == CLS_ID, 2, 0),
            "padding_mask": padding_mask,
        }

    def _log_probabilities(self, features):
        query = self._model.backbone(features, training=False)["query"]
        return tf.nn.log_softmax(self._model.logits(query))

    def _embeddings(self, features):
        content = self._model.backbone(features, training=False)["content"]
        content = tf.cast(content, tf.float32)
        weight = tf.cast(features["padding_mask"], tf.float32)[:, :, None]
        total = tf.maximum(tf.reduce_sum(weight, axis=1), 1.0)
        return {
            "embeddings": content,
            "mean_embedding": tf.reduce_sum(content * weight, axis=1) / total,
        }


def _function(method, **specs):
    """A concrete function whose outputs keep their names."""
    return tf.function(method).get_concrete_function(**specs)
