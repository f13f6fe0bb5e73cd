"""Base classes of the kinds of tasks, for fine-tuning, evaluation and exports.

Shapes: B rows of a batch, R rows of all batches, X examples, T tokens, C
classes, O options or documents.
"""

import numpy as np
from keras import ops

from xlnet_tf.tasks import metrics


class TaskKind:
    """Base class of the kinds of tasks, such as text classification.

    A TaskSpec of `data_pipeline` describes the data set of a fine-tuning run.
    `arguments_for` makes the arguments of the run's model.
    `preprocessor_settings` and `encoding_arguments` configure the encoding of
    examples as rows. `outputs_of` and `loss_sums` compute the outputs and the
    loss of a batch. `collect` and `decode` make the answers, as dicts for JSON,
    and `score` computes the metrics of the answers.

    Args:
        model: object of `model_class`.

    Attributes:
        name: str, the field `kind` of a TaskSpec.
        model_class: class of Task.
        feature_names: names of the model's input features in a batch. Other
            entries of the batch, such as `label`, are not for the model.
        metric_names: names of the metrics that `score` supports.
    """

    name: str
    model_class: type
    feature_names: tuple[str, ...] = (
        *("token_ids", "segment_ids", "padding_mask", "dropout_seed"),
    )
    metric_names: tuple[str, ...] = ()

    def __init__(self, model):
        self.model = model

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        """Constructor arguments of the model in a fine-tuning run.

        Args:
            spec: TaskSpec of `data_pipeline`.
            settings: FinetuningSettings.
            labels: tuple of str, the names of the classes, or None.

        Returns:
            dict without `backbone` and dropout rates. The dict may also contain
            config fields for `from_preset`, such as `memory_length`.

        Raises:
            ValueError: if this kind of task does not support the value of
                `settings.long_documents`.
        """
        if settings.long_documents != "truncate":
            raise ValueError(
                "`long_documents` needs a task with a class or a number for "
                f"each text. Received: {settings.long_documents!r} for the "
                f"task {spec.name} of the kind {spec.kind}."
            )
        return {}

    @classmethod
    def preprocessor_settings(cls, spec, settings):
        """Preprocessor settings in a fine-tuning run.

        Args:
            spec, settings: see `arguments_for`.

        Returns:
            dict of arguments of `Preprocessor.with_settings`.
        """
        length = settings.sequence_length or spec.sequence_length
        return {"sequence_length": length}

    @classmethod
    def encoding_arguments(cls, spec, settings):
        """Additional arguments of `Preprocessor.encode` in a fine-tuning run.

        Args:
            spec, settings: see `arguments_for`.

        Returns:
            dict.
        """
        return {}

    def outputs_of(self, features, training=False):
        """Compute the model's outputs for a batch.

        Args:
            features: dict of str to tensor [B, ...]. Only `feature_names` are
                read.
            training: bool, whether dropout is applied.

        Returns:
            The outputs of the model's call.
        """
        read = {k: v for k, v in features.items() if k in self.feature_names}
        return self.model(read, training=training)

    def loss_sums(self, outputs, features):
        """Sum the model's default loss over the rows of a batch.

        Args:
            outputs: result of `outputs_of`.
            features: dict of str to tensor: `label` ([B]; [B, C] for
                multi-label classification, [B, O] for ranking) and `row_weight`
                [B].

        Returns:
            (loss, weight): float32 scalars, the sum of the weighted losses and
            the sum of the weights. The caller divides the loss by the weight.
        """
        losses = self.model.default_loss().call(features["label"], outputs)
        weights = features["row_weight"]
        return ops.sum(losses * weights), ops.sum(weights)

    def collect(self, outputs):
        """Select from the outputs of a batch the tensors that `decode` needs.

        Args:
            outputs: result of `outputs_of`.

        Returns:
            dict of str to tensor [B, ...], with shapes that do not depend on T.
        """
        return {"logits": outputs}

    def decode(self, collected, encoded, examples):
        """Make an answer for each example, as a dict for JSON.

        Args:
            collected: dict of str to array [R, ...], the results of `collect`
                for all batches, concatenated.
            encoded: EncodedExamples, the rows of `examples`.
            examples: list of X examples.

        Returns:
            list of X dicts.
        """
        raise NotImplementedError

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """Compute the metrics of answers.

        Args:
            spec: TaskSpec, with the requested `metrics`.
            examples: list of examples with labels.
            decoded: list of dicts, the result of `decode`.
            labels: tuple of str, the names of the classes, or None.

        Returns:
            dict of str to float, the main metric first.

        Raises:
            ValueError: if a number in an answer is infinite or NaN, for example
                because the training diverged.
        """
        targets, answers = cls.compared(examples, decoded, labels)
        return metrics.evaluate(cls, spec.metrics, targets, answers)

    @classmethod
    def compared(cls, examples, decoded, labels):
        """Extract targets from examples, and predictions from answers."""
        raise NotImplementedError

    def adopt(self, scores):
        """Store results of `score`, such as a threshold, in the model."""

    def details(self, encoded):
        """JSON object that a fine-tuning run adds to `results.json`, or None.

        Args:
            encoded: EncodedExamples, the training rows.
        """


class TaskOfTexts(TaskKind):
    """Base of kinds with one class or number per text.

    If a long text is divided into several windows, the logits of the windows
    are averaged.
    """

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        if settings.long_documents != "memory":
            return {"segment_length": None}  # the preset may set it
        length = settings.sequence_length or spec.sequence_length
        lengths = {"segment_length": length, "memory_length": length}
        return {**lengths, "reuse_length": 0}

    @classmethod
    def preprocessor_settings(cls, spec, settings):
        values = super().preprocessor_settings(spec, settings)
        if settings.long_documents == "memory":
            values["sequence_length"] = (
                settings.document_length or 8 * values["sequence_length"]
            )
        return values

    @classmethod
    def encoding_arguments(cls, spec, settings):
        if settings.long_documents != "windows":
            return {}
        length = settings.sequence_length or spec.sequence_length
        return {"stride": settings.stride or length // 2}

    @staticmethod
    def mean_of_windows(collected, encoded, examples):
        """Average logits over the windows of each example, float64 [X, ...]."""
        example, logits = encoded.dense["example"], collected["logits"]
        sums = np.zeros((len(examples), *logits.shape[1:]), np.float64)
        np.add.at(sums, example, logits)
        return (sums.T / np.bincount(example, minlength=len(sums))).T
