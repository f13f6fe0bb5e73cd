"""Sequence to sequence: generate a target text from a source text.

Source and target form one sequence. Source tokens attend to the source; a
target token attends to the source and to earlier target tokens. Each target
token is predicted by one row of the backbone's outputs, see `XLNetSeq2Seq`.

Shapes: B pairs, T tokens of a sequence, P tokens of a target, S steps of
generation, D model dim, V vocabulary.
"""

import keras
from keras import ops

from xlnet_tf.generation.methods import check_can_read
from xlnet_tf.generation.methods import generate_texts
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.model.bert.inputs import real_positions
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.dropout import random_bits
from xlnet_tf.model.inputs import as_features
from xlnet_tf.model.masks import CONTEXT_RANK
from xlnet_tf.preprocessing.seq2seq import XLNetSeq2SeqPreprocessor
from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.heads import LanguageModelHead
from xlnet_tf.tasks.heads import rows_at
from xlnet_tf.tasks.kind import TaskKind
from xlnet_tf.tasks.language_model import LanguageModelTask
from xlnet_tf.tasks.losses import SmoothedLoss
from xlnet_tf.tasks.losses import class_metrics

_MASK_ID = 6
_FIRST_PIECE = 9  # ids below are special symbols
# First of the three numbers of each random draw. They differ from the numbers
# of `model.dropout`, so that the draws are independent.
_DRAW_TARGETS, _DRAW_PSEUDO = -11, -21
# Shares of the corrupted tokens that become <mask> and another token.
_MASKED, _RANDOM = 0.8, 0.1


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetSeq2Seq(LanguageModelTask):
    """Model that generates a target text from a source text.

    One row of the backbone's outputs predicts a target token from the source
    and earlier target tokens. The kind of row depends on the backbone:

    - For a bidirectional XLNet, a row of the query stream. Source tokens attend
      to each other. The factorization order of target tokens is their order in
      the text.
    - For BERT, the row of a pseudo token, as in the fine-tuning of UniLMv2. The
      pseudo token has the position of the predicted token, and attends to the
      source, to earlier target tokens and to itself.
    - For a causal XLNet, the row of the previous token. In this model, source
      tokens attend only to earlier tokens.

    In training, a share of the target tokens is corrupted in the input, but not
    in the labels. 80 % of the corrupted tokens become <mask>, 10 % become
    another token, and 10 % stay. In addition, 10 % of all pseudo tokens
    become another token, and 10 % become the token that they predict.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        label_smoothing: float, the share of the target probability that the
            loss spreads evenly over all tokens. Default 0.1.
        target_corruption: float, the share of corrupted target tokens in
            training. Default 0.5.
        pseudo_mask_id: int, the id of the pseudo tokens. Default 6, <mask>; for
            a preset that was trained with `PseudoMasked`, the id from that
            training.
        has_transform, transform_gelu: see `LanguageModelHead`.
        generation: dict of fields of
            `xlnet_tf.generation.settings.GenerationSettings`, used by
            `generate` and in evaluations. Default: 4 beams and a length penalty
            of 0.6. The default of `max_new_tokens` is the preprocessor's
            `target_length`.
        preprocessor: XLNetSeq2SeqPreprocessor, or None.

    Call arguments:
        features: dict of int32 tensors. `token_ids`, `segment_ids` and
            `padding_mask` [B, T] describe a source with its target, padded on
            the right. `target_positions` [B, P] are the positions of the
            target's tokens.
        training: bool, whether dropout and corruption are applied.

    Returns:
        float32 tensor of shape [B, P, V], logits for the target's tokens.

    Raises:
        ValueError: if `target_positions` are missing, or a setting is out of
            range.

    Source: section 2.3 of https://arxiv.org/abs/1906.08237 (the query stream),
        section 3 of https://arxiv.org/abs/2002.12804 and the s2s-ft of
        https://github.com/microsoft/unilm (pseudo masks, corruption,
        smoothing).

    Example:

    ```python
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetSeq2Seq(backbone)
    ids, at = np.array([[17, 21, 4, 35, 4]]), np.array([[3, 4]])
    logits = task({"token_ids": ids, "target_positions": at})  # [1, 2, V]
    ```
    """

    preprocessor_cls = XLNetSeq2SeqPreprocessor
    head_sources = ("XLNetPretrainer",)

    def __init__(
        self,
        backbone: keras.Model,
        label_smoothing: float = 0.1,
        target_corruption: float = 0.5,
        pseudo_mask_id: int = _MASK_ID,
        has_transform: bool = False,
        transform_gelu: str | None = None,
        generation: dict | None = None,
        **kwargs,
    ):
        for name, share in (
            ("label_smoothing", label_smoothing),
            ("target_corruption", target_corruption),
        ):
            if not 0 <= share < 1:
                raise ValueError(
                    f"`{name}` must be at least 0 and below 1. Received: "
                    f"{name}={share}."
                )
        if getattr(backbone.config, "same_length", False):
            raise ValueError(
                "sequence to sequence needs a source that all of the target "
                "sees: set `same_length` to false. Received: same_length=True."
            )
        head = self.make_head(
            LanguageModelHead,
            backbone,
            kwargs,
            has_transform=has_transform,
            transform_gelu=transform_gelu,
        )
        self.next_token = _row_that_predicts(backbone)
        self.reads_query = self.next_token == "query"
        super().__init__(backbone, head, **kwargs)
        self.label_smoothing = label_smoothing
        self.target_corruption = target_corruption
        self.pseudo_mask_id = pseudo_mask_id
        self._inputs = TargetInputs(
            self.next_token, self.config, target_corruption, pseudo_mask_id
        )
        self.generation = {
            "num_beams": 4,
            "length_penalty": 0.6,
            **(generation or {}),
        }
        GenerationSettings.of(self.generation)  # refuses invalid settings

    @classmethod
    def arguments_of_head(cls, head):
        """Derive constructor arguments from a checkpoint's head; see `Task`.

        If the head is from pretraining with a `pseudo_mask_id`, the arguments
        include this id.
        """
        if head.task.rpartition(">")[2] not in cls.head_sources:
            return head.arguments
        names = ("has_transform", "transform_gelu")
        found = {k: v for k, v in head.arguments.items() if k in names}
        for objective in head.arguments.get("objective") or ():
            if "pseudo_mask_id" in objective:
                found["pseudo_mask_id"] = objective["pseudo_mask_id"]
        return found

    def computation(self):
        return (self.next_token, self.pseudo_mask_id, *super().computation())

    def call(self, features, training=None):
        features = as_features(features)
        if features.get("target_positions") is None:
            raise ValueError(
                "targets are predicted at `target_positions`, which are "
                "missing. To generate a target from a source, call `generate`."
            )
        features = {
            name: value if name == "dropout_seed" else ops.cast(value, "int32")
            for name, value in features.items()
            if value is not None
        }
        positions = features.pop("target_positions")
        if "padding_mask" not in features:
            features["padding_mask"] = ops.ones_like(features["token_ids"])
        if training:
            seed = self.backbone.dropout_seed(features)
            features["dropout_seed"] = seed
        if self.preprocessor is not None:
            tokenizer = self.preprocessor.tokenizer
            self._inputs.num_pieces = tokenizer.vocabulary_size
        features, rows = self._inputs(features, positions, training)
        # If query rows predict tokens, the content stream of the last layer is
        # unused.
        streams = "query" if self.next_token == "query" else "both"
        outputs = self.backbone(features, training=training, streams=streams)
        return self.logits(rows(outputs))

    def default_loss(self):
        return SmoothedLoss(self.label_smoothing)

    def default_metrics(self):
        return class_metrics()

    def generation_settings(self, **settings):
        """Combine settings of `generate` with the task's defaults.

        Args:
            **settings: see `generate`.

        Returns:
            GenerationSettings.

        Raises:
            TypeError, ValueError: if a setting is unknown, of the wrong kind,
                or out of its range.
        """
        defaults = {}
        if self.preprocessor is not None:
            defaults["max_new_tokens"] = self.preprocessor.target_length
        return GenerationSettings.of(
            {**defaults, **self.generation, **settings}
        )

    def generate(self, inputs: str | list[str], **settings) -> str | list:
        """Generate target texts for source texts; needs a preprocessor.

        The first call with new settings compiles a graph.

        Args:
            inputs: str, or list of str: source texts. Sources that are too long
                are truncated at the end.
            **settings: fields of
                `xlnet_tf.generation.settings.GenerationSettings` that override
                the task's settings. Random sampling needs `num_beams=1`.

        Returns:
            str for one source, list of str for a list of sources. With
            `num_sequences` above 1, a list of str replaces each str. For an
            empty source in a list the result is None, with a warning.

        Raises:
            ValueError: if the task has no preprocessor, a setting is invalid,
                or the only source is empty.
            NotImplementedError: if the backend is neither TensorFlow nor JAX.
        """
        generator = self.text_generator(**settings)
        return generate_texts(generator, inputs, keeps_prompt=False)

    def text_generator(self, **settings):
        """Make a SourceGenerator, the object that `generate` uses.

        Args:
            **settings: see `generate`.

        Returns:
            SourceGenerator.

        Raises:
            ValueError: if the task has no preprocessor, or a setting is
                invalid.
            NotImplementedError: if the backend is neither TensorFlow nor JAX.
        """
        check_can_read(self, "generate")
        from xlnet_tf.generation.sources import SourceGenerator

        settings = self.generation_settings(**settings)
        return SourceGenerator(self, self.preprocessor, settings)

    def get_config(self):
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "target_corruption": self.target_corruption,
            "pseudo_mask_id": self.pseudo_mask_id,
            "generation": self.generation,
        }


