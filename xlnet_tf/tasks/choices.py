"""Tasks with O sequences per row: options of a question, documents of a query.

Shapes: B rows, O options or documents, T tokens.
"""

import keras
import numpy as np
from keras import ops

from xlnet_tf.model.inputs import as_features
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.class_labels import are_rows
from xlnet_tf.tasks.class_labels import class_numbers
from xlnet_tf.tasks.class_labels import finite_numbers
from xlnet_tf.tasks.kind import TaskKind
from xlnet_tf.tasks.losses import ListwiseLoss
from xlnet_tf.tasks.losses import class_loss
from xlnet_tf.tasks.losses import class_metrics
from xlnet_tf.tasks.losses import reciprocal_rank
from xlnet_tf.tasks.sequence_task import SequenceTask

_FILLER = -1e30


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetMultipleChoice(SequenceTask):
    """Model for multiple choice (RACE): one logit per option of a question.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int, number of tokens of a segment. The memories contain
            earlier segments, so the backbone needs `memory_length`. Default
            None: the whole sequence is one segment.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict of `token_ids` int32 [B, O, T], and optionally
            `segment_ids` and `padding_mask` of the same shape.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, O], one logit per option.

    Raises:
        ValueError: if `token_ids` do not have the shape [B, O, T]; see also
            `XLNetTextRegressor`.

    Source: `get_race_loss` of the released code.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetMultipleChoice(backbone)
    ids = np.array([[[17, 21, 4, 35, 4, 3], [17, 21, 4, 48, 4, 3]]])
    logits = task({"token_ids": ids})  # [1, 2]
    ```
    """

    preprocessor_cls: type[Preprocessor] | None = (
        XLNetMultipleChoicePreprocessor
    )
    takes_class_weight = False  # an option's index is not a class

    def __init__(self, backbone: keras.Model, **kwargs):
        super().__init__(backbone, 1, **kwargs)

    def input_signature(self):
        return {
            name: keras.InputSpec(shape=(None, None, None), dtype="int32")
            for name in super().input_signature()
        }

    def call(self, features, training=None):
        features = as_features(features)
        shape = features["token_ids"].shape
        if len(shape) != 3:
            raise ValueError(
                "`token_ids` must have the shape [B, O, T]. Received: "
                f"shape={tuple(shape)}."
            )
        options = ops.shape(features["token_ids"])[1]
        flat = {
            name: value
            if value is None or name == "dropout_seed"
            else ops.reshape(value, [-1, *ops.shape(value)[2:]])
            for name, value in features.items()
        }
        return ops.reshape(super().call(flat, training), [-1, options])

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    def numbered(self, y, x=None):
        options = _num_options(x)
        if options is None:
            return y
        return class_numbers(y, None, options, "options")

    def label_range(self, data):
        spec = data.element_spec
        options = _num_options(spec[0] if isinstance(spec, tuple) else spec)
        if options is None:
            return None
        return 0, options - 1, f"options from 0 to {options - 1}"


