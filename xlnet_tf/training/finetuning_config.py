"""How a fine-tuning run trains, and the recipes of the paper by task."""

import dataclasses

from xlnet_tf.training.config import TrainingConfig

LONG_DOCUMENTS = ("truncate", "windows", "memory")
_EPOCHS = 3.0


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(TrainingConfig):
    """Settings of a fine-tuning run; those of TrainingConfig, and these.

    A row is a text, a pair, a question with its options, a query with its
    documents, or a window of a context.

    Args:
        steps: int or None (default), optimizer steps in all; None: `epochs`
            decides. The warm-up is 10 % of them unless given.
        epochs: float, passes over the examples where `steps` is None. Default
            3.
        batch_size, learning_rate, max_gradient_norm: 32, 2e-5, 1.0.
        evaluation_interval: int or None (default), steps between evaluations;
            None: ten in the run.
        checkpoint_interval: int or None (default): as evaluations.
        sequence_length: int or None (default), tokens at most; None: the
            task's.
        layer_decay: float, share of the learning rate that each layer has of
            the one above it; 1 (default) for none. 0.75 for SQuAD as released.
        layer_decay_on: "step" (default), or "gradient" as released, which Adam
            undoes for the most part.
        dropout: float or None (default: what the preset has), of the model and
            of its head.
        attention_dropout: float or None (default): the model's own.
        class_weights: "none" (default) or "balanced", each class as much as
            any other.
        patience: int or None (default, never), evaluations without a better
            main metric after which the run stops.
        hold_out: float, share of the training examples that is kept for
            evaluation where the task has no other. Default 0.1.
        long_documents: what becomes of texts longer than `sequence_length`:
            "truncate" (default) reads their beginning, "windows" several
            pieces whose scores are averaged, "memory" all segments in turn,
            each remembering those before it.
        stride: int or None (default), tokens from one window to the next;
            None: 128 for questions, half a window for texts.
        document_length: int or None (default), tokens at most of a text read
            with memory; None: 8 segments.
        max_question_length, max_answer_length: ints, 64 pieces each.
        n_best_size: int, answers kept for a question. Default 5.
        num_documents: int, documents of a query that are compared at once.
            Default 8.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    steps: int | None = None
    epochs: float = _EPOCHS
    batch_size: int = 32
    learning_rate: float = 2e-5
    max_gradient_norm: float = 1.0
    evaluation_interval: int | None = None
    checkpoint_interval: int | None = None
    sequence_length: int | None = None
    layer_decay: float = 1.0
    layer_decay_on: str = "step"
    dropout: float | None = None
    attention_dropout: float | None = None
    class_weights: str = "none"
    patience: int | None = None
    hold_out: float = 0.1
    long_documents: str = "truncate"
    stride: int | None = None
    document_length: int | None = None
    max_question_length: int = 64
    max_answer_length: int = 64
    n_best_size: int = 5
    num_documents: int = 8

    def __post_init__(self):
        unknown = [
            name
            for name in ("steps", "evaluation_interval", "checkpoint_interval")
            if getattr(self, name) is None
        ]
        for name in unknown:
            object.__setattr__(self, name, 1)  # passes the checks
        if self.warmup_steps is None and "steps" not in unknown:
            object.__setattr__(self, "warmup_steps", self.steps // 10)
        warmup_steps = self.warmup_steps
        super().__post_init__()
        object.__setattr__(self, "warmup_steps", warmup_steps)
        for name in unknown:
            object.__setattr__(self, name, None)
        for name in (
            "sequence_length",
            "patience",
            "stride",
            "document_length",
        ):
            if getattr(self, name) is not None:
                self._check(name, int, lambda x: x > 0, "a positive integer")
        for name in (
            "max_question_length",
            "max_answer_length",
            "n_best_size",
            "num_documents",
        ):
            self._check(name, int, lambda x: x > 0, "a positive integer")
        self._check("epochs", float, lambda x: x > 0, "a positive number")
        self._check("layer_decay", float, lambda x: 0 < x <= 1, "in (0, 1]")
        self._check("hold_out", float, lambda x: 0 < x < 1, "in (0, 1)")
        for name in ("dropout", "attention_dropout"):
            if getattr(self, name) is not None:
                self._check(name, float, lambda x: 0 <= x < 1, "in [0, 1)")
        for name, choices in (
            ("layer_decay_on", ("step", "gradient")),
            ("class_weights", ("none", "balanced")),
            ("long_documents", LONG_DOCUMENTS),
        ):
            self._check(name, str, choices.__contains__, f"one of {choices}")

    def resolve(self, steps_per_epoch):
        """The config with all numbers of steps known.

        Args:
            steps_per_epoch: int.

        Returns:
            FinetuningConfig.
        """
        steps = self.steps or max(1, round(self.epochs * steps_per_epoch))
        interval = self.evaluation_interval or -(-steps // 10)
        return dataclasses.replace(
            self,
            steps=steps,
            evaluation_interval=interval,
            checkpoint_interval=self.checkpoint_interval or interval,
            # Evaluations and checkpoints come between two loops.
            steps_per_loop=min(self.steps_per_loop, interval),
        )


_SMALL = {"batch_size": 32, "learning_rate": 3e-5, "epochs": 5.0}
_REVIEWS = {
    "sequence_length": 512,
    "batch_size": 128,
    "learning_rate": 1e-5,
    "steps": 10_000,
    "warmup_steps": 1000,
}
_QUESTIONS = {
    "sequence_length": 512,
    "batch_size": 48,
    "learning_rate": 3e-5,
    "steps": 8000,
    "warmup_steps": 1000,
    "layer_decay": 0.75,
}
_CHOICES = {
    "sequence_length": 512,
    "batch_size": 32,
    "learning_rate": 2e-5,
    "steps": 12_000,
    "warmup_steps": 1000,
}
# Table 8 of https://arxiv.org/abs/1906.08237 (RACE, SQuAD, MNLI, Yelp-5) and
# the released scripts (STS-B, IMDB). Neither says anything of the other tasks:
# the larger sets of a kind follow the one that is there, the small ones of GLUE
# take a few passes over their examples.
RECIPES = {
    "race": _CHOICES,
    "dream": {**_CHOICES, "sequence_length": 256, "steps": 3000},
    "squad-1.1": _QUESTIONS,
    "squad-2.0": _QUESTIONS,
    "mnli": {
        "batch_size": 128,
        "learning_rate": 2e-5,
        "steps": 10_000,
        "warmup_steps": 1000,
    },
    "sts-b": {
        "batch_size": 32,
        "learning_rate": 5e-5,
        "steps": 1200,
        "warmup_steps": 120,
    },
    "imdb": {
        "sequence_length": 512,
        "batch_size": 32,
        "learning_rate": 2e-5,
        "steps": 4000,
        "warmup_steps": 500,
    },
    "yelp-5": _REVIEWS,
    "yelp-2": _REVIEWS,
    "amazon-5": _REVIEWS,
    "amazon-2": _REVIEWS,
    "cola": _SMALL,
    "mrpc": _SMALL,
    "rte": _SMALL,
    "wnli": _SMALL,
}


def recipe(task):
    """The settings that a task has of its own.

    Args:
        task: str, its name.

    Returns:
        dict of fields of FinetuningConfig.
    """
    return dict(RECIPES.get(task, {}))


def window_stride(stride, sequence_length):
    """int, tokens between windows of a text: as given, else half a window."""
    return stride or sequence_length // 2