class SequenceToSequence(TaskKind):
    """Kind of task: generate a target text for a source text."""

    name = "sequence_to_sequence"
    model_class = XLNetSeq2Seq
    feature_names = (*TaskKind.feature_names, "target_positions")
    metric_names = ("bleu", "chrf", "rouge1", "rouge2", "rouge_l")

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        """Make constructor arguments; refuse beam search without TensorFlow."""
        from xlnet_tf.generation.search import check_beams

        check_beams(settings.num_beams)
        return {
            **super().arguments_for(spec, settings, labels),
            "label_smoothing": settings.label_smoothing,
            "target_corruption": settings.target_corruption,
            "generation": {
                "num_beams": settings.num_beams,
                "length_penalty": settings.length_penalty,
                "no_repeat_ngram": settings.no_repeat_ngram,
            },
        }

    @classmethod
    def preprocessor_settings(cls, spec, settings):
        values = super().preprocessor_settings(spec, settings)
        return {**values, "target_length": settings.target_length}

    def outputs_of(self, features, training=False):
        """Compute outputs in training; otherwise generate targets."""
        if training:
            return super().outputs_of(features, training=True)
        check_can_read(self.model, "outputs_of")
        from xlnet_tf.generation.sources import search_targets

        return search_targets(
            self.model,
            features,
            self.model.generation_settings(),
            self.model.preprocessor.tokenizer.vocabulary_size,
        )

    def loss_sums(self, outputs, features):
        losses = self.model.default_loss().call(features["target_ids"], outputs)
        weights = features["target_weights"]
        return ops.sum(losses * weights), ops.sum(weights)

    def collect(self, outputs):
        return dict(outputs)

    def decode(self, collected, encoded, examples):
        """Dicts with `id`, `text` and `log_probability` (natural logarithm)."""
        from xlnet_tf.generation.sources import decode_targets

        tokenizer = self.model.preprocessor.tokenizer
        texts = decode_targets(collected["tokens"], tokenizer)
        values = collected["log_probability"].tolist()
        return [
            {"id": example.id, "text": text, "log_probability": value}
            for example, text, value in zip(
                examples, texts, values, strict=True
            )
        ]

    @classmethod
    def compared(cls, examples, decoded, labels):
        metrics.check_numbers([one["log_probability"] for one in decoded])
        return [x.target for x in examples], [one["text"] for one in decoded]