class MultipleChoice(TaskKind):
    """Kind of task: choose the right option of a question."""

    name = "multiple_choice"
    model_class = XLNetMultipleChoice
    metric_names = ("accuracy",)

    @classmethod
    def preprocessor_settings(cls, spec, settings):
        values = super().preprocessor_settings(spec, settings)
        return {**values, "fill_blanks": settings.fill_blanks}

    def decode(self, collected, encoded, examples):
        """Dicts with `id`, `answer` (int), `option` (str), `probabilities`."""
        rows = metrics.probabilities(collected["logits"])
        return [
            {
                "id": example.id,
                "answer": int(np.argmax(row)),
                "option": example.options[int(np.argmax(row))],
                "probabilities": row.tolist(),
            }
            for example, row in zip(examples, rows, strict=True)
        ]

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """Compute metrics; see `TaskKind`.

        If examples have a `group`, such as "high" in RACE, the first metric is
        also computed for each group.
        """
        metrics.check_numbers([max(x["probabilities"]) for x in decoded])
        groups = [x.group for x in examples]
        return metrics.evaluate(
            cls,
            spec.metrics,
            np.array([x.answer for x in examples]),
            np.array([one["answer"] for one in decoded]),
            groups=groups if any(groups) else None,
        )


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetRanker(XLNetMultipleChoice):
    """Model for ranking: one score per document of a query.

    The default loss is `ListwiseLoss`. The labels are the documents' relevance
    [B, O]. The relevance is 0 for irrelevant documents and for filler (see
    `document_mask`).

    Args:
        backbone: XLNetBackbone or BertBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: see `XLNetMultipleChoice`.
        preprocessor: XLNetRankerPreprocessor, or None.

    Call arguments:
        features: dict of `token_ids` int32 [B, O, T], and optionally
            `segment_ids` and `padding_mask` of the same shape. Optional
            `document_mask` [B, O]: 1 = a document, 0 = filler for a query with
            fewer than O documents.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, O]: scores of the documents, -1e30 for
        filler.

    Raises:
        ValueError: see `XLNetMultipleChoice`.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetRanker(backbone)
    ids = np.array([[[17, 21, 4, 35, 4, 3], [17, 21, 4, 48, 4, 3]]])
    scores = task({"token_ids": ids})  # [1, 2]
    ```
    """

    preprocessor_cls = XLNetRankerPreprocessor
    has_ragged_outputs = True

    def input_signature(self):
        mask = keras.InputSpec(shape=(None, None), dtype="int32")
        return {**super().input_signature(), "document_mask": mask}

    def call(self, features, training=None):
        features = as_features(features)
        document_mask = features.pop("document_mask", None)
        scores = super().call(features, training=training)
        if document_mask is None:
            return scores
        return ops.where(ops.cast(document_mask, "bool"), scores, _FILLER)

    def predict(self, x, batch_size=None, *args, **kwargs):
        """Compute scores as `keras.Model.predict` does; see `Task`.

        Returns:
            float32 array [N, O]: scores of N queries, -1e30 after the last
            document of a query.
        """
        scores = super().predict(x, batch_size, *args, **kwargs)
        # With TensorFlow, Keras returns batches of different widths as ragged
        # rows.
        is_ragged = hasattr(scores, "to_tensor")
        return scores.to_tensor(_FILLER).numpy() if is_ragged else scores

    def numbered(self, y, x=None):
        if are_rows(y) and hasattr(y, "__iter__"):
            for place, row in enumerate(y):
                finite_numbers(row, 0, f"query {place}, document")
        return y

    def label_range(self, data):
        if not isinstance(self.loss, ListwiseLoss):
            return None  # a custom loss may accept other labels
        most = float(np.finfo("float32").max)
        return 0, most, "finite numbers of at least 0", True

    def default_loss(self):
        return ListwiseLoss()

    def default_metrics(self):
        return [
            keras.metrics.MeanMetricWrapper(
                reciprocal_rank, name="reciprocal_rank"
            )
        ]


class Ranking(TaskKind):
    """Kind of task: rank the documents of a query, best first."""

    name = "ranking"
    model_class = XLNetRanker
    feature_names = (*TaskKind.feature_names, "document_mask")
    metric_names = ("ndcg",)

    @classmethod
    def encoding_arguments(cls, spec, settings):
        return {"num_documents": settings.num_documents}

    def decode(self, collected, encoded, examples):
        """Dicts with `query_id`, `document_id` and `score`."""
        scores = np.zeros(len(examples), np.float64)
        is_real = encoded.dense["document_mask"] > 0
        place = encoded.dense["example"][is_real]
        scores[place] = collected["logits"][is_real]
        return [
            {
                "query_id": example.query_id,
                "document_id": example.document_id,
                "score": float(score),
            }
            for example, score in zip(examples, scores, strict=True)
        ]

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """Compute metrics as means over the queries; see `TaskKind`."""
        scores = np.array([one["score"] for one in decoded])
        metrics.check_numbers(scores)
        relevance = np.array([x.relevance or 0 for x in examples])
        rows = {}
        for row, example in enumerate(examples):
            rows.setdefault(example.query_id, []).append(row)
        queries = rows.values()
        return metrics.evaluate(
            cls,
            spec.metrics,
            [relevance[query] for query in queries],
            [scores[query] for query in queries],
        )


def _num_options(x):
    """Number of options per question in the input, or None if unknown."""
    if not isinstance(x, dict):
        return None
    part = x.get("token_ids", x.get("options"))
    if hasattr(part, "shape"):
        shape = part.shape
        rank = shape.rank if hasattr(shape, "rank") else len(shape)
        return shape[1] if rank is not None and rank > 1 else None
    counts = {len(row) for row in part or () if isinstance(row, (list, tuple))}
    return counts.pop() if len(counts) == 1 else None
