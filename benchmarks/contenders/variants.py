"""This library's pretraining step with one part left out, to time that part.

What is left out changes what is computed; only the time means anything. Parts
are left out by the config where it can say so, else by replacing a function in
this process, which does nothing else.
"""

import sys

import tensorflow as tf

from benchmarks import workload
from benchmarks.contenders import NotAvailable
from benchmarks.contenders import ours
from xlnet_tf import XLNetConfig
from xlnet_tf import training as training_steps
from xlnet_tf.optimizer import AdamW
from xlnet_tf.tasks.heads import LanguageModelHead
from xlnet_tf.training_config import TrainingConfig

FRAMEWORK = "tensorflow"


def step(
    model,
    batch_size,
    num_tokens,
    num_targets,
    memory_length,
    jit_compile,
    without,
):
    """The step without a part, one of `PARTS`, or "nothing"."""
    batch = workload.pretraining_batch(
        model, batch_size, num_tokens, num_targets
    )
    parts = {
        "config": {
            **model,
            "memory_length": memory_length,
            "reuse_length": num_tokens // 2 if memory_length else 0,
        },
        "training": {"batch_size": batch_size, "jit_compile": jit_compile},
        "features": {name: batch[name] for name in ours.STEP_FEATURES},
    }
    if without in ("backward", "backward_and_dropout"):
        return _forward(parts, dropout=without == "backward")
    if without != "nothing":
        PARTS[without](parts)
    return ours.trainer_step(
        XLNetConfig(**parts["config"]),
        TrainingConfig(**parts["training"]),
        parts["features"],
    )


def _forward(parts, dropout):
    """The loss alone."""
    training = TrainingConfig(**parts["training"])
    config = XLNetConfig(**parts["config"])
    model, _, memory = training_steps.build(
        config, training, tf.distribute.get_strategy()
    )
    features = {k: tf.constant(v) for k, v in parts["features"].items()}
    features["dropout_seed"] = tf.constant([1, 2])
    if memory is not None:
        features = memory.read(features)

    @tf.function(jit_compile=training.jit_compile)
    def loss(features):
        outputs = model(features, training=dropout)
        return outputs["loss"], outputs.get("memories")

    return lambda: loss(features)[0].numpy()


def _no_dropout(parts):
    parts["config"].update(dropout=0.0, attention_dropout=0.0)


def _no_attention_dropout(parts):
    parts["config"]["attention_dropout"] = 0.0


def _no_hidden_dropout(parts):
    parts["config"]["dropout"] = 0.0


def _no_clipping(parts):
    parts["training"]["max_gradient_norm"] = 0.0


def _no_memory(parts):
    parts["config"].update(memory_length=0, reuse_length=0)


def _no_segments(parts):
    del parts["features"]["segment_ids"]


def _no_mask(parts):
    del parts["features"]["factorization_rank"]


def _no_optimizer(parts):
    # The norm of the gradients is reported, so they are computed all the same.
    AdamW.apply = lambda self, gradients, variables=None: None


def _no_vocabulary(parts):
    parts["features"]["target_ids"] = parts["features"]["target_ids"] * 0

    def first_columns(self, inputs, token_embedding):
        return tf.cast(inputs[..., :2], tf.float32) + self.bias[:2]

    LanguageModelHead.call = first_columns


def _no_shift(parts):
    """Scores by distance pass for scores by key, and the other way round."""

    def by_key(scores, target_positions, num_keys):
        return scores[..., :num_keys]

    def by_distance(scores, target_positions, num_distances):
        missing = num_distances - scores.shape[-1]
        around = [[0, 0]] * (scores.shape.rank - 1)
        return tf.pad(scores, [*around, [0, missing]])

    _replace("distances_by_key", by_key)
    _replace("keys_by_distance", by_distance)


def _replace(name, function):
    """Replaces a function in every module of ours that has it."""
    found = False
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("xlnet_tf") and hasattr(module, name):
            setattr(module, name, function)
            found = True
    if not found:
        raise NotAvailable(f"this version has no {name}")


PARTS = {
    "dropout": _no_dropout,
    "attention_dropout": _no_attention_dropout,
    "hidden_dropout": _no_hidden_dropout,
    "optimizer": _no_optimizer,
    "clipping": _no_clipping,
    "memory": _no_memory,
    "segments": _no_segments,
    "mask": _no_mask,
    "shift": _no_shift,
    "vocabulary": _no_vocabulary,
}
