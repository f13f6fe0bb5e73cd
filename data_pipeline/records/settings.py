"""How records are made from text."""

import dataclasses

from data_pipeline.records import schema as features


@dataclasses.dataclass(frozen=True)
class Settings:
    """How records are made; None = the default that follows from the others.

    Attributes:
        sequence_length: int, T.
        reuse_length: int, tokens that the next record repeats; default half.
        num_predict: int, P; default sequence_length // tokens_per_target.
        tokens_per_target: int, K: about 1 token in K is predicted.
        permutation_length: int; default each half as a whole.
        spans: "words" or "subwords".
        both_directions: bool, whether to add backward records.
        frozen: bool, whether to draw the permutations now and store masks.
        end_of_document: bool, whether documents end with <eod>.
        validation_fraction: float, share of the documents held out.
        seed: int.
    """

    sequence_length: int = 512
    reuse_length: int | None = None
    num_predict: int | None = None
    tokens_per_target: int = 6
    permutation_length: int | None = None
    spans: str = "words"
    both_directions: bool = False
    frozen: bool = False
    end_of_document: bool = True
    validation_fraction: float = 0.0
    seed: int = 0

    @property
    def form(self):
        """str, "compact" or "frozen"."""
        return "frozen" if self.frozen else "compact"

    @property
    def directions(self):
        """tuple of str."""
        return features.DIRECTIONS[: 2 if self.both_directions else 1]

    def resolved(self):
        """The same with all defaults filled in, checked.

        Returns:
            Settings.

        Raises:
            ValueError: values that do not fit together.
        """
        _check_settings(self)
        reuse = self.reuse_length
        if reuse is None:
            reuse = self.sequence_length // 2
        permutation = self.permutation_length
        if permutation is None:
            permutation = max(reuse, self.sequence_length - reuse)
        num_predict = self.num_predict
        if num_predict is None:
            num_predict = max(1, self.sequence_length // self.tokens_per_target)
        features.check_lengths(
            self.sequence_length, reuse, permutation, num_predict
        )
        return dataclasses.replace(
            self,
            reuse_length=reuse,
            permutation_length=permutation,
            num_predict=num_predict,
        )


def _check_settings(settings):
    for name in ("sequence_length", "tokens_per_target"):
        if getattr(settings, name) < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: "
                f"{name}={getattr(settings, name)}."
            )
    if settings.spans not in features.SPANS:
        raise ValueError(
            f"`spans` must be one of {', '.join(features.SPANS)}. Received: "
            f"spans={settings.spans!r}."
        )
    if not 0 <= settings.validation_fraction < 1:
        raise ValueError(
            "`validation_fraction` must be at least 0 and less than 1. "
            f"Received: validation_fraction={settings.validation_fraction}."
        )
    if settings.seed < 0:
        raise ValueError(
            f"`seed` must not be negative. Received: seed={settings.seed}."
        )
