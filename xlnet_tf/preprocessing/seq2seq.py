"""Preprocessor of pairs of a source text and a target text.

Shapes: B pairs, T tokens of a sequence, P tokens of a target, R encoded pairs.
"""

from typing import Any

import keras
import numpy as np

from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.strings import check_rank
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples
from xlnet_tf.preprocessing.strings import strings
from xlnet_tf.preprocessing.strings import to_tensor

# The number of target tokens in a split is padded to a multiple of 8.
_TARGET_STEP = 8


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetSeq2SeqPreprocessor(Preprocessor):
    """Preprocessor of a source followed by its target, padded on the right.

    A sequence is `A sep B sep`: the source A has segment 0, and the target B
    segment 1. BERT's layout begins with [CLS]. Long texts are truncated at the
    end.

    Args:
        tokenizer, pad_to_longest, layout: see `Preprocessor`.
        sequence_length: int, T, maximum number of tokens of a source with its
            target. Default 512.
        target_length: int, P, maximum number of tokens of a target, with its
            [SEP]. The remaining tokens of `sequence_length` are for the source.
            Default 64.

    Call arguments:
        x: strings [B], the sources; or a dict of "source" [B] and "target" [B].
            A single example is one string, or a dict of two strings.
        y: strings [B], the targets, if `x` has only sources.
        sample_weight: [B], multiplied with the weights of the target tokens, or
            None.

    Returns:
        tuple (features, `y`, `sample_weight`). `y` (int32 [B, P]) has the
        tokens of the targets. `sample_weight` (float32 [B, P]) is 0 for
        padding. Features are `token_ids`, `segment_ids` and `padding_mask`
        (int32 [B, T]), and `target_positions` (int32 [B, P]). Without targets,
        the result is only the features of the sources, padded on the left.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 27)
    preprocessor = xlnet_tf.XLNetSeq2SeqPreprocessor(tokenizer, 24, 8)
    features, targets, weights = preprocessor(["who sat"], ["a mat"])
    ```
    """

    usual_pad_side = "right"
    labels_are_strings = True

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 512,
        target_length: int = 64,
        pad_to_longest: bool = False,
        layout: str = "xlnet",
    ):
        self._target_length = target_length
        super().__init__(
            tokenizer,
            sequence_length,
            pad_to_longest=pad_to_longest,
            layout=layout,
        )

    @property
    def target_length(self):
        """Maximum number of tokens of a target, P."""
        return self._target_length

    @property
    def source_length(self):
        """Maximum number of tokens of a source, with its special tokens."""
        return self.sequence_length - self.target_length

    def check_length(self, value):
        from data_pipeline.features.pairs import check_lengths

        check_lengths(value, self.target_length)

    def call(self, x, y=None, sample_weight=None):
        x = self.tensors(x)
        if y is not None:
            if "target" in x:
                raise ValueError(
                    "targets are given twice, as `y` and in `x`. Leave one of "
                    "them out."
                )
            x["target"] = strings(y, "y")
        if "target" not in x:
            if sample_weight is not None:
                raise ValueError("`sample_weight` weighs targets: give `y`.")
            return super().call(x)
        weights = None if sample_weight is None else to_tensor(sample_weight)
        return self.as_batch(self._labelled, x, weights)

    def tensors(self, x):
        if isinstance(x, dict):
            return named_strings(x, ("source",), ("target",))
        return named_strings({"source": x}, ("source",))

    def features(self, x):
        """Compute features of sources, padded on the left for generation."""
        import tensorflow as tf

        token_ids = self._sources(x["source"])
        width = None if self.pad_to_longest else self.source_length
        backwards = tf.reverse(token_ids, [1])
        ones = tf.ones_like(backwards)

        def padded(values, filler):
            values = values.to_tensor(filler, shape=[None, width])
            return tf.reverse(values, [1])

        fillers = self._layout.fillers("left")
        return {
            "token_ids": padded(backwards, fillers["token_ids"]),
            "segment_ids": padded(ones * 0, fillers["segment_ids"]),
            "padding_mask": padded(ones, 0),
        }

    def _sources(self, texts):
        from data_pipeline.features.pairs import pack_sources

        check_rank(texts, "source", 1)
        return pack_sources(
            self.tokenize(texts), self.source_length, self.layout
        )

    def _labelled(self, x, sample_weight):
        import tensorflow as tf

        sequences, targets = self._pairs(x["source"], x["target"])
        width = None if self.pad_to_longest else self.sequence_length
        features = {
            name: value.to_tensor(self.fillers[name], shape=[None, width])
            for name, value in sequences.items()
        }
        token_ids = sequences["token_ids"]
        mask = tf.ones_like(token_ids).to_tensor(0, shape=[None, width])
        weights = targets["target_weights"]
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, None]
        return (
            {
                **features,
                "padding_mask": mask,
                "target_positions": targets["target_positions"],
            },
            targets["target_ids"],
            weights,
        )

    def _pairs(self, sources, targets):
        from data_pipeline.features.pairs import pack_pairs

        check_rank(sources, "source", 1)
        check_rank(targets, "target", 1)
        return pack_pairs(
            self.tokenize(sources),
            self.tokenize(targets),
            self.sequence_length,
            self.target_length,
            self.layout,
        )

    def encode(
        self,
        examples: list,
        labels: object = None,
        training: bool = False,
        progress: bool = False,
    ):
        """Encode pairs, or only their sources; see `Preprocessor.encode`.

        Args:
            examples: list of PairExample.
            labels: not used.
            training: bool. If True, the result also has the targets:
                `target_ids`, `target_positions` and `target_weights` [R, P]. If
                False, the result has only sources, padded on the left for
                generation.
            progress: see `Preprocessor.encode`.

        Returns:
            EncodedExamples.

        Raises:
            ValueError: if `examples` is empty.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks

        columns = encode_in_chunks(
            examples,
            self._training_columns if training else self._source_columns,
            progress,
        )
        names = ("token_ids", "segment_ids")
        sequences = {name: columns.pop(name) for name in names}
        side = "right" if training else "left"
        notes = []
        if training:
            notes = self._notes(columns, len(examples))
            longest = int(columns["target_weights"].sum(axis=1).max())
            width = -(-longest // _TARGET_STEP) * _TARGET_STEP
            columns = {name: x[:, :width] for name, x in columns.items()}
        return EncodedExamples(
            sequences,
            columns,
            self._layout.fillers(side),
            side,
            notes=notes,
        )

    def _notes(self, columns, count):
        """Make the lines of a report about truncated texts."""
        sources = columns["target_positions"][:, 0]
        full = int(np.sum(sources == self.source_length))
        targets = columns["target_weights"].sum(axis=1)
        full_targets = int(np.sum(targets == self.target_length))
        return [
            f"cut       {number:,} of {count:,} {kind} fill {length:,} tokens, "
            f"and what is beyond is not read; see {option}"
            for number, kind, length, option in (
                (full, "sources", self.source_length, "--sequence-length"),
                (
                    *(full_targets, "targets", self.target_length),
                    "--target-length",
                ),
            )
            if number
        ]

    def _training_columns(self, examples):
        sequences, targets = self._pairs(
            of_examples([one.source for one in examples]),
            of_examples([one.target for one in examples]),
        )
        return sequences | {k: v.numpy() for k, v in targets.items()}

    def _source_columns(self, examples):
        import tensorflow as tf

        token_ids = self._sources(of_examples([x.source for x in examples]))
        return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids)}

    def settings(self):
        return {
            "sequence_length": self.sequence_length,
            "target_length": self.target_length,
            "pad_to_longest": self.pad_to_longest,
            **self.layout_setting(),
        }
