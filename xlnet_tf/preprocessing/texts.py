"""Raw strings -> features, in front of every task.

Shapes: B batch, O options or documents, W words of a text, T tokens.
"""

import keras

from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.preprocessor import add_axis
from xlnet_tf.preprocessing.preprocessor import first_row
from xlnet_tf.preprocessing.raw_input import check_rank
from xlnet_tf.preprocessing.raw_input import named_strings
from xlnet_tf.preprocessing.raw_input import to_tensor


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextClassifierPreprocessor(Preprocessor):
    """Features of texts, or of pairs of texts, padded on the left.

    Args: see `Preprocessor`.

    Call arguments:
        x: strings [B]; or a tuple or list of two such batches, the texts and
            the texts that they are paired with; or a dict of "text" and
            "text_pair". Or one string, or a tuple of two.
        y, sample_weight: returned as they are.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 [B, T],
        and `y` and `sample_weight` where given.
    """

    _num_symbols = 2

    def tensors(self, x):
        if isinstance(x, dict):
            return named_strings(x, ("text",), ("text_pair",))
        if isinstance(x, tuple) or _is_list_of_batches(x):
            if not 1 <= len(x) <= 2:
                raise ValueError(
                    "`x` must be texts, or two batches of texts: (texts, "
                    f"text_pairs). Received: {len(x)} batches."
                )
            names = ("text", "text_pair")
            parts = dict(zip(names, x, strict=False))
            return named_strings(parts, names[:1], names[1:])
        return named_strings({"text": x}, ("text",))

    def features(self, x):
        check_rank(x["text"], "text", 1)
        second = x.get("text_pair")
        if second is not None:
            check_rank(second, "text_pair", 1)
            second = self.tokenize(second)
        return self.pack(self.tokenize(x["text"]), second)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetMultipleChoicePreprocessor(Preprocessor):
    """Features of questions about contexts, a sequence for each option.

    A sequence is the context, then the question and the option. What is too
    long loses the end of its context; a question with its option of more than
    `max_question_length` tokens, or for which the sequence has no room, loses
    its beginning.

    Args:
        max_question_length: int, tokens of a question and an option at most.
            Default 128.
        Others: see `Preprocessor`.

    Call arguments:
        x: dict of strings "context" [B], "question" [B], "options" [B, O].
        y, sample_weight: returned as they are.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32
        [B, O, T], and `y` and `sample_weight` where given.

    Source: run_race.py of the released code.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length=512,
        truncate="only_first",
        pad_to_longest=False,
        max_question_length=128,
    ):
        super().__init__(tokenizer, sequence_length, truncate, pad_to_longest)
        self.max_question_length = max_question_length

    def tensors(self, x):
        return named_strings(x, ("context", "question", "options"))

    def features(self, x):
        import tensorflow as tf

        from data_pipeline.features.packing import last_tokens

        for name, rank in (("context", 1), ("question", 1), ("options", 2)):
            check_rank(x[name], name, rank)
        num_options = tf.shape(x["options"])[1]
        contexts = self.tokenize(x["context"])
        rows = tf.repeat(tf.range(contexts.nrows()), num_options)
        options = tf.reshape(x["options"], [-1])
        questions = tf.gather(x["question"], rows)
        questions = tf.strings.join([questions, options], " ")
        questions = last_tokens(
            self.tokenize(questions),
            self.max_question_length,
            self.sequence_length,
        )
        packed = self.pack(tf.gather(contexts, rows), questions)
        return unflatten(packed, num_options)

    def settings(self):
        return {
            **super().settings(),
            "max_question_length": self.max_question_length,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTokenClassifierPreprocessor(Preprocessor):
    """Features of texts that are split into words, padded on the right.

    Words are tokenized one by one. The label of a word belongs to its first
    piece; the other pieces, [SEP], [CLS] and padding have the weight 0.

    Args: see `Preprocessor`.

    Call arguments:
        x: words [B, (W)], a list of lists or a ragged tensor, or a tensor
            [B, W] with "" where there is no word. Or the words of one text.
        y: int [B, (W)], a label for each word; words of a label below 0, such
            as -100, have the weight 0.
        sample_weight: [B], or [B, (W)]; multiplied with that of the pieces.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 [B, T];
        where labels are given also `y` int32 [B, T] and `sample_weight`
        float32 [B, T].
    """

    pad_side = "right"
    string_rank = 1
    _num_symbols = 2

    def tensors(self, x):
        if isinstance(x, dict):
            return named_strings(x, ("words",))
        return named_strings({"words": x}, ("words",))

    def call(self, x, y=None, sample_weight=None):
        if y is None:
            return super().call(x, y, sample_weight)
        words = self.tensors(x)["words"]
        y = to_tensor(y)
        if sample_weight is not None:
            sample_weight = to_tensor(sample_weight)
        values = (words, y, sample_weight)
        if words.shape.rank == 1:
            return first_row(self._labelled(*add_axis(values)))
        return self._labelled(*values)

    def features(self, x):
        pieces, _ = self._pieces(x["words"])
        return self.pack(pieces)

    def first_pieces(self, x):
        """Where words begin, to read their classes off predictions.

        Args:
            x: words [B, (W)].

        Returns:
            int32 tensor [B, T], 1 on the first piece of each word.
        """
        pieces, words = self._pieces(self.tensors(x)["words"])
        width = self.pack(pieces)["token_ids"].shape[1]
        return self._align(pieces, _is_first(words), width)

    def _labelled(self, words, y, sample_weight):
        import tensorflow as tf

        words, y = _ragged(words), _ragged(y)
        pieces, numbers = self._pieces(words)
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
                weights *= tf.gather(sample_weight, pieces.value_rowids())
            else:
                sample_weight = _ragged(sample_weight).flat_values
                weights *= tf.gather(sample_weight, numbers)
        features = self.pack(pieces)
        width = tf.shape(features["token_ids"])[1]
        labels = self._align(pieces, tf.maximum(labels, 0), width)
        return features, labels, self._align(pieces, weights, width)

    def _pieces(self, words):
        """Ids [B, (T)], and the number of the word of each, int64 [N]."""
        check_rank(words, "words", 2)
        words = _ragged(words)
        ids = self.tokenize(words.flat_values)  # [all words, (pieces)]
        pieces = words.with_flat_values(ids).merge_dims(1, 2)
        return pieces, ids.value_rowids()

    def _align(self, pieces, values, width):
        """Values of all pieces [N] -> [B, T], 0 below what is no piece."""
        from data_pipeline.features.packing import align

        values = pieces.with_flat_values(values)
        return align(values[:, : self.sequence_length - 2], width)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetRankerPreprocessor(Preprocessor):
    """Features of queries and their documents, a sequence for each document.

    A sequence is the query, then the document, padded on the left.

    Args: see `Preprocessor`.

    Call arguments:
        x: dict of strings "query" [B] and "documents" [B, O], or [B, (O)]
            where queries have different numbers of documents.
        y: [B, O] or [B, (O)], how well each document answers its query, or
            None.
        sample_weight: [B], returned as it is.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32
        [B, O, T], and `document_mask`, int32 [B, O], 0 for what only fills up
        the rows; and `y` float32 [B, O] and `sample_weight` where given.
    """

    def tensors(self, x):
        return named_strings(x, ("query", "documents"))

    def call(self, x, y=None, sample_weight=None):
        if y is not None:
            import tensorflow as tf

            y = tf.cast(to_tensor(y), "float32")
            y = y.to_tensor() if isinstance(y, tf.RaggedTensor) else y
        return super().call(x, y, sample_weight)

    def features(self, x):
        import tensorflow as tf

        check_rank(x["query"], "query", 1)
        check_rank(x["documents"], "documents", 2)
        documents = x["documents"]
        if isinstance(documents, tf.RaggedTensor):
            document_mask = tf.ones_like(documents, tf.int32).to_tensor()
            documents = documents.to_tensor("")
        else:
            document_mask = tf.ones_like(documents, tf.int32)
        num_documents = tf.shape(documents)[1]
        queries = self.tokenize(x["query"])
        rows = tf.repeat(tf.range(queries.nrows()), num_documents)
        packed = self.pack(
            tf.gather(queries, rows),
            self.tokenize(tf.reshape(documents, [-1])),
        )
        features = unflatten(packed, num_documents)
        return {**features, "document_mask": document_mask}


def _is_first(numbers):
    """Where the next word begins among pieces; int64 [N] -> bool [N]."""
    import tensorflow as tf

    before = tf.concat([[-1], numbers[:-1]], 0)
    return numbers != before


def _ragged(tensor):
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tensor
    return tf.RaggedTensor.from_tensor(tensor)


def unflatten(features, num_options):
    """Features [B * O, T] -> [B, O, T]."""
    import tensorflow as tf

    return {
        # Not -1 for the rows, which is not known where there are none.
        name: tf.reshape(
            value,
            [
                tf.shape(value)[0] // tf.maximum(num_options, 1),
                num_options,
                value.shape[1] or tf.shape(value)[1],
            ],
        )
        for name, value in features.items()
    }


def _is_list_of_batches(x):
    return isinstance(x, list) and any(
        isinstance(part, (list, tuple)) or len(getattr(part, "shape", ()))
        for part in x
    )
