"""This library's pretraining step with one part changed, to time that part.

A part that is left out changes what is computed; only the time means anything.
A part that is done as it was done before computes the same. Parts are changed
by the config where it can say so, else by replacing a function in this process,
which does nothing else.
"""

import keras
import tensorflow as tf
from keras import ops

from benchmarks import workload
from benchmarks.contenders import NotAvailable
from benchmarks.contenders import ours
from xlnet_tf import XLNetConfig
from xlnet_tf.model.kernels import scores as attention_scores
from xlnet_tf.optimizer import AdamW
from xlnet_tf.tasks.heads import LanguageModelHead
from xlnet_tf.training import pretraining_step as training_steps
from xlnet_tf.training import step as training_loop
from xlnet_tf.training.config import TrainingConfig

FRAMEWORK = "tensorflow"


def step(
    model,
    batch_size,
    num_tokens,
    num_targets,
    memory_length,
    jit_compile,
    change,
):
    """The step with a change, one of `CHANGES`, or none for "nothing"."""
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
    if change in ("backward", "backward_and_dropout"):
        return _forward(parts, dropout=change == "backward")
    if change != "nothing":
        CHANGES[change](parts)
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


def _vocabulary_by_example(parts):
    """The gradient of the embedding is [B, V, D] before it is summed."""

    def by_example(self, inputs, token_embedding):
        embedding = ops.transpose(ops.cast(token_embedding, inputs.dtype))
        return ops.cast(ops.matmul(inputs, embedding), "float32") + self.bias

    LanguageModelHead.call = by_example


def _keras_adam(parts):
    """Ten operations on each weight, and one of ours for its decay."""
    AdamW._fused_step = keras.optimizers.AdamW.update_step


def _update_apart(parts):
    """Mean, clipping and optimizer are operations of their own under XLA."""
    _replace("is_one_device", lambda strategy: False, training_loop)


def _no_shift(parts):
    """Scores by distance pass for scores by key, and the other way round."""

    def by_key(scores, num_keys):
        return scores[..., :num_keys]

    def by_distance(scores, num_distances):
        missing = num_distances - ops.shape(scores)[-1]
        around = [[0, 0]] * (len(ops.shape(scores)) - 1)
        return ops.pad(scores, [*around, [0, missing]])

    _replace("relative_shift", by_key)
    _replace(
        "relative_shift_targets", lambda scores, at, keys: by_key(scores, keys)
    )
    _replace(
        "relative_shift_transpose",
        lambda scores: by_distance(scores, sum(ops.shape(scores)[-2:])),
    )
    _replace(
        "relative_shift_targets_transpose",
        lambda scores, at, tokens: by_distance(
            scores, ops.shape(scores)[-1] + tokens
        ),
    )


def _replace(name, function, module=attention_scores):
    """Replaces a function in the module that calls it."""
    if not hasattr(module, name):
        raise NotAvailable(f"this version has no {name}")
    setattr(module, name, function)


CHANGES = {
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
    "vocabulary_by_example": _vocabulary_by_example,
    "keras_adam": _keras_adam,
    "update_apart": _update_apart,
}
