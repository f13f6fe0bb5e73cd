"""Losses and default metrics of tasks.

All losses are weighted means. Rows of weight 0, such as the padding rows of a
last batch, do not count. In a fine-tuning run, `TaskKind.loss_sums` adds up the
weighted losses and the weights.

Shapes: B batch, T tokens, P targets, V vocabulary, C classes, O documents of a
query.
"""

import inspect

import keras
from keras import ops

_MEAN = "mean_with_sample_weight"
_FILLER = -1e29  # scores of fillers are below this
# Keras functions that accept only probabilities.
_OF_PROBABILITIES = (
    "kl_divergence",
    "dice",
    "tversky",
    "categorical_generalized_cross_entropy",
)


def class_loss():
    """Make the cross-entropy loss of integer classes and logits [..., C]."""
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=_MEAN
    )


def refuse_of_probabilities(loss, model):
    """Refuse a loss that needs probabilities, because models return logits.

    Args:
        loss: see `keras.Model.compile`.
        model: Task; its outputs are logits.

    Raises:
        ValueError: if the loss needs probabilities.
    """
    for one in keras.tree.flatten(loss):
        found = one
        if isinstance(one, str):
            try:
                found = keras.losses.get(one)
            except ValueError:  # Keras' `compile` raises this error
                continue
        function = getattr(found, "fn", found)
        name = getattr(function, "__name__", "")
        of_logits = getattr(found, "from_logits", None)
        if inspect.isfunction(found):
            parameters = inspect.signature(found).parameters
            if "from_logits" in parameters:
                of_logits = parameters["from_logits"].default
        if of_logits is not False and name not in _OF_PROBABILITIES:
            continue
        of_keras, advice = name.title().replace("_", ""), ""
        if of_logits is False and hasattr(keras.losses, of_keras):
            advice = f", or give keras.losses.{of_keras}(from_logits=True)"
        received = repr(one) if isinstance(one, str) else name or one
        raise ValueError(
            f"`loss` must take logits, the outputs of {type(model).__name__}; "
            f"this loss takes probabilities. Leave it out{advice}. Received: "
            f"loss={received}."
        )


def class_metrics():
    """Make the default metrics of classification: a list with the accuracy."""
    return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


@keras.saving.register_keras_serializable(package="xlnet_tf")
class SmoothedLoss(keras.losses.Loss):
    """Cross-entropy of tokens with label smoothing.

    For smoothing, Keras' loss needs one-hot labels [B, P, V]; this loss reads
    integers.

    Args:
        smoothing: float, the share of the target probability that is spread
            evenly over all tokens. Default 0.1.

    Call arguments:
        y_true: int [B, P].
        y_pred: float [B, P, V], logits.

    Source: section 7 of https://arxiv.org/abs/1512.00567.
    """

    def __init__(
        self, smoothing=0.1, reduction=_MEAN, name="smoothed_loss", **kwargs
    ):
        super().__init__(reduction=reduction, name=name, **kwargs)
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        logits = ops.cast(y_pred, "float32")
        total = ops.logsumexp(logits, axis=-1)
        target = ops.take_along_axis(
            logits, ops.cast(y_true, "int32")[..., None], axis=-1
        )[..., 0]
        mean = ops.mean(logits, axis=-1)
        share = self.smoothing
        return total - (1 - share) * target - share * mean

    def get_config(self):
        return {**super().get_config(), "smoothing": self.smoothing}


