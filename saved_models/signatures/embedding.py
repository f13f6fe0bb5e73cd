"""Embeddings of raw text, of ids, and of long documents bit by bit.

Shapes: N texts, T tokens, D model dim, L layers, M memory length.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures import documents
from saved_models.signatures import features as make_features
from saved_models.signatures.base import ModelSignatures
from saved_models.signatures.base import Signature

_EXAMPLE = "The door of the house was open."
_MEANING = {
    "text": "string [N], UTF-8",
    **make_features.ID_MEANING,
    "embeddings": "float32 [N, T, D], the content stream",
    "mean_embedding": "float32 [N, D], over real tokens",
    "memories": (
        "float32 [N, L, M, D], zeros for a document's first segment, then what "
        "the last answer gave"
    ),
    "memory_mask": (
        "int32 [N, M], 1 = a remembered token; zeros for a document's first "
        "segment"
    ),
    "dropped_tokens": (
        "int32 [N], tokens of the segment beyond the longest that fits: more "
        "than 0 means that the segment must be cut smaller"
    ),
}


class EmbeddingSignatures(ModelSignatures):
    """`embed`, `embed_ids`, `document_segment` and `document_segment_ids`."""

    def signatures(self):
        signatures = self._embedding_signatures()
        return {"serving_default": signatures["embed"], **signatures}

    def _embedding_signatures(self):
        text = {"text": tf.TensorSpec([None], tf.string, name="text")}
        signatures = {
            "embed": Signature(
                self.embed,
                text,
                "Contextual embeddings of raw text; longer texts lose their "
                "end.",
                _MEANING,
                self._example_texts(_EXAMPLE),
            ),
            "embed_ids": Signature(
                self.embed_ids,
                make_features.id_specs(),
                "Contextual embeddings of ready ids.",
                _MEANING,
                self._example_ids(),
            ),
        }
        memory_length = self._settings.memory_of(self._served.config)
        if memory_length:
            signatures.update(self._document_signatures(text, memory_length))
        return signatures

    def _document_signatures(self, text, memory_length):
        layers = self._served.config.num_layers
        shape = [layers, memory_length, self._served.config.hidden_dim]
        memory = {
            "memories": tf.TensorSpec([None, *shape], tf.float32, "memories"),
            "memory_mask": tf.TensorSpec(
                [None, memory_length], tf.int32, "memory_mask"
            ),
        }
        ids = make_features.id_specs()
        ids = {name: ids[name] for name in ("token_ids", "padding_mask")}

        def with_memory(examples):
            for example in examples:
                rows = len(next(iter(example.values())))
                yield {
                    **example,
                    "memories": np.zeros([rows, *shape], "float32"),
                    "memory_mask": np.zeros([rows, memory_length], "int32"),
                }

        texts = self._example_texts(_EXAMPLE, ends=0)
        id_examples = self._example_ids()
        for example in id_examples:
            del example["segment_ids"]
        summary = (
            "Embeddings of the next segment of each document, which sees what "
            "is remembered of the segments before."
        )
        return {
            "document_segment": Signature(
                self.document_segment,
                text | memory,
                summary + " No [SEP] and [CLS] are added.",
                _MEANING,
                list(with_memory(texts)),
            ),
            "document_segment_ids": Signature(
                self.document_segment_ids,
                ids | memory,
                summary,
                _MEANING,
                list(with_memory(id_examples)),
            ),
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
        features = self._text_features(self._tokenizer(text))
        return {
            **self._embeddings(features),
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
        }

    def embed_ids(self, token_ids, segment_ids, padding_mask):
        """Contextual embeddings of ready ids, int32 [N, T] each."""
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        return self._embeddings(self._checked(features))

    def document_segment(self, text, memories, memory_mask):
        """Embeddings of the next segment of each document.

        Args:
            text: string [N], UTF-8; an empty one leaves the memory as it is.
            memories: float32 [N, L, M, D].
            memory_mask: int32 [N, M], 1 = a real remembered token.

        Returns:
            dict: as `embed`; `memories` and `memory_mask` for the segment
            after; `dropped_tokens` int32 [N].
        """
        ids = self._tokenizer(text)
        kept = ids[:, : self._settings.sequence_length]
        features = make_features.padded(kept)
        return {
            **self._segment(features, memories, memory_mask),
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
            "dropped_tokens": tf.cast(
                ids.row_lengths() - kept.row_lengths(), tf.int32
            ),
        }

    def document_segment_ids(
        self, token_ids, padding_mask, memories, memory_mask
    ):
        """As `document_segment`, of ready ids, with padding behind them."""
        features = {"token_ids": token_ids, "padding_mask": padding_mask}
        features = self._checked(features)
        mask = features["padding_mask"]
        # Padding between memory and text would count in their distance.
        check = tf.debugging.Assert(
            tf.reduce_all(mask[:, 1:] <= mask[:, :-1]),
            ["`padding_mask` must be 1s and then 0s. Received:", mask],
        )
        features = make_features.after([check], features)
        return self._segment(features, memories, memory_mask)

    def _segment(self, features, memories, memory_mask):
        rows = tf.shape(features["token_ids"])[0]
        checks = [
            tf.debugging.assert_equal(
                tf.shape(value)[0],
                rows,
                f"`{name}` must have a row for each document",
            )
            for name, value in (
                ("memories", memories),
                ("memory_mask", memory_mask),
            )
        ]
        features = {
            # of one segment, as memory is too
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
            "memories": memories,
            "memory_mask": memory_mask,
        }
        features = make_features.after(checks, features)
        length = memory_mask.shape[1]

        def run(features):
            memory = documents.read_memory(
                features["memories"], features["memory_mask"]
            )
            outputs = self._backbone({**features, **memory}, training=False)
            return {
                **_pooled(outputs["content"], features["padding_mask"]),
                **documents.last_real(
                    outputs["memories"], outputs["memory_mask"], length
                ),
            }

        return self._run(run, features, ["embeddings"])

    def _embeddings(self, features):
        def run(features):
            content = self._backbone(features, training=False)["content"]
            return _pooled(content, features["padding_mask"])

        return self._run(run, features, ["embeddings"])

    def _text_features(self, ids):
        """Ragged ids -> features of `[ids sep cls]`."""
        length = self._settings.sequence_length
        return make_features.padded(make_features.with_ends(ids, length), 2)

    def _checked(self, features):
        return make_features.checked(
            features, self._served.config.vocabulary_size
        )

    def _example_ids(self):
        examples = []
        for length in self._lengths():
            for rows in self._batches():
                ids = np.full([rows, length], 9, "int32")
                ids[:, -2:] = [SEP_ID, CLS_ID]
                segments = np.zeros_like(ids)
                segments[:, -1] = CLS_SEGMENT
                examples.append(
                    {
                        "token_ids": ids,
                        "segment_ids": segments,
                        "padding_mask": np.ones_like(ids),
                    }
                )
        return examples


def _pooled(content, padding_mask):
    content = tf.cast(content, tf.float32)
    weight = tf.cast(padding_mask, tf.float32)[:, :, None]
    total = tf.maximum(tf.reduce_sum(weight, axis=1), 1.0)
    return {
        "embeddings": content,
        "mean_embedding": tf.reduce_sum(content * weight, axis=1) / total,
    }
