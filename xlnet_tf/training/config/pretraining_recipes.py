"""Named sets of settings for pretraining, each model with what trains it.

Loads nothing heavy, for the command lists them in its `--help`.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and its training.

    Attributes:
        text: str, what it is for.
        config: str, a named size.
        fields: dict of fields of the model's config that differ from it.
        training: dict of fields of TrainingConfig.
    """

    text: str
    config: str
    fields: dict
    training: dict


RECIPES = {
    # Narrow post-norm layers want larger initial weights than the released
    # 0.02, and so few steps want no dropout.
    "quick": Recipe(
        text="a tiny model that learns something in minutes of two cores",
        config="tiny",
        fields={
            "num_heads": 4,
            "initializer_range": 0.08,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        training={
            "steps": 1000,
            "batch_size": 32,
            "learning_rate": 3e-3,
            "warmup_steps": 40,
            "adam_beta_2": 0.98,
            "max_gradient_norm": 1.0,
            "jit_compile": True,
            "steps_per_loop": 25,
            "evaluation_interval": 250,
            "evaluation_steps": 20,
            "checkpoint_interval": 250,
            "checkpoints_to_keep": 2,
        },
    ),
    # The paper trains Base beside BERT-Base and does not say how: these are
    # BERT-Base's, https://arxiv.org/abs/1810.04805, A.2.
    "base": Recipe(
        text="XLNet-Base with the batch, steps and learning rate of BERT-Base",
        config="base",
        fields={"dropout": 0.1, "attention_dropout": 0.1},
        training={
            "steps": 1_000_000,
            "batch_size": 256,
            "learning_rate": 1e-4,
            "warmup_steps": 10_000,
            "decay": "linear",
            "adam_epsilon": 1e-6,
            "weight_decay": 0.01,
        },
    ),
    # Table 7 of https://arxiv.org/abs/1906.08237.
    "large": Recipe(
        text="XLNet-Large as published, which took 512 TPU chips 5.5 days",
        config="large",
        fields={"dropout": 0.1, "attention_dropout": 0.1},
        training={
            "steps": 500_000,
            "batch_size": 8192,
            "learning_rate": 4e-4,
            "warmup_steps": 40_000,
            "decay": "linear",
            "adam_epsilon": 1e-6,
            "weight_decay": 0.01,
        },
    ),
}