@keras.saving.register_keras_serializable(package="xlnet_tf")
class SquaredError(keras.losses.Loss):
    """Squared error (y - prediction)^2, one value per row.

    `keras.losses.MeanSquaredError` would average outputs [B] over the rows, and
    so ignore the weights of rows.

    Call arguments:
        y_true: [B] or [B, 1].
        y_pred: [B].

    Source: `regression_loss` of the released code.
    """

    def __init__(self, reduction=_MEAN, name="squared_error", **kwargs):
        super().__init__(reduction=reduction, name=name, **kwargs)

    def call(self, y_true, y_pred):
        return ops.square(ops.reshape(y_true, ops.shape(y_pred)) - y_pred)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class ListwiseLoss(keras.losses.Loss):
    """ListNet's top-one loss: cross-entropy over the documents of a query.

    The target probability of a document is its relevance, divided by the total
    relevance of the query's documents. A query without a relevant document has
    a loss of 0.

    Call arguments:
        y_true: [B, O], relevance, at least 0.
        y_pred: [B, O], scores, -1e30 for filler (see `XLNetRanker`). The
            relevance of filler is ignored.

    Source: equation 4 of Cao et al., "Learning to rank: from pairwise
        approach to listwise approach", with probabilities proportional to
        relevance.
    """

    def __init__(self, reduction=_MEAN, name="listwise_loss", **kwargs):
        super().__init__(reduction=reduction, name=name, **kwargs)

    def call(self, y_true, y_pred):
        y_true = ops.where(y_pred > _FILLER, y_true, 0.0)
        total = ops.sum(y_true, axis=-1, keepdims=True)
        goal = y_true / ops.where(total > 0, total, 1.0)
        log_share = ops.log_softmax(y_pred, axis=-1)
        return -ops.sum(ops.where(goal > 0, goal * log_share, 0.0), axis=-1)


@keras.saving.register_keras_serializable(package="xlnet_tf")
def reciprocal_rank(y_true, y_pred):
    """Reciprocal rank of the first relevant document; 0 if none is relevant.

    Args:
        y_true: [B, O], relevance, above 0 for relevant documents.
        y_pred: [B, O], scores.

    Returns:
        float tensor of shape [B]. Among documents of equal score, relevant
        documents come first.
    """
    is_relevant = ops.cast(y_true, y_pred.dtype) > 0
    best = ops.max(ops.where(is_relevant, y_pred, -1e38), -1, keepdims=True)
    before = ops.sum(ops.cast(y_pred > best, y_pred.dtype), axis=-1)
    has_relevant = ops.cast(ops.any(is_relevant, axis=-1), y_pred.dtype)
    return has_relevant / (1.0 + before)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class SpanLoss(keras.losses.Loss):
    """Loss of answer spans: mean of the cross-entropies of start and end.

    If the outputs have `class_logits`, the loss adds half the cross-entropy of
    "no answer".

    Call arguments:
        y_true: dict of `start_positions` and `end_positions` [B]. If the
            outputs have `class_logits`, the dict also has `is_impossible` [B]
            (1 = no answer).
        y_pred: dict of `start_scores` and `end_scores` [B, T], and optionally
            `class_logits` [B]. Or dict of `start_logits` and `end_logits`
            [B, T].

    Raises:
        ValueError: if labels are missing, or predictions were made without
            the feature `start_positions`.

    Source: `get_qa_outputs` and run_squad.py of the released code.
    """

    def __init__(self, reduction=_MEAN, name="span_loss", **kwargs):
        super().__init__(reduction=reduction, name=name, **kwargs)

    def __call__(self, y_true, y_pred, sample_weight=None):
        tells = "class_logits" in y_pred
        names = ("start_positions", "end_positions", "is_impossible")
        names = names if tells else names[:2]
        if not isinstance(y_true, dict) or not set(names) <= set(y_true):
            raise ValueError(
                f"labels of questions must be a dict of {', '.join(names)}, or "
                "beside strings of `answer_text` and `answer_start`. Received: "
                f"{'none' if y_true is None else _shown(y_true)}."
            )
        if not {"start_scores", "start_logits"} & set(y_pred):
            raise ValueError(
                "the loss needs scores of ends given the true start: the "
                "features must hold `start_positions` too."
            )
        if not tells:
            y_true = {name: y_true[name] for name in names}
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        kind = "scores" if "start_scores" in y_pred else "logits"
        loss = 0.0
        for edge in ("start", "end"):
            positions = ops.cast(y_true[f"{edge}_positions"], "int32")
            # Log-probabilities can be used as logits.
            loss += 0.5 * ops.sparse_categorical_crossentropy(
                positions, y_pred[f"{edge}_{kind}"], from_logits=True
            )
        if "class_logits" in y_pred:
            logits = y_pred["class_logits"]
            labels = ops.cast(y_true["is_impossible"], logits.dtype)
            # The formula log(1 + e^x) - y x, without overflow.
            loss += 0.5 * (ops.softplus(logits) - labels * logits)
        return loss


def _shown(labels):
    is_dict = isinstance(labels, dict)
    return ", ".join(labels) if is_dict else type(labels).__name__
