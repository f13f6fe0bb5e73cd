"""Pseudo-masked language modelling of UniLMv2: two losses in one forward pass.

`data_pipeline/objectives/pseudo_masked.py` draws the blocks of targets and
the order of the blocks.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary.
"""

import math

from keras import ops

from xlnet_tf.model.bert.inputs import real_positions
from xlnet_tf.model.masks import CONTEXT_RANK
from xlnet_tf.objectives.objective import LossTerms
from xlnet_tf.objectives.objective import TokenPrediction
from xlnet_tf.objectives.objective import needs_positions
from xlnet_tf.objectives.objective import target_weights
from xlnet_tf.objectives.objective import token_losses
from xlnet_tf.objectives.objective import without_targets
from xlnet_tf.tasks.heads import rows_at

LOSSES = ("both", "autoencoding", "partially_autoregressive")
# Id of <eop>. A text contains this token only if "<eop>" is written in it.
_PSEUDO_MASK_ID = 8


class PseudoMasked(TokenPrediction):
    """Objective: predict masked tokens independently, and also block by block.

    The batch has the positions of the targets in `target_positions` [B, P]. At
    these positions `token_ids` int [B, T] contains <mask> ([M]), another token
    or the true token. The targets form blocks, and each step predicts one
    block. `target_blocks` int [B, P] has the step that predicts each target.
    The labels are `target_ids` and `target_weights` [B, P].

    For each target, the pseudo token [P] and the true token are appended to the
    row. Both have the target's position. The context is all tokens that are not
    targets. [M] and the context attend to each other. [P] attends to [M] and
    the context, to the true tokens of earlier steps, and to every [P] of its
    own step. A true token attends to [M] and the context, and to the true
    tokens of its own step and earlier steps. The outputs at the targets'
    positions in the text thus predict all targets at once (autoencoding). The
    outputs at [P] predict the targets step by step (partially autoregressive).
    The context is encoded only once.

    Each target has two predictions, or one if `losses` is not "both". The
    output `token_loss` [B, P] is the sum of `autoencoding_loss` and
    `partially_autoregressive_loss`, in nats. `token_correct` is the share of a
    target's predictions that are correct. A batch without labels needs no
    `target_blocks`. The backbone's features are then the same as with `Masked`.

    Args:
        losses: str, the losses to compute: "both" (default), "autoencoding" or
            "partially_autoregressive".
        pseudo_mask_id: int, token id of [P]. Default 8, the id of <eop>.

    Raises:
        ValueError: if `losses` is unknown.

    Source: https://arxiv.org/abs/2002.12804, section 3.

    Example:

    ```python
    from xlnet_tf.objectives import PseudoMasked
    backbone = xlnet_tf.BertBackbone(xlnet_tf.BertConfig.from_size("tiny"))
    model = xlnet_tf.XLNetPretrainer(backbone, objective=PseudoMasked())
    ids, at = np.array([[17, 6, 4, 3]]), np.array([[1]])
    batch = dict(token_ids=ids, target_positions=at, target_blocks=at * 0)
    model({**batch, "target_ids": at * 23})["autoencoding_loss"]
    ```
    """

    name = "pseudo_masked"
    streams = "both"
    reads_query = False
    reads_blocks = True
    metric_names: tuple[str, ...] = (
        "loss",
        "accuracy",
        "autoencoding_loss",
        "partially_autoregressive_loss",
    )

    def __init__(
        self, losses: str = "both", pseudo_mask_id: int = _PSEUDO_MASK_ID
    ):
        if losses not in LOSSES:
            raise ValueError(
                f"`losses` must be one of {', '.join(LOSSES)}. "
                f"Received: losses={losses!r}."
            )
        self.losses = losses
        # Each loss trains its own rows. Generation uses the rows of [P], and
        # filling in blanks uses the rows of [M].
        self.next_token = None if losses == "autoencoding" else "pseudo"
        self.fills_blanks = losses != "partially_autoregressive"
        self.predictions = 2 if losses == "both" else 1
        if losses != "both":
            # Without this, the loss that is not computed would appear as 0.
            self.metric_names = ("loss", "accuracy", f"{losses}_loss")
        self.pseudo_mask_id = pseudo_mask_id

    def check(self, backbone):
        if not backbone.takes_position_ids:
            raise ValueError(
                "the objective 'pseudo_masked' puts several tokens at one "
                "position, which needs a backbone that takes `position_ids`, "
                "BertBackbone. Received: "
                f"backbone={type(backbone).__name__}."
            )
        size = backbone.config.vocabulary_size
        if not 0 <= self.pseudo_mask_id < size:
            raise ValueError(
                "`pseudo_mask_id` must be a token of the vocabulary, below "
                f"{size}. Received: pseudo_mask_id={self.pseudo_mask_id}."
            )

    def has_labels(self, batch):
        if not needs_positions(batch):
            return False
        if batch.get("target_blocks") is None:
            raise ValueError(
                "pseudo-masked targets need `target_blocks`, int [B, P], the "
                f"step of each. Received: {', '.join(batch)}."
            )
        return True

    def features(self, batch):
        inputs = without_targets(batch)
        inputs.pop("target_blocks", None)
        if batch.get("target_blocks") is None:
            return inputs
        return {**inputs, **self._appended(batch)}

    def _appended(self, batch):
        """Append all [P], then all true tokens, to the features of the text."""

        def cast(name):
            return ops.cast(batch[name], "int32")

        token_ids, positions = cast("token_ids"), cast("target_positions")
        target_ids, blocks = cast("target_ids"), cast("target_blocks")
        of_text = ops.zeros_like(token_ids)
        of_targets = ops.zeros_like(target_ids)
        real = of_targets + 1
        if batch.get("target_weights") is not None:
            real = ops.cast(ops.cast(batch["target_weights"], "bool"), "int32")
        padding = batch.get("padding_mask")
        padding = of_text + 1 if padding is None else cast("padding_mask")
        place = real_positions(padding)
        if batch.get("position_ids") is not None:
            place = cast("position_ids") + of_text
        at_targets = ops.take_along_axis(place, positions, axis=1)

        def join(*parts):
            return ops.concatenate(parts, axis=1)

        features = {
            "token_ids": join(
                token_ids, of_targets + self.pseudo_mask_id, target_ids
            ),
            "position_ids": join(place, at_targets, at_targets),
            "padding_mask": join(padding, real, real),
            "factorization_rank": join(of_text + CONTEXT_RANK, blocks, blocks),
            "is_pseudo": join(of_text, of_targets + 1, of_targets),
        }
        if batch.get("segment_ids") is not None:
            segments = cast("segment_ids")
            at_targets = ops.take_along_axis(segments, positions, axis=1)
            features["segment_ids"] = join(segments, at_targets, at_targets)
        return features

    def rows(self, outputs, batch):
        return rows_at(outputs["content"], batch["target_positions"])

    def predict(self, model, outputs, batch, training=None):
        target_ids = ops.cast(batch["target_ids"], "int32")
        num_targets = ops.shape(target_ids)[1]
        num_tokens = ops.shape(batch["token_ids"])[1]
        pseudo = outputs["content"][:, num_tokens : num_tokens + num_targets]
        rows = {
            "autoencoding": self.rows(outputs, batch),
            "partially_autoregressive": pseudo,
        }
        if self.losses != "both":
            rows = {self.losses: rows[self.losses]}
        losses = {
            name: token_losses(target_ids, model.logits(row))
            for name, row in rows.items()
        }
        correct = [correct for _, correct in losses.values()]
        return {
            "token_loss": sum(loss for loss, _ in losses.values()),
            "token_correct": sum(correct) / len(correct),
            **{f"{name}_loss": loss for name, (loss, _) in losses.items()},
        }

    def terms(self, outputs, batch):
        token_loss = outputs["token_loss"]
        zero = ops.zeros_like(token_loss)
        metrics = {
            "loss": token_loss,
            "accuracy": outputs["token_correct"],
            "bits_per_token": token_loss / self.predictions / math.log(2),
        }
        for name in self.metric_names[2:]:
            metrics[name] = outputs.get(name, zero)
        return LossTerms(token_loss, target_weights(batch, token_loss), metrics)

    def get_config(self):
        return {
            **super().get_config(),
            "losses": self.losses,
            "pseudo_mask_id": self.pseudo_mask_id,
        }
