"""Settings of fine-tuning runs, with the recipes of the published tasks.

Loads nothing heavy, for the command lists these fields in its `--help`.
"""

import dataclasses

from data_pipeline.settings import FRACTION_ABOVE_0
from data_pipeline.settings import FRACTION_BELOW_1
from data_pipeline.settings import FRACTION_BETWEEN
from data_pipeline.settings import NOT_NEGATIVE
from data_pipeline.settings import POSITIVE
from data_pipeline.settings import SEED
from data_pipeline.settings import given_options
from data_pipeline.settings import read_file
from data_pipeline.settings import setting
from xlnet_tf.training.config.pretraining import TrainingConfig
from xlnet_tf.training.config.recipes import recipe

# Fields that only pretraining uses; fine-tuning accepts them in a file.
PRETRAINING_ONLY = (
    "objective",
    "order",
    "masked_unit",
    "masked_fraction",
    "pseudo_masked_losses",
    "next_sentence_weight",
    "evaluation_steps",
    "exports_to_keep",
    "hide_empty_memory",
)
# Times the learning rate of a recipe. Table 9 of
# https://arxiv.org/abs/2106.09685 has 2e-4 to 5e-4, where all weights took
# 1e-5 to 3e-5.
LORA_RATE = 10


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(TrainingConfig):
    """Settings of a fine-tuning run: those of TrainingConfig, and these.

    A row is a text, a pair, a question with its options, a query with its
    documents, or a window of a context.

    Example:
        ```python
        from xlnet_tf.training.config import FinetuningConfig

        config = FinetuningConfig.for_task("rte", options={"batch_size": 16})
        config.resolve(steps_per_epoch=155).steps  # 5 epochs: 775
        ```

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.
    """

    steps: int | None = setting(None, "optimizer steps in all", POSITIVE)
    epochs: float = setting(
        3.0, "passes over the examples, unless --steps is given", POSITIVE
    )
    warmup_steps: int | None = setting(
        None, "steps until the peak (default 10% of the steps)", NOT_NEGATIVE
    )
    learning_rate: float = setting(2e-5, "peak of the learning rate", POSITIVE)
    max_gradient_norm: float = setting(
        1.0,
        "norm that gradients are clipped to, 0 for no clipping",
        NOT_NEGATIVE,
    )
    evaluation_interval: int | None = setting(
        None, "steps between evaluations (default ten in the run)", POSITIVE
    )
    checkpoint_interval: int | None = setting(
        None, "steps between checkpoints (default as evaluations)", POSITIVE
    )
    seed: int = setting(0, "seed of head, order and dropout", SEED)
    sequence_length: int | None = setting(
        None, "tokens at most (default the task's)", POSITIVE
    )
    layer_decay: float = setting(
        1.0,
        "share of the learning rate that each layer has of the one above it; "
        "0.75 for SQuAD in the paper",
        FRACTION_ABOVE_0,
    )
    layer_decay_on: str = setting(
        "step",
        "step, or gradient as released, which Adam mostly undoes",
        choices=("step", "gradient"),
    )
    lora_rank: int | None = setting(
        None,
        "train adapters (LoRA) of this rank and the head alone (default all "
        "weights); 10 times the learning rate of the recipe where none is "
        "given",
        POSITIVE,
    )
    lora_alpha: float | None = setting(
        None, "adapters count alpha / rank times (default the rank)", POSITIVE
    )
    dropout: float | None = setting(
        None,
        "dropout of the model and its head (default the preset's)",
        FRACTION_BELOW_1,
    )
    attention_dropout: float | None = setting(
        None,
        "dropout of attention probabilities (default the preset's)",
        FRACTION_BELOW_1,
    )
    class_weights: str = setting(
        "none",
        "none, or balanced: each class counts as much as any other",
        choices=("none", "balanced"),
    )
    patience: int | None = setting(
        None,
        "evaluations without a better main metric until the run stops "
        "(default never)",
        POSITIVE,
    )
    hold_out: float = setting(
        0.1,
        "share of the training examples kept for evaluation where the task "
        "has no other",
        FRACTION_BETWEEN,
    )
    long_documents: str = setting(
        "truncate",
        "texts beyond the sequence length: truncate, windows (scores are "
        "averaged), or memory (segments in turn)",
        choices=("truncate", "windows", "memory"),
    )
    stride: int | None = setting(
        None,
        "tokens between windows (default 128 for questions, half a window for "
        "texts)",
        POSITIVE,
    )
    document_length: int | None = setting(
        None,
        "tokens at most of a text read with memory (default 8 segments)",
        POSITIVE,
    )
    max_question_length: int = setting(64, "pieces of a question", POSITIVE)
    fill_blanks: bool | None = setting(
        None,
        "put an option in place of each _ of its question, as released, or "
        "behind every question (default in place; a resumed run goes on as "
        "it began)",
    )
    max_answer_length: int = setting(64, "pieces of an answer", POSITIVE)
    n_best_size: int = setting(5, "answers kept for a question", POSITIVE)
    num_documents: int = setting(
        8, "documents of a query that are compared at once", POSITIVE
    )
    target_length: int = setting(
        64,
        "tokens of a target at most; its source may have the others of the "
        "sequence length",
        POSITIVE,
    )
    label_smoothing: float = setting(
        0.1,
        "probability of a target's token that is divided among all",
        FRACTION_BELOW_1,
    )
    target_corruption: float = setting(
        0.5,
        "share of a target's tokens that later ones see masked or replaced "
        "in training",
        FRACTION_BELOW_1,
    )
    num_beams: int = setting(4, "beams that generate targets", POSITIVE)
    length_penalty: float = setting(
        0.6, "above 0: longer targets score higher", NOT_NEGATIVE
    )
    no_repeat_ngram: int = setting(
        0,
        "n-grams of this size come only once in a target; 0: any number of "
        "times",
        NOT_NEGATIVE,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ValueError(
                "`lora_alpha` is of adapters: give `lora_rank` too. Received: "
                f"lora_alpha={self.lora_alpha}, lora_rank=None."
            )

    def _default_warmup(self):
        return self.steps // 10

    @classmethod
    def for_task(cls, task, path=None, options=None):
        """Settings of a task's recipe, of a file and of options.

        Options win over the file, the file over the recipe. Given epochs or
        steps replace both of the recipe, and its warm-up. Adapters have 10
        times the learning rate of the recipe.

        Args:
            task: str, its name.
            path: str or path of a JSON or YAML file, or None.
            options: argparse.Namespace or dict, or None.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError, TypeError: if values are wrong or contradict each other.
        """
        given = given_options(cls, options)
        if {"steps", "epochs"} <= set(given):
            raise ValueError("give either --steps or --epochs, not both.")
        from_file = read_file(cls, path) if path else {}
        if "epochs" in given:
            from_file.pop("steps", None)
        given = {**from_file, **given}
        defaults = recipe(task)
        if {"steps", "epochs"} & set(given):
            # The recipe's warm-up belongs to its own number of steps.
            for name in ("steps", "epochs", "warmup_steps"):
                defaults.pop(name, None)
        if given.get("lora_rank"):
            # Of a few weights that begin at zero: as in the paper's tables.
            rate = defaults.get("learning_rate", cls.learning_rate)
            defaults["learning_rate"] = LORA_RATE * rate
        return cls(**{**defaults, **given})

    def check_model(self, model_config):
        """Refuse settings that a model cannot have.

        Args:
            model_config: XLNetConfig or BertConfig.

        Raises:
            ValueError: if there is one.
        """
        has_memory = "memory_length" in model_config.to_dict()
        if self.long_documents == "memory" and not has_memory:
            raise ValueError(
                '`long_documents` "memory" needs a model with memory, which a '
                'BERT does not have. Use "windows" or "truncate".'
            )

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
