"""Preprocessors of questions with options, and of queries with documents.

Shapes: B batch, O options of a question or documents of a query, T tokens,
R rows of O sequences, N texts. Axes in parentheses are ragged.
"""

from typing import Any

import keras
import numpy as np

from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.strings import check_rank
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples
from xlnet_tf.preprocessing.strings import to_tensor


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetMultipleChoicePreprocessor(Preprocessor):
    """Preprocessor of questions with options: one sequence for each option.

    A sequence is the context, then the question and the option. The option
    replaces each `_` in the question, or follows a question without `_`. A long
    context is truncated at the end. A question with its option is truncated at
    the beginning if both together have more than `max_question_length` tokens
    or do not fit into the sequence.

    Args:
        max_question_length: int, maximum number of tokens of a question with
            its option. Default 128.
        fill_blanks: bool, whether an option replaces each `_` in its question.
            If False, the option always follows the question. Default True.
        Other arguments: see `Preprocessor`.

    Call arguments:
        x: dict of "context" [B], "question" [B] and "options" [B, O], strings.
        y, sample_weight: returned unchanged.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 [B, O, T].
        If `y` or `sample_weight` is given, it follows the dict in a tuple.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 27)
    preprocessor = xlnet_tf.XLNetMultipleChoicePreprocessor(tokenizer, 16)
    x = {"context": ["who sat"], "question": ["on"], "options": [["a", "mat"]]}
    features = preprocessor(x)  # token_ids [1, 2, 16]
    ```

    Source: run_race.py of the released code.
    """

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 512,
        truncate: str = "only_first",
        pad_to_longest: bool = False,
        max_question_length: int = 128,
        fill_blanks: bool = True,
        layout: str = "xlnet",
    ):
        super().__init__(
            tokenizer, sequence_length, truncate, pad_to_longest, layout
        )
        self.max_question_length = max_question_length
        self.fill_blanks = fill_blanks

    def tensors(self, x):
        x = named_strings(x, ("context", "question", "options"))
        if hasattr(x["options"], "row_splits"):
            raise ValueError(
                "`options` must have equally many options for each question. "
                "Fill up the others with an option that cannot be right, or "
                "make batches of questions with equally many."
            )
        return x

    def features(self, x):
        import tensorflow as tf

        from data_pipeline.features.packing import last_tokens

        for name, rank in (("context", 1), ("question", 1), ("options", 2)):
            check_rank(x[name], name, rank)
        num_options = tf.shape(x["options"])[1]
        contexts = self.tokenize(x["context"])
        rows = tf.repeat(tf.range(tf.size(x["context"])), num_options)
        options = tf.reshape(x["options"], [-1])
        questions = tf.gather(x["question"], rows)
        with_options = tf.strings.join([questions, options], " ")
        if self.fill_blanks:
            with_options = tf.where(
                tf.strings.regex_full_match(questions, r"(?s).*_.*"),
                _fill_blanks(questions, options),
                with_options,
            )
        questions = last_tokens(
            self.tokenize(with_options),
            self.max_question_length,
            self.sequence_length,
        )
        packed = self.pack(_repeated(self, contexts, rows), questions)
        return _unflatten(packed, num_options)

    def encode(
        self,
        examples: list,
        labels: object = None,
        training: bool = False,
        progress: bool = False,
    ):
        """Encode questions with options; see `Preprocessor.encode`.

        Args:
            examples: list of ChoiceExample with equally many options.
            labels: not used.
            training, progress: see `Preprocessor.encode`.

        Returns:
            EncodedExamples with `label` (int32 [R], index of the right option,
            -1 if unknown). Each row is a question with its O options.

        Raises:
            ValueError: if the examples have different numbers of options.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks
        from data_pipeline.features.packing import unpack

        def columns(some):
            x = {
                "context": of_examples([one.context for one in some]),
                "question": of_examples([one.question for one in some]),
                "options": of_examples(
                    [option for one in some for option in one.options],
                    [len(some), -1],
                ),
            }
            return unpack(self.features(x))

        _check_options(examples)
        return EncodedExamples(
            encode_in_chunks(examples, columns, progress),
            {
                "label": np.array(
                    [-1 if x.answer is None else x.answer for x in examples],
                    np.int32,
                ),
                "row_weight": np.ones(len(examples), np.float32),
            },
            self.fillers,
            self.pad_side,
            options=len(examples[0].options),
        )

    def settings(self):
        return {
            **super().settings(),
            "max_question_length": self.max_question_length,
            "fill_blanks": self.fill_blanks,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetRankerPreprocessor(Preprocessor):
    """Preprocessor of queries with documents: one sequence per document.

    A sequence is the query, then the document.

    Args: see `Preprocessor`.

    Call arguments:
        x: dict of strings "query" [B] and "documents" [B, O]. If queries have
            different numbers of documents, "documents" is ragged [B, (O)].
        y: [B, O] or ragged [B, (O)], the relevance of each document, or None.
        sample_weight: [B], returned unchanged.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask` (int32 [B, O, T])
        and `document_mask` (int32 [B, O], 1 = a document, 0 = filler). If `y`
        or `sample_weight` is given, it follows the dict in a tuple. The
        returned `y` is float32 [B, O].

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["who sat on a mat"], "spiece.model", 27)
    preprocessor = xlnet_tf.XLNetRankerPreprocessor(tokenizer, 16)
    x = {"query": ["who sat", "a mat"], "documents": [["a", "on"], ["who"]]}
    features, relevance = preprocessor(x, [[0, 1], [1]])
    ```
    """

    def tensors(self, x):
        return named_strings(x, ("query", "documents"))

    def call(self, x, y=None, sample_weight=None):
        if y is not None:
            import tensorflow as tf

            x, y = self.tensors(x), tf.cast(to_tensor(y), "float32")
            if len(y.shape) > 1:
                tf.debugging.assert_equal(
                    _row_lengths(y),
                    _row_lengths(x["documents"]),
                    "`y` must have one relevance for each document of `x`.",
                )
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
        rows = tf.repeat(tf.range(tf.size(x["query"])), num_documents)
        packed = self.pack(
            _repeated(self, queries, rows),
            self.tokenize(tf.reshape(documents, [-1])),
        )
        features = _unflatten(packed, num_documents)
        return {**features, "document_mask": document_mask}

    def encode(
        self,
        examples: list,
        labels: object = None,
        training: bool = False,
        progress: bool = False,
        num_documents: int = 8,
    ):
        """Encode queries with documents; see `Preprocessor.encode`.

        Each row has one query and O documents. If a query has more than
        `num_documents` documents, the documents are divided among several rows,
        so that as many rows as possible have a relevant document. If a row has
        fewer than `num_documents` documents, copies of the row's first document
        fill up the row. The copies have the `document_mask` 0.

        Args:
            examples: list of RankingExample.
            labels: not used.
            training, progress: see `Preprocessor.encode`.
            num_documents: int, O, number of documents per row. Default 8.

        Returns:
            EncodedExamples with three arrays [R, O]. `label` (float32) is the
            relevance of each document, 0 if unknown. `document_mask` (int32) is
            1 for a document and 0 for filler. `example` (int32) is the index of
            each document's example.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks
        from data_pipeline.features.packing import unpack

        def columns(some):
            documents = of_examples([x.document for x in some], [-1, 1])
            query = of_examples([x.query for x in some])
            return unpack(
                self.features({"query": query, "documents": documents})
            )

        groups = _rows_of_queries(examples, num_documents)
        chosen = np.array(
            [g + [g[0]] * (num_documents - len(g)) for g in groups], np.int32
        )
        mask = np.arange(num_documents) < np.array([[len(g)] for g in groups])
        relevance = np.array([x.relevance or 0 for x in examples], np.float32)
        flat = [examples[index] for index in chosen.ravel()]
        return EncodedExamples(
            encode_in_chunks(flat, columns, progress),
            {
                "label": np.where(mask, relevance[chosen], 0).astype(
                    np.float32
                ),
                "document_mask": mask.astype(np.int32),
                "example": chosen,
                "row_weight": np.ones(len(groups), np.float32),
            },
            self.fillers,
            self.pad_side,
            options=num_documents,
        )


