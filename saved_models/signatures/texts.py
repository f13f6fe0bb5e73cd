"""Signatures of classifiers and regressors of texts and pairs of texts.

Shapes: N texts, T tokens, C classes.
"""

import tensorflow as tf

from data_pipeline.features.windows import windows_of_texts
from saved_models.signatures.base import TaskSignatures
from saved_models.signatures.checks import same_rows
from saved_models.signatures.signature import Signature
from saved_models.signatures.signature import id_specs
from saved_models.signatures.signature import string_specs

_MEANING = {
    "text": "string [N], UTF-8",
    "text_pair": "string [N], UTF-8, the second text of each pair",
    "label": "string [N], the likeliest class",
    "labels": "string [N, C], all classes, the same in each row",
    "scores": "float32 [N, C], probabilities of the classes",
    "chosen": "bool [N, C], whether the text has the class",
    "logits": "float32 [N, C]",
    "score": "float32 [N]",
}
_CUT = "long texts are truncated at the end"
_AVERAGED = "long texts are read in windows, and outputs averaged"


class _TextSignatures(TaskSignatures):
    """Base class of the signatures `serving_default`, `pairs` and `ids`."""

    answers: str | None = None  # noun for the summaries
    reads_windows = True

    def signatures(self):
        long = _AVERAGED if self._settings.window_stride else _CUT
        text = {"text": "The acting was good."}
        pair = {"text": "It rains.", "text_pair": "The street is wet."}
        meaning = _MEANING | self._id_meaning(
            pad_side=self._preprocessor.pad_side,
            first="a text and its [SEP]",
            second="the second text of a pair",
        )
        return {
            "serving_default": Signature(
                self.texts,
                string_specs(text=1),
                f"{self.answers} of each text; {long}.",
                meaning,
                self._examples(text, "text", 2),
            ),
            "pairs": Signature(
                self.pairs,
                string_specs(text=1, text_pair=1),
                f"{self.answers} of each pair of texts; {_CUT}.",
                meaning,
                self._examples(pair, "text", 3),
            ),
            "ids": Signature(
                self.ids,
                id_specs(),
                f"{self.answers} of ready ids, padded on the "
                f"{self._preprocessor.pad_side}.",
                meaning,
                self._example_ids(),
            ),
        }

    def texts(self, text):
        """Compute the answers for texts; `text` is string [N]."""
        stride = self._settings.window_stride
        if not stride:
            features = self._preprocessor.features({"text": text})
            return self._answer(self._outputs(features))
        windows, rows = windows_of_texts(
            self._tokenizer(text),
            self._settings.sequence_length - 2,
            stride,
            self._check_windows,
        )
        features = self._preprocessor.pack(
            windows, check_size=self._check_windows
        )
        outputs = self._outputs(features, are_windows=True)
        return self._answer(
            tf.math.unsorted_segment_mean(outputs, rows, tf.size(text))
        )

    def pairs(self, text, text_pair):
        """Compute the answers for pairs of texts; each input is string [N]."""
        text, text_pair = same_rows(text=text, text_pair=text_pair)
        x = {"text": text, "text_pair": text_pair}
        return self._answer(self._outputs(self._preprocessor.features(x)))

    def ids(self, token_ids, segment_ids, padding_mask):
        """Compute the answers for token ids; each input is int32 [N, T]."""
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        return self._of_ids(self._outputs(self._checked(features)))

    def _answer(self, outputs):
        """Make the dict of the signature's outputs from the model's outputs."""
        raise NotImplementedError

    def _of_ids(self, outputs):
        return self._answer(outputs)


class ClassifierSignatures(_TextSignatures):
    """Signatures of text classification.

    Args:
        model: XLNetTextClassifier.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    answers = "The class"

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        self._labels = label_names(model)

    def _answer(self, outputs):
        best = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        rows = tf.shape(outputs)[0]
        return {
            "label": tf.gather(self._labels, best),
            "labels": tf.tile(self._labels[None], [rows, 1]),
            "scores": tf.nn.softmax(outputs),
        }

    def _of_ids(self, outputs):
        return {**self._answer(outputs), "logits": outputs}


class MultiLabelSignatures(ClassifierSignatures):
    """Signatures of multi-label classification.

    Args:
        model: XLNetMultiLabelClassifier.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    answers = "The classes"

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        self._threshold = model.threshold

    def _answer(self, outputs):
        scores = tf.sigmoid(outputs)
        return {
            "labels": tf.tile(self._labels[None], [tf.shape(outputs)[0], 1]),
            "scores": scores,
            "chosen": scores >= self._threshold,
        }


class RegressorSignatures(_TextSignatures):
    """Signatures of text regression.

    Args:
        model: XLNetTextRegressor.
        tokenizer: data_pipeline Tokenizer.
        settings: ExportSettings.
    """

    answers = "The score"
    output = "score"

    def _answer(self, outputs):
        return {"score": outputs}


def label_names(model):
    """Names of a model's classes, string [C]; unnamed classes get numbers."""
    labels = model.labels or map(str, range(model.num_classes))
    with tf.device("CPU:0"):  # GPUs cannot store strings
        return tf.constant(list(labels))
