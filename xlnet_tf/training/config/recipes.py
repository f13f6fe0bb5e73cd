"""Recipes for fine-tuning: the settings of the paper, by task."""

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
# Yelp-5) and the released scripts (STS-B, IMDB). Other large sets follow the
# one of their kind; the small ones of GLUE take a few epochs. Pairs of a source
# and a target take the rate of https://github.com/microsoft/unilm, s2s-ft.
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
    "seq2seq": _PAIRS,
    "aeslc": {**_PAIRS, "target_length": 32},
    **{
        f"multi30k-{pair}": _PAIRS
        for pair in ("en-de", "de-en", "en-fr", "fr-en")
    },
}


def recipe(task):
    """The recipe of a task, empty where there is none.

    Args:
        task: str, its name.

    Returns:
        dict of fields of FinetuningConfig.
    """
    return dict(RECIPES.get(task, {}))
