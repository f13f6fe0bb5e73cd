"""Recipes: named settings for pretraining, and settings for tasks.

The commands import this module to list the recipes in `--help`. The module
imports no large package, so that `--help` is fast.
"""

import typing


class Recipe(typing.NamedTuple):
    """Recipe for pretraining: settings of a run, which include the model.

    Attributes:
        text: str, description for `--help`.
        settings: dict of fields of PretrainingSettings.
    """

    text: str
    settings: dict


PRETRAINING = {
    # Narrow post-norm layers need a larger `initializer_range` than the
    # released 0.02. Training with so few steps needs no dropout.
    "quick": Recipe(
        text="a tiny model that learns something in minutes of two cores",
        settings={
            "config": "tiny",
            "set": (
                "num_heads=4",
                "initializer_range=0.08",
                "dropout=0.0",
                "attention_dropout=0.0",
            ),
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
    # The paper compares XLNet-Base with BERT-Base, but does not give the
    # settings of XLNet-Base. These are the settings of BERT-Base, see
    # https://arxiv.org/abs/1810.04805, A.2.
    "base": Recipe(
        text="XLNet-Base with the batch, steps and learning rate of BERT-Base",
        settings={
            "config": "base",
            "set": ("dropout=0.1", "attention_dropout=0.1"),
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
        settings={
            "config": "large",
            "set": ("dropout=0.1", "attention_dropout=0.1"),
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
_PAIRS = {"batch_size": 32, "learning_rate": 5e-5, "epochs": 5.0}
# Source: Table 8 of https://arxiv.org/abs/1906.08237 (RACE, SQuAD, MNLI,
# Yelp-5) and the released scripts (STS-B, IMDB). Every other large data set has
# the settings of a similar set in these sources. GLUE's small sets train for a
# few epochs. Tasks with a source and a target have the learning rate in
# https://github.com/microsoft/unilm, s2s-ft.
FINETUNING = {
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
    "seq2seq": _PAIRS,
    "aeslc": {**_PAIRS, "target_length": 32},
    **{
        f"multi30k-{pair}": _PAIRS
        for pair in ("en-de", "de-en", "en-fr", "fr-en")
    },
}


def recipe(task):
    """Return the recipe of a task; {} for a task without a recipe.

    Args:
        task: str, name of the task.

    Returns:
        dict of fields of FinetuningSettings.
    """
    return dict(FINETUNING.get(task, {}))