def _row_that_predicts(backbone):
    """Kind of row that predicts a token: the `next_token` of `TargetInputs`."""
    if not backbone.has_query_stream:
        return "pseudo"
    return "content" if backbone.config.attention_type == "causal" else "query"


class TargetInputs:
    """Maker of backbone inputs that give an output row for each target token.

    `XLNetSeq2Seq` describes them.

    Args:
        next_token: str, the kind of row that predicts a token: "query",
            "content" or "pseudo".
        config: XLNetConfig or BertConfig.
        target_corruption: float, the share of corrupted tokens.
        pseudo_mask_id: int, the id of the pseudo tokens.

    Attributes:
        num_pieces: int, limit of the ids of random tokens (exclusive). The
            limit is V, or the tokenizer's number of pieces if the task has a
            preprocessor.
    """

    def __init__(self, next_token, config, target_corruption, pseudo_mask_id):
        self.config = config
        self.num_pieces = config.vocabulary_size
        self.target_corruption = target_corruption
        self.pseudo_mask_id = pseudo_mask_id
        self._make = getattr(self, f"_of_{next_token}")

    def __call__(self, features, positions, training):
        """Make the backbone's inputs, and a function that selects output rows.

        Args:
            features: dict of int32 [B, T]: `token_ids`, `padding_mask` and
                optionally `segment_ids`. In training, also `dropout_seed`.
            positions: int32 [B, P], positions of the target's tokens. A target
                with fewer than P tokens repeats its last position.
            training: bool, whether tokens are corrupted.

        Returns:
            (dict of features, function). The function returns the rows that
            predict tokens, float [B, P, D], from the backbone's outputs.
        """
        return self._make(features, positions, training)

    def _of_query(self, features, positions, training):
        """Make inputs with a query row for each target token, in text order."""
        features = {
            **self._with_corruption(features, positions, training),
            "factorization_rank": _ranks(features, positions),
            "target_positions": positions,
        }
        if self.config.reverse_half_batch:
            # Otherwise the backbone would read half of the rows backwards.
            features["is_reversed"] = ops.zeros_like(positions[:, 0])
        return features, lambda outputs: outputs["query"]

    def _of_content(self, features, positions, training):
        """Make inputs: the row before each target token predicts the token."""
        features = self._with_corruption(features, positions, training)
        before = ops.maximum(positions - 1, 0)
        return features, lambda outputs: rows_at(outputs["content"], before)

    def _of_pseudo(self, features, positions, training):
        """Make inputs: append one pseudo token for each target token."""
        token_ids, padding = features["token_ids"], features["padding_mask"]
        num_tokens = ops.shape(token_ids)[1]
        of_text, of_pseudo = ops.zeros_like(token_ids), positions * 0
        # Padding repeats the last position, so only the first of equal rows is
        # a target.
        earlier = ops.pad(positions[:, :-1], [[0, 0], [1, 0]])
        is_real = ops.cast(positions != earlier, "int32")
        place = real_positions(padding)
        at_pseudo = ops.take_along_axis(place, positions, axis=1)
        targets = ops.take_along_axis(token_ids, positions, axis=1)
        pseudo = of_pseudo + self.pseudo_mask_id
        if training:
            seed = features["dropout_seed"]
            pseudo = self._corrupt(targets, pseudo, seed, _DRAW_PSEUDO)
        ranks = _ranks(features, positions)
        steps = ops.take_along_axis(ranks, positions, axis=1)

        def join(*parts):
            return ops.concatenate(parts, axis=1)

        corrupted = self._with_corruption(features, positions, training)
        joined = {
            **corrupted,
            "token_ids": join(corrupted["token_ids"], pseudo),
            "position_ids": join(place, at_pseudo),
            "padding_mask": join(padding, is_real),
            "factorization_rank": join(ranks, steps),
            "is_pseudo": join(of_text, of_pseudo + 1),
        }
        if "segment_ids" in features:
            segments = features["segment_ids"]
            of_targets = ops.take_along_axis(segments, positions, axis=1)
            joined["segment_ids"] = join(segments, of_targets)
        return joined, lambda outputs: outputs["content"][:, num_tokens:]

    def _with_corruption(self, features, positions, training):
        """Corrupt target tokens in training; return the features."""
        if not training or not self.target_corruption:
            return features
        token_ids, seed = features["token_ids"], features["dropout_seed"]
        chance = _uniform(ops.shape(token_ids), seed, _DRAW_TARGETS)
        is_target = _ranks(features, positions) > CONTEXT_RANK
        corrupted = self._corrupt(
            token_ids, ops.zeros_like(token_ids) + _MASK_ID, seed, _DRAW_TARGETS
        )
        is_corrupted = ops.logical_and(
            is_target, chance < self.target_corruption
        )
        return {
            **features,
            "token_ids": ops.where(is_corrupted, corrupted, token_ids),
        }

    def _corrupt(self, token_ids, mask, seed, draw):
        """Replace 80 % of tokens by `mask`, and 10 % by random tokens.

        The result is int32 with the shape of `token_ids`.
        """
        shape = ops.shape(token_ids)
        kind = _uniform(shape, seed, draw - 1)
        others = self.num_pieces - _FIRST_PIECE
        other = _uniform(shape, seed, draw - 2) * others
        other = ops.minimum(ops.cast(other, "int32"), others - 1) + _FIRST_PIECE
        return ops.where(
            kind < _MASKED,
            mask,
            ops.where(kind < _MASKED + _RANDOM, other, token_ids),
        )


def _ranks(features, positions):
    """Factorization ranks [B, T]: -1 in the source, from 0 in the target."""
    place = ops.arange(ops.shape(features["token_ids"])[1], dtype="int32")
    return ops.maximum(place[None] - positions[:, :1], CONTEXT_RANK)


def _uniform(shape, seed, draw):
    """Draw uniform random numbers in [0, 1), float32."""
    bits = ops.right_shift(random_bits(shape, fold_in(seed, draw)), 8)
    return ops.cast(bits, "float32") * 2.0**-24
