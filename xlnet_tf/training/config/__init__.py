"""Settings of runs: each field is an option, a key of a file, and its help."""

from xlnet_tf.training.config.finetuning import PRETRAINING_ONLY
from xlnet_tf.training.config.finetuning import FinetuningConfig
from xlnet_tf.training.config.pretraining import WITHOUT_INFLUENCE
from xlnet_tf.training.config.pretraining import TrainingConfig
from xlnet_tf.training.config.pretraining_recipes import RECIPES

__all__ = [
    "PRETRAINING_ONLY",
    "RECIPES",
    "WITHOUT_INFLUENCE",
    "FinetuningConfig",
    "TrainingConfig",
]