def _repeated(preprocessor, ids, rows):
    """Truncate the ids of N texts, and gather the ids for each sequence.

    `ids` is ragged [N, (T)]. `rows` has the index of each sequence's text.
    """
    import tensorflow as tf

    from data_pipeline.features.packing import checked_size

    ids = ids[:, : preprocessor.sequence_length]
    rows = checked_size(
        rows,
        preprocessor.check_size,
        tf.size(rows, tf.int64),
        ids.bounding_shape(axis=1),
    )
    return tf.gather(ids, rows)


def _fill_blanks(questions, options):
    """Replace each `_` in N questions by the option of the question."""
    import tensorflow as tf

    from data_pipeline.tokenization.ragged import row_ids

    parts = tf.strings.split(questions, "_")
    rows = row_ids(parts)
    options = tf.gather(options, rows)
    is_first = tf.gather(parts.row_starts(), rows) == tf.range(
        parts.row_splits[-1]
    )
    filled = tf.strings.join([tf.where(is_first, "", options), parts.values])
    return tf.strings.reduce_join(parts.with_values(filled), axis=1)


def _row_lengths(tensor):
    """Count the values in each row of a tensor [B, O] or ragged [B, (O)]."""
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tensor.row_lengths()
    shape = tf.shape(tensor, tf.int64)
    return tf.repeat(shape[1], shape[0])


def _check_options(examples):
    for example in examples:
        options = len(examples[0].options)
        if len(example.options) != options:
            raise ValueError(
                f"{example.where}: {len(example.options)} options, where the "
                f"first example has {options}; all must have equally many."
            )


def _rows_of_queries(examples, num_documents):
    """Divide each query's examples into rows.

    A row is a list of the indices of at most `num_documents` examples.
    """
    queries = {}
    for index, example in enumerate(examples):
        queries.setdefault(example.query_id, []).append(index)
    groups = []
    for indices in queries.values():
        rows = -(-len(indices) // num_documents)
        ranked = sorted(indices, key=lambda i: -(examples[i].relevance or 0))
        groups += [ranked[row::rows] for row in range(rows)]
    return groups


def _unflatten(features, num_options):
    """Reshape features [B * O, T] to [B, O, T]."""
    import tensorflow as tf

    return {
        # The number of rows must not be -1, because an empty batch does not
        # determine it.
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
