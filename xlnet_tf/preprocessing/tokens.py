"""Preprocessor of texts that are split into words, with or without tags.

Shapes: B batch, W words of a text, N pieces of all texts, T tokens, R encoded
examples. Axes in parentheses are ragged.
"""

from collections.abc import Sequence

import keras
import numpy as np

from data_pipeline.tasks.labels import check_known
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.strings import check_rank
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples
from xlnet_tf.preprocessing.strings import to_tensor

_NO_LABEL = -1


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTokenClassifierPreprocessor(Preprocessor):
    """Preprocessor of texts split into words, padded on the right.

    Words are tokenized one by one. A word without pieces becomes one unknown
    piece. The first piece of a word has the word's label. The word's other
    pieces, [SEP], [CLS] and padding have the weight 0.

    Args: see `Preprocessor`.

    Call arguments:
        x: words [B, (W)] in a list of lists or a ragged tensor; or a tensor [B,
            W] with "" for no word. A single example is the list of its words.
        y: int [B, (W)], one label per word. Words with a label below 0, such as
            -100, have the weight 0.
        sample_weight: [B] or [B, (W)], multiplied with the weights of the
            pieces.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 [B, T]. If
        `y` is given, a tuple of this dict, `y` (int32 [B, T]) and
        `sample_weight` (float32 [B, T]).

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 27)
    preprocessor = xlnet_tf.XLNetTokenClassifierPreprocessor(tokenizer, 16)
    features, labels, weights = preprocessor([["who", "sat"]], [[1, 0]])
    ```
    """

    usual_pad_side = "right"
    string_rank = 1
    _num_symbols = 2

    def tensors(self, x):
        if isinstance(x, dict):
            return named_strings(x, ("words",))
        return named_strings({"words": x}, ("words",))

    def call(self, x, y=None, sample_weight=None):
        if y is None:
            return super().call(x, y, sample_weight)
        weights = None if sample_weight is None else to_tensor(sample_weight)
        x = self.tensors(x)
        return self.as_batch(self._labelled, x, to_tensor(y), weights)

    def features(self, x):
        pieces, _ = self._pieces(x["words"])
        return self.pack(pieces)

    def first_pieces(self, x):
        """Mark the first piece of each word, which predicts the word's class.

        Args:
            x: words [B, (W)].

        Returns:
            int32 tensor [B, T], 1 = the first piece of a word.
        """
        pieces, words = self._pieces(self.tensors(x)["words"])
        width = self.pack(pieces)["token_ids"].shape[1]
        return self._align(pieces, _is_first(words), width)

    def are_words(self, x):
        """Make B lists with a bool for each word: False for "", else True.

        Words beyond the end of a truncated sequence also get True.
        """
        return (_ragged(self.tensors(x)["words"]) != "").to_list()

    def encode(
        self,
        examples: list,
        labels: Sequence[str] | None = None,
        training: bool = False,
        progress: bool = False,
    ):
        """Encode examples of words with tags; see `Preprocessor.encode`.

        Args:
            examples: list of TokensExample.
            labels: sequence of str, all tags.
            training, progress: see `Preprocessor.encode`.

        Returns:
            EncodedExamples with the sequences `token_labels` (int32, -1 for no
            tag) and `is_first_piece` (uint8), and the array `words` (int32 [R],
            number of the example's words that fit into the sequence).

        Raises:
            ValueError: if a tag is not in `labels`.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks

        check_known("token_classification", examples, labels)
        known = {label: index for index, label in enumerate(labels or ())}
        columns = encode_in_chunks(
            examples, lambda some: self._columns(some, known), progress
        )
        words = columns.pop("words")
        counts = np.array([len(one.words) for one in examples])
        lost = counts - words
        notes = []
        if training and lost.any():
            notes.append(
                f"cut       {lost.sum():,} of {counts.sum():,} words, of "
                f"{np.count_nonzero(lost):,} sentences, are beyond "
                f"{self.sequence_length:,} tokens and not read; see "
                "--sequence-length, or divide long sentences"
            )
        return EncodedExamples(
            columns,
            {
                "words": words,
                "row_weight": np.ones(len(examples), np.float32),
            },
            {
                **self.fillers,
                "token_labels": _NO_LABEL,
                "is_first_piece": 0,
            },
            self.pad_side,
            notes=notes,
        )

    def _columns(self, examples, known):
        import tensorflow as tf

        from data_pipeline.features.packing import unpack

        # An empty word would be dropped and shift the later tags, so a space
        # replaces an empty word.
        words = [word or " " for one in examples for word in one.words]
        pieces, numbers = self._pieces(
            tf.RaggedTensor.from_row_lengths(
                of_examples(words), [len(one.words) for one in examples]
            )
        )
        tags = np.array(
            [
                _NO_LABEL if tag is None else known[tag]
                for one in examples
                for tag in one.tags or [None] * len(one.words)
            ],
            np.int32,
        )
        is_first = _is_first(numbers)
        tags = tf.where(is_first, tf.gather(tags, numbers), _NO_LABEL)
        is_first = tf.cast(is_first, tf.uint8)

        def with_symbols(values, filler):
            values = pieces.with_flat_values(values)
            values = values[:, : self.sequence_length - 2]
            symbols = tf.cast(filler, values.dtype)
            before, behind = (
                tf.fill([len(examples), count], symbols)
                for count in (self.text_begin, 2 - self.text_begin)
            )
            return tf.concat([before, values, behind], axis=1)

        is_first = with_symbols(is_first, 0)
        kept = tf.reduce_sum(tf.cast(is_first, tf.int32), axis=1)
        return {
            **unpack(self.pack(pieces)),
            "token_labels": with_symbols(tags, _NO_LABEL),
            "is_first_piece": is_first,
            "words": kept.numpy(),
        }

    def _labelled(self, x, y, sample_weight):
        import tensorflow as tf

        from data_pipeline.tokenization.ragged import row_ids

        pieces, numbers = self._pieces(x["words"])
        words, y = _ragged(x["words"]), _ragged(y)
        tf.debugging.assert_equal(
            y.row_lengths(),
            words.row_lengths(),
            "`y` must have one label for each word of `x`.",
        )
        labels = tf.gather(tf.cast(y.flat_values, tf.int32), numbers)
        weights = tf.cast(_is_first(numbers) & (labels >= 0), "float32")
        if sample_weight is not None:
            sample_weight = tf.cast(sample_weight, "float32")
            if sample_weight.shape.rank == 1:
                weights *= tf.gather(sample_weight, row_ids(pieces))
            else:
                sample_weight = _ragged(sample_weight).flat_values
                weights *= tf.gather(sample_weight, numbers)
        features = self.pack(pieces)
        width = tf.shape(features["token_ids"])[1]
        labels = self._align(pieces, tf.maximum(labels, 0), width)
        return features, labels, self._align(pieces, weights, width)

    def _pieces(self, words):
        """Tokenize words, and find the word of each piece.

        Returns:
            (piece ids, ragged [B, (T)]; index of each piece's word among all
            words, int64 [N]).
        """
        from data_pipeline.features.packing import word_pieces
        from data_pipeline.tokenization.ragged import row_ids

        check_rank(words, "words", 2)
        words = _ragged(words)
        ids = word_pieces(self.tokenize, words.flat_values)
        pieces = words.with_flat_values(ids).merge_dims(1, 2)
        return pieces, row_ids(ids)

    def _align(self, pieces, values, width):
        """Place the pieces' values [N] in the sequences [B, T], 0 elsewhere."""
        from data_pipeline.features.packing import align

        values = pieces.with_flat_values(values)
        values = values[:, : self.sequence_length - 2]
        return align(values, width, begin=self.text_begin)


def _is_first(numbers):
    """Mark each word's first piece, bool [N].

    Args:
        numbers: int64 [N], index of each piece's word.
    """
    import tensorflow as tf

    before = tf.concat([[-1], numbers[:-1]], 0)
    return numbers != before


def _ragged(tensor):
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tensor
    return tf.RaggedTensor.from_tensor(tensor)
