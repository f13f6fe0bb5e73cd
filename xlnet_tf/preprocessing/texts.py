"""Preprocessor of texts and pairs of texts.

Shapes: B batch, T tokens, R rows, which are texts or windows of texts.
"""

from collections.abc import Sequence

import keras
import numpy as np

from data_pipeline.base.limits import shown
from data_pipeline.tasks.labels import check_known
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.strings import check_rank
from xlnet_tf.preprocessing.strings import named_strings
from xlnet_tf.preprocessing.strings import of_examples


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextClassifierPreprocessor(Preprocessor):
    """Preprocessor of texts, or of pairs of texts.

    Padding is on the left; in BERT's layout on the right.

    Args: see `Preprocessor`.

    Call arguments:
        x: strings [B]. For pairs, a tuple or list of two batches [B], the first
            texts and the second texts; or a dict of "text" and "text_pair". A
            single example is one string, or a tuple of two strings.
        y, sample_weight: returned unchanged.

    Returns:
        dict of `token_ids`, `segment_ids` and `padding_mask`, int32 [B, T]. If
        `y` or `sample_weight` is given, it follows the dict in a tuple.

    Example:

    ```python
    from data_pipeline.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["a fine film", "dull"], "spiece.model", 27)
    preprocessor = xlnet_tf.XLNetTextClassifierPreprocessor(tokenizer, 16)
    features = preprocessor(["a fine film", "dull"])  # token_ids [2, 16]
    features, labels = preprocessor(["a fine film"], [1])
    ```
    """

    _num_symbols = 2

    def tensors(self, x):
        if isinstance(x, dict):
            return named_strings(x, ("text",), ("text_pair",))
        if _is_list_of_pairs(x):
            raise ValueError(
                "`x` is a list of pairs. Give two batches of texts: (texts, "
                f"text_pairs). Received: {shown(x[0], 80)} first."
            )
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

    def encode(
        self,
        examples: list,
        labels: Sequence[str] | None = None,
        training: bool = False,
        progress: bool = False,
        stride: int | None = None,
    ):
        """Encode texts or pairs of texts; see `Preprocessor.encode`.

        Args:
            examples: list of TextExample.
            labels: sequence of str, names of the classes. None: labels are
                numbers.
            training, progress: see `Preprocessor.encode`.
            stride: int. A long text becomes several rows: windows whose starts
                are `stride` tokens apart. Default None: a long text is
                truncated at the end.

        Returns:
            EncodedExamples with three arrays. `label` is int32 [R] for classes
            (-1 = the example is unlabelled), float32 [R] for numbers (NaN =
            unlabelled), or float32 [R, C] for multi-label classification with C
            classes. `example` (int32 [R]) is the index of each row's example.
            `row_weight` (float32 [R]) is 1 / number of the example's rows.

        Raises:
            ValueError: if a label is not in `labels` or, without `labels`, is
                not a number. Also if `stride` is out of range, or is given for
                pairs.
        """
        from data_pipeline.features.batches import EncodedExamples
        from data_pipeline.features.batches import encode_in_chunks

        label = _labels(examples, labels)
        self._check_stride(examples, stride)
        columns = encode_in_chunks(
            examples, lambda some: self._columns(some, stride), progress
        )
        windows = columns.pop("windows")
        example = np.repeat(np.arange(len(examples)), windows)
        lengths = columns["token_ids"].row_lengths().numpy()
        full = int(np.sum(lengths == self.sequence_length))
        notes = []
        if training and stride is None and full:
            notes.append(
                f"cut       {full:,} of {len(examples):,} texts fill "
                f"{self.sequence_length:,} tokens, and what is beyond is not "
                "read; see --sequence-length and --long-documents"
            )
        return EncodedExamples(
            columns,
            {
                "label": label[example],
                "example": example.astype(np.int32),
                "row_weight": (1 / windows[example]).astype(np.float32),
            },
            self.fillers,
            self.pad_side,
            notes=notes,
        )

    def _columns(self, examples, stride):
        """Encode examples as a dict of columns.

        The column `windows` has the number of rows of each example.
        """
        import tensorflow as tf

        from data_pipeline.features.packing import unpack
        from data_pipeline.features.windows import windows_of_texts

        windows = np.ones(len(examples), np.int64)
        texts = of_examples([one.text for one in examples])
        if stride is not None:
            ids, rows = windows_of_texts(
                self.tokenize(texts), self.sequence_length - 2, stride
            )
            windows = np.bincount(rows, minlength=len(examples))
            return {**unpack(self.pack(ids)), "windows": windows}
        has_pair = np.array([x.text_pair is not None for x in examples])
        pairs = of_examples([one.text_pair or "" for one in examples])
        # A single text has one [SEP], but a text paired with "" has two.
        parts = []
        for places in (np.flatnonzero(~has_pair), np.flatnonzero(has_pair)):
            if len(places):
                x = {"text": tf.gather(texts, places)}
                if has_pair[places[0]]:
                    x["text_pair"] = tf.gather(pairs, places)
                parts.append(unpack(self.features(x)))
        order = np.argsort(np.argsort(has_pair, kind="stable"))
        return {
            name: tf.gather(tf.concat([x[name] for x in parts], 0), order)
            for name in parts[0]
        } | {"windows": windows}

    def _check_stride(self, examples, stride):
        if stride is None:
            return
        if any(one.text_pair is not None for one in examples):
            raise ValueError(
                "windows are for single texts, and the examples are pairs. "
                "Leave the windows out."
            )
        room = self.sequence_length - 2
        if not 0 < stride <= room:
            raise ValueError(
                f"`stride` must lie between 1 and {room}, the tokens of a "
                f"window. Received: stride={stride}."
            )


def _labels(examples, labels):
    """Convert labels: int32 array if each text has one class, else float32."""
    if labels is None:
        return np.array(
            [np.nan if x.label is None else float(x.label) for x in examples],
            np.float32,
        )
    if any(isinstance(x.label, tuple) for x in examples):
        return _several_labels(examples, labels)
    check_known("classification", examples, labels)
    known = {label: index for index, label in enumerate(labels)}
    return np.array(
        [-1 if x.label is None else known[str(x.label)] for x in examples],
        np.int32,
    )


def _several_labels(examples, labels):
    """Make the array of multi-label targets, float32 [examples, classes].

    1 = the example has the class, 0 = it does not, -1 = it is unlabelled.
    """
    check_known("multi_label", examples, labels)
    known = {label: index for index, label in enumerate(labels)}
    flags = np.zeros((len(examples), len(labels)), np.float32)
    for row, example in enumerate(examples):
        if example.label is None:
            flags[row] = -1
            continue
        for label in example.label:
            flags[row, known[label]] = 1
    return flags


def _is_list_of_pairs(x):
    """Whether `x` is a list of pairs, as for Hugging Face's tokenizers.

    Without this check, a list of two pairs would be read as two batches of two
    texts.
    """
    is_list = isinstance(x, list) and len(x) > 0
    return is_list and all(
        isinstance(part, tuple)
        and len(part) == 2
        and all(isinstance(text, (str, bytes)) for text in part)
        for part in x
    )


def _is_list_of_batches(x):
    return isinstance(x, list) and any(
        isinstance(part, (list, tuple)) or len(getattr(part, "shape", ()))
        for part in x
    )
