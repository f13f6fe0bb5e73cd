"""Signatures that embed raw text, token ids and long documents.

The answer for a document's segment contains the document's memory. The client
sends this memory with the next segment.

Shapes: N texts or documents, T tokens, D width of the model, L layers, M memory
length.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.symbols import SEP_ID
from saved_models.signatures.base import ModelSignatures
from saved_models.signatures.checks import after
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs

_EXAMPLE = {"text": "The door of the house was open."}
_MEANING = {
    "text": "string [N], UTF-8",
    "embeddings": "float32 [N, T, D], the content stream",
    "mean_embedding": "float32 [N, D], over real tokens",
    "memories": (
        "float32 [N, L, M, D], zeros for a document's first segment, then the "
        "`memories` of the last answer"
    ),
    "memory_mask": (
        "int32 [N, M], 1 = a remembered token; zeros for a document's first "
        "segment"
    ),
    "dropped_tokens": (
        "int32 [N], tokens of the segment that did not fit; above 0 the "
        "document must be cut into smaller segments"
    ),
}


class EmbeddingSignatures(ModelSignatures):
    """Signatures `embed` and `document_segment`, for raw text and token ids."""

    def signatures(self):
        signatures = self._embedding_signatures()
        return {"serving_default": signatures["embed"], **signatures}

    def _embedding_signatures(self):
        text = string_specs(text=1)
        signatures = {
            "embed": Signature(
                self.embed,
                text,
                "Contextual embeddings of raw text; longer texts lose their "
                "end.",
                _MEANING | self._id_meaning(),
                self._examples(_EXAMPLE, "text", 2),
            ),
            "embed_ids": Signature(
                self.embed_ids,
                id_specs(),
                "Contextual embeddings of ready ids.",
                _MEANING | self._id_meaning(),
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
        ids = id_specs()
        ids = {name: ids[name] for name in ("token_ids", "padding_mask")}

        def with_memory(examples):
            for example in examples:
                rows = len(next(iter(example.values())))
                yield {
                    **example,
                    "memories": np.zeros([rows, *shape], "float32"),
                    "memory_mask": np.zeros([rows, memory_length], "int32"),
                }

        texts = self._examples(_EXAMPLE, "text", 0)
        id_examples = self._example_ids()
        for example in id_examples:
            del example["segment_ids"]
        summary = (
            "Embeddings of the next segment of each document, given the memory "
            "of the segments before."
        )
        return {
            "document_segment": Signature(
                self.document_segment,
                text | memory,
                summary + " No [SEP] and [CLS] are added.",
                _MEANING | self._id_meaning(),
                list(with_memory(texts)),
            ),
            "document_segment_ids": Signature(
                self.document_segment_ids,
                ids | memory,
                summary,
                _MEANING | self._id_meaning(),
                list(with_memory(id_examples)),
            ),
        }

    def embed(self, text):
        """Compute contextual embeddings of raw text.

        Args:
            text: string [N], UTF-8.

        Returns:
            dict of `embeddings` (float32 [N, T, D], the content stream),
            `mean_embedding` (float32 [N, D], the mean over real tokens),
            `token_ids` (int32 [N, T]) and `padding_mask` (int32 [N, T], 1 = a
            real token).
        """
        features = self._text_features(self._tokenizer(text))
        return {
            **self._embeddings(features),
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
        }

    def embed_ids(self, token_ids, segment_ids, padding_mask):
        """Compute contextual embeddings; each input is int32 [N, T]."""
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        return self._embeddings(self._checked(features))

    def document_segment(self, text, memories, memory_mask):
        """Compute embeddings of the next segment of each document.

        Args:
            text: string [N], UTF-8; an empty text leaves the memory unchanged.
            memories: float32 [N, L, M, D], memories of earlier segments.
            memory_mask: int32 [N, M], 1 = a real token in memory.

        Returns:
            dict with the keys of `embed`. It also has the `memories` and
            `memory_mask` for the next segment, and `dropped_tokens` (int32 [N],
            the number of tokens of each text beyond `sequence_length`).
        """
        ids = self._tokenizer(text)
        kept = ids[:, : self._settings.sequence_length]
        features = self._padded(kept)
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
        """Compute `document_segment` for token ids with right padding."""
        features = {"token_ids": token_ids, "padding_mask": padding_mask}
        features = self._checked(features)
        mask = features["padding_mask"]
        # Padding on the left would increase the distance between memory and
        # text.
        check = tf.debugging.Assert(
            tf.reduce_all(mask[:, 1:] <= mask[:, :-1]),
            ["`padding_mask` must be 1s and then 0s. Received:", mask],
        )
        features = after([check], features)
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
            # There are no segment_ids, because text and memory have one segment
            # id.
            "token_ids": features["token_ids"],
            "padding_mask": features["padding_mask"],
            "memories": memories,
            "memory_mask": memory_mask,
        }
        features = after(checks, features)
        length = memory_mask.shape[1]

        def run(features):
            memory = read_memory(features["memories"], features["memory_mask"])
            outputs = self._backbone({**features, **memory}, training=False)
            return {
                **_pooled(outputs["content"], features["padding_mask"]),
                **last_real(
                    outputs["memories"], outputs["memory_mask"], length
                ),
            }

        return self._run(run, features, ["embeddings"])

    def forward(self, features):
        content = self._backbone(features, training=False)["content"]
        return _pooled(content, features["padding_mask"])

    def _embeddings(self, features):
        return self._run(self.forward, features, ["embeddings"])

    def _text_features(self, ids):
        """Make features of ragged ids, with [SEP] and [CLS] added."""
        length = self._settings.sequence_length
        return self._padded(with_ends(ids, length, self._layout), minimum=2)

    def _padded(self, ids, minimum=1):
        """Check the number of tokens, then make features of ragged ids."""
        check = self._check_tokens(ids.nrows(), ids.bounding_shape(axis=1))
        with tf.control_dependencies([check]):
            ids = tf.identity(ids)
        return padded(ids, minimum, self._layout)


def _pooled(content, padding_mask):
    content = tf.cast(content, tf.float32)
    weight = tf.cast(padding_mask, tf.float32)[:, :, None]
    total = tf.maximum(tf.reduce_sum(weight, axis=1), 1.0)
    return {
        "embeddings": content,
        "mean_embedding": tf.reduce_sum(content * weight, axis=1) / total,
    }


def padded(ids, minimum=1, layout=LAYOUTS["xlnet"]):
    """Make features of ragged ids, padded on the right.

    Args:
        ids: int32 ragged tensor [N, (T)].
        minimum: int, minimum number of columns. Default 1, because a reshape
            needs a column.
        layout: Layout of the model.

    Returns:
        dict of int32 [N, T]: `token_ids`, `padding_mask` and `segment_ids`. The
        segment id of [CLS] is `layout.class_segment`, as in pretraining. All
        other segment ids are 0.
    """
    token_ids = ids.to_tensor()
    missing = tf.maximum(minimum - tf.shape(token_ids)[1], 0)
    token_ids = tf.pad(token_ids, [[0, 0], [0, missing]])
    return {
        "token_ids": token_ids,
        "segment_ids": tf.where(
            token_ids == CLS_ID, layout.class_segment, FIRST_SEGMENT
        ),
        "padding_mask": tf.sequence_mask(
            ids.row_lengths(), tf.shape(token_ids)[1], dtype=tf.int32
        ),
    }


def with_ends(ids, sequence_length, layout=LAYOUTS["xlnet"]):
    """Add [SEP] and [CLS] to ragged ids; truncate to `sequence_length`."""
    ids = ids[:, : sequence_length - 2]
    parts = [ids, _symbols(ids, SEP_ID)]
    parts.insert(0 if layout.class_first else 2, _symbols(ids, CLS_ID))
    return tf.concat(parts, axis=1)


def _symbols(ids, symbol):
    """Make a ragged column [N, (1)] with the same symbol in each row."""
    symbols = tf.fill([ids.nrows(out_type=tf.int32), 1], symbol)
    return tf.RaggedTensor.from_tensor(symbols)


def read_memory(memories, memory_mask):
    """Make the backbone's memory features from the memory in a request.

    Args:
        memories: float32 [N, L, M, D], memories of earlier segments.
        memory_mask: int32 [N, M], 1 = a real token in memory.

    Returns:
        dict of `memories` (L tensors [N, M, D]) and `memory_mask` (bool
        [N, M]).
    """
    return {
        "memories": tuple(tf.unstack(memories, axis=1)),
        "memory_mask": memory_mask > 0,
    }


def last_real(memories, memory_mask, memory_length):
    """Keep each document's last real states, and move them to the memory's end.

    The moved states have no padding between them. So padding does not change
    the distances between tokens, and the answers for a document do not depend
    on the other documents in the batch.

    Args:
        memories: L tensors [N, M + T, D], states of the memory and of the
            segment.
        memory_mask: bool [N, M + T].
        memory_length: int, M.

    Returns:
        dict of `memories` (float32 [N, L, M, D], zeros if there is no state)
        and `memory_mask` (int32 [N, M]).
    """
    real = tf.cast(memory_mask, tf.int32)
    order = tf.argsort(real, axis=1, stable=True)[:, -memory_length:]
    mask = tf.gather(real, order, axis=1, batch_dims=1)
    states = tf.stack([tf.cast(m, tf.float32) for m in memories], axis=1)
    states = tf.gather(states, order[:, None], axis=2, batch_dims=1)[:, :, 0]
    states *= tf.cast(mask, tf.float32)[:, None, :, None]
    # There are M + T states, so the number is at least M.
    states = tf.ensure_shape(states, [None, None, memory_length, None])
    mask = tf.ensure_shape(mask, [None, memory_length])
    return {"memories": states, "memory_mask": mask}
