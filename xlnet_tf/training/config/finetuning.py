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
from xlnet_tf.config.rates import RATE
from xlnet_tf.config.rates import default_rate
from xlnet_tf.config.rates import is_small
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
# Factor of the default learning rate. Table 9 of
# https://arxiv.org/abs/2106.09685 has 2e-4 to 5e-4, where training all weights
# took 1e-5 to 3e-5.
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

    steps: int | None = setting(None, "total optimizer steps", POSITIVE)
    epochs: float = setting(
        3.0, "epochs over the examples, unless --steps is given", POSITIVE
    )
    warmup_steps: int | None = setting(
        None,
        "warm-up steps of the learning rate (default 10% of the steps)",
        NOT_NEGATIVE,
    )
    learning_rate: float | None = setting(
        None,
        "peak learning rate (default 5e-4 for models of a width of at most "
        "256, else that of the task's recipe or 2e-5; a resumed run continues "
        "as it began)",
        POSITIVE,
    )
    max_gradient_norm: float = setting(
        1.0,
        "global norm that gradients are clipped to; 0: no clipping",
        NOT_NEGATIVE,
    )
    evaluation_interval: int | None = setting(
        None, "steps between evaluations (default ten per run)", POSITIVE
    )
    checkpoint_interval: int | None = setting(
        None, "steps between checkpoints (default as of evaluations)", POSITIVE
    )
    seed: int = setting(0, "seed of the head, data order and dropout", SEED)
    sequence_length: int | None = setting(
        None, "most tokens of a sequence (default the task's)", POSITIVE
    )
    layer_decay: float = setting(
        1.0,
        "factor of a layer's learning rate, relative to the layer above it; "
        "0.75 for SQuAD in the paper",
        FRACTION_ABOVE_0,
    )
    layer_decay_on: str = setting(
        "step",
        "apply the layer decay to the step, or to the gradient, as released, "
        "which Adam mostly undoes",
        choices=("step", "gradient"),
    )
    lora_rank: int | None = setting(
        None,
        "train only the head and adapters (LoRA) of this rank (default all "
        "weights); without --learning-rate, 10 times the default",
        POSITIVE,
    )
    lora_alpha: float | None = setting(
        None, "scale adapters by alpha / rank (default the rank)", POSITIVE
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
        "none, or balanced: all classes count equally in the loss",
        choices=("none", "balanced"),
    )
    patience: int | None = setting(
        None,
        "stop after this many evaluations without a better main metric "
        "(default never)",
        POSITIVE,
    )
    hold_out: float = setting(
        0.1,
        "share of the training examples to hold out for evaluation, if the "
        "task has no examples for it",
        FRACTION_BETWEEN,
    )
    long_documents: str = setting(
        "truncate",
        "handling of texts beyond the sequence length: truncate, windows "
        "(their scores are averaged), or memory (segments are read in turn)",
        choices=("truncate", "windows", "memory"),
    )
    stride: int | None = setting(
        None,
        "tokens between the starts of windows (default 128 for questions, half "
        "a window for texts)",
        POSITIVE,
    )
    document_length: int | None = setting(
        None,
        "most tokens of a text read with memory (default 8 segments)",
        POSITIVE,
    )
    max_question_length: int = setting(
        64, "most pieces of a question", POSITIVE
    )
    fill_blanks: bool | None = setting(
        None,
        "put an option in place of the _ in its question, as released, or "
        "after every question (default in place; a resumed run continues as "
        "it began)",
    )
    max_answer_length: int = setting(64, "most pieces of an answer", POSITIVE)
    n_best_size: int = setting(5, "answers to keep per question", POSITIVE)
    num_documents: int = setting(
        8, "documents of a query that the loss compares at once", POSITIVE
    )
    target_length: int = setting(
        64,
        "most tokens of a target; its source may have the rest of the sequence "
        "length",
        POSITIVE,
    )
    label_smoothing: float = setting(
        0.1,
        "share of the probability of a target's token that is spread over all "
        "tokens",
        FRACTION_BELOW_1,
    )
    target_corruption: float = setting(
        0.5,
        "share of a target's tokens that later tokens see corrupted (masked or "
        "replaced) in training",
        FRACTION_BELOW_1,
    )
    num_beams: int = setting(4, "beams for generating targets", POSITIVE)
    length_penalty: float = setting(
        0.6, "above 0: longer targets score higher", NOT_NEGATIVE
    )
    no_repeat_ngram: int = setting(
        0,
        "size of n-grams that may occur only once in a target; 0: no limit",
        NOT_NEGATIVE,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ValueError(
                "`lora_alpha` scales adapters: give `lora_rank` too. Received: "
                f"lora_alpha={self.lora_alpha}, lora_rank=None."
            )

    def _default_warmup(self):
        return self.steps // 10

    @classmethod
    def for_task(cls, task, path=None, options=None):
        """Settings of a task's recipe, of a file and of options.

        Options win over the file, the file over the recipe. Given epochs or
        steps replace both of the recipe, and its warm-up. Without a given
        learning rate it is None until `for_model`.

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
        defaults.pop("learning_rate", None)  # which depends on the model too
        if {"steps", "epochs"} & set(given):
            # The recipe's warm-up belongs to its own number of steps.
            for name in ("steps", "epochs", "warmup_steps"):
                defaults.pop(name, None)
        return cls(**{**defaults, **given})

    def ignored(self):
        """Settings of pretraining that have other values than the defaults.

        Returns:
            list of str.
        """
        return [
            field.name
            for field in dataclasses.fields(self)
            if field.name in PRETRAINING_ONLY
            and getattr(self, field.name) != field.default
        ]

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

    def for_model(self, task, model_config):
        """The config with a learning rate, by default one for the model.

        Args:
            task: str, its name.
            model_config: XLNetConfig or BertConfig.

        Returns:
            tuple of the FinetuningConfig and a list of str, lines that say
            why the rate is not the usual one.
        """
        if self.learning_rate is not None:
            return self, []
        width = model_config.hidden_dim
        rate = default_rate(width, recipe(task).get("learning_rate", RATE))
        if self.lora_rank:
            rate *= LORA_RATE  # few weights that start at zero
        notes = []
        if is_small(width):
            shown = f"{rate:.0e}".replace("e-0", "e-")
            notes.append(
                f"rate      {shown}, as the model is small (width {width}); "
                "--learning-rate sets it"
            )
        return dataclasses.replace(self, learning_rate=rate), notes

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
            # Evaluations and checkpoints happen between loops.
            steps_per_loop=min(self.steps_per_loop, interval),
        )
